"""Add scorers to a finished run from its stored logits and features, without evaluating models again.

The rows equal those that the run itself would have written, except for probes of a refinement, whose features
are not stored.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from sorites import core
from sorites.core import Outputs, Scorer
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.table import write
from sorites.evaluation import fit
from sorites.evaluation.engines import ENGINES, Engine
from sorites.evaluation.fit import SearchResult
from sorites.evaluation.plan import Unit
from sorites.evaluation.predict import INSIDE, WORDS, Scored, score_rows, score_together, with_all_columns
from sorites.evaluation.reopen import plan_of, suite_of
from sorites.evaluation.storage import shards
from sorites.evaluation.storage.compact import expand
from sorites.evaluation.storage.folder import read_info, write_info
from sorites.evaluation.storage.tensors import read_head, read_tensors
from sorites.evaluation.unfinished import unfinished
from sorites.io.files import locked, write_bytes
from sorites.io.stores import to_path

REPEAT_WITH_FEATURES = f"repeat the run with {option('keep_features')}"
# Slices by model whose shard exists.
Units = Mapping[str, Sequence[Unit]]


def score(
    run: str | Path,
    scorers: str | Sequence[str],
    *,
    engine: str | Engine = "local",
    workers: int | None = None,
) -> dict[str, int]:
    """Add the rows of scorers to a run folder.

    All scorers are fitted before the first row is written; if one cannot be fitted, nothing is added.

    Args:
        run: A finished run folder.
        scorers: Scorers such as ``"energy"`` or ``"knn(k=10)"``.
        engine: Name of an engine, or an engine.
        workers: Number of workers; default: that of the engine.

    Returns:
        The number of rows added by each scorer; 0 if all existed.

    Raises:
        SoritesError: The run is unfinished, or lacks what a scorer needs.
    """
    folder, start = to_path(run), ENGINES.get(engine) if isinstance(engine, str) else engine
    info = read_info(folder)
    specs = [scorers] if isinstance(scorers, str) else scorers
    names = list(dict.fromkeys(map(core.scorer_name, specs)))
    added = dict.fromkeys(names, 0)
    if (incomplete := unfinished(folder)) is not None:
        raise SoritesError(f"{incomplete.found()} Repeat the run to finish it, then add scores.")
    with locked(folder):
        expand(folder)
        units = _units(folder, info["models"])
        new = [name for name in names if name not in info["suite"]["scorers"]]
        for name in new:
            _refuse(folder, name, core.scorer(name), units)
        missing = _missing_scores(folder, new, units)
        ready = {(name, model): _ready(folder, name, model) for name, model in missing}
        _record_searches(folder, {key: search for key, (_, search) in ready.items() if search is not None})
        for (name, model), (scorer, _) in ready.items():
            work = functools.partial(score_unit, folder, name, scorer, model)
            results = start(missing[name, model], work, workers or start.cores())
            added[name] += sum(rows for _, rows in results)
        for name in new:
            _record(folder, name)
    return added


def _missing_scores(folder: Path, scorers: Sequence[str], units: Units) -> dict[tuple[str, str], list[Unit]]:
    """Return the slices without scores by scorer and model."""
    present = shards.Present(folder)
    missing = {
        (name, model): [
            unit for unit in slices if shards.score_shard(folder, unit, model, name) not in present
        ]
        for name in scorers
        for model, slices in units.items()
    }
    return {key: slices for key, slices in missing.items() if slices}


def _units(folder: Path, models: Sequence[str]) -> dict[str, list[Unit]]:
    present, units = shards.Present(folder), plan_of(folder).units()
    return {
        model: [unit for unit in units if shards.shard(folder, unit, model) in present] for model in models
    }


def _refuse(folder: Path, name: str, scorer: Scorer, units: Units) -> None:
    """Raise a ``SoritesError`` if the stored outputs lack what the scorer needs."""
    if scorer.needs & INSIDE:
        what = WORDS[min(scorer.needs & INSIDE)]
        raise SoritesError(
            f"{name} needs {what}, which stored features do not contain. Run the suite again with"
            f" {option('scorer', name)}."
        )
    present = shards.Present(folder, ("features",))
    paths = [shards.features(folder, unit, model) for model, slices in units.items() for unit in slices]
    missing = [path for path in paths if path not in present]
    if missing or not paths:
        raise SoritesError(
            f"{folder} has the features of {len(paths) - len(missing)} of {len(paths)} shards:"
            f" {REPEAT_WITH_FEATURES}"
        )
    for model in units:
        if "training" in scorer.needs and not fit.kept_slices(folder, model):
            raise SoritesError(
                f"{name} must be fitted on training images, but {folder} has none for {model}:"
                f" run the suite with {option('fit', 'SOURCE')} and {option('keep_features')}"
            )
        if "head" in scorer.needs and read_head(folder, model) is None:
            raise SoritesError(f"{name} needs {WORDS['head']}, but {folder} has none of {model}")


def _ready(folder: Path, name: str, model: str) -> tuple[Scorer, SearchResult | None]:
    """Return the fitted scorer for one model, and the result of its parameter search, if any."""
    fits = fit.Fits(folder, model, read_head(folder, model), suite_of(read_info(folder)).fit)
    scorer, search = fits.scorer(name, core.scorer(name))
    if isinstance(scorer, fit.UnfittedScorer):
        raise SoritesError(f"{model}: {scorer.note}")
    return scorer, search


def _record_searches(folder: Path, searches: Mapping[tuple[str, str], SearchResult]) -> None:
    """Add the results of searches to those of the run."""
    record = fit.read_record(folder)
    for (name, model), search in searches.items():
        record.setdefault(model, {}).setdefault("search", {})[name] = search
    if searches:
        write_bytes(json.dumps(record, indent=1).encode(), folder / fit.RECORD)


def score_unit(folder: Path, name: str, scorer: Scorer, model: str, unit: Unit) -> int:
    """Score the stored outputs of a slice and write their rows; return how many."""
    shard = shards.read_shard(shards.shard(folder, unit, model))
    labels = shard.filter(pl.col("output") == "label")
    scores = _scores(shards.features(folder, unit, model), name, scorer)
    no_features: Scored = (None, "its features were not stored")
    rows = with_all_columns(
        score_rows(labels, name, [scores.get(image, no_features) for image in labels["image_id"]])
    )
    write(rows, shards.score_shard(folder, unit, model, name))
    return rows.height


def _scores(features: Path, name: str, scorer: Scorer) -> dict[str, Scored]:
    """Return the OOD score, or None and an error, of each image."""
    about, parts = read_tensors(features, ("image_id",), ("logits", "features"))
    return dict(
        zip(
            about["image_id"],
            score_together(name, scorer, Outputs(parts.get("logits"), parts.get("features"))),
            strict=True,
        )
    )


def _record(folder: Path, name: str) -> None:
    info = read_info(folder)
    added = info.get("scored", [])
    if name not in added:
        write_info(folder, {**info, "scored": [*added, name]})
