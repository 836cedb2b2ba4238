"""Scorers added to a finished run: their rows come from the logits and features it kept, and no
model looks again.

The rows are those that the run itself would have written, images that refine a failure severity apart:
no features are kept of those.
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
from sorites.core.table import write
from sorites.evaluation import fit
from sorites.evaluation.engines import ENGINES, Engine
from sorites.evaluation.fit import SearchResult
from sorites.evaluation.plan import Unit
from sorites.evaluation.predict import INSIDE, WORDS, Scored, score_rows, scored, whole
from sorites.evaluation.reopen import plan_of, suite_of
from sorites.evaluation.storage import shards
from sorites.evaluation.storage.compact import expand
from sorites.evaluation.storage.folder import read_info, write_info
from sorites.evaluation.storage.tensors import read_head, read_tensors
from sorites.evaluation.unfinished import unfinished
from sorites.io.files import locked, write_bytes
from sorites.io.stores import place

KEEP = "type the run's command again with --keep-features"
# Model to the grid units whose shard is there.
Units = Mapping[str, Sequence[Unit]]


def score(
    run: str | Path,
    scorers: str | Sequence[str],
    *,
    engine: str | Engine = "local",
    workers: int | None = None,
) -> dict[str, int]:
    """Add the ``ood`` rows of scorers to a run folder; return how many rows each brought, 0 where
    all were there.

    All are fitted before the first row is written: where one cannot be, nothing is added.
    """
    folder, start = place(run), ENGINES.get(engine) if isinstance(engine, str) else engine
    info = read_info(folder)
    names = list(
        dict.fromkeys(core.scorer_name(spec) for spec in ([scorers] if isinstance(scorers, str) else scorers))
    )
    added = dict.fromkeys(names, 0)
    if (left := unfinished(folder)) is not None:
        raise SoritesError(f"{left.found()} Type the run's command again to finish it, then score.")
    with locked(folder):
        expand(folder)
        units = _units(folder, info["models"])
        new = [name for name in names if name not in info["suite"]["scorers"]]
        for name in new:
            _refuse(folder, name, core.scorer(name), units)
        present = shards.Present(folder)
        todo = {
            (name, model): [
                unit for unit in some if shards.score_shard(folder, unit, model, name) not in present
            ]
            for name in new
            for model, some in units.items()
        }
        ready = {(name, model): _ready(folder, name, model) for (name, model), some in todo.items() if some}
        _record_searches(folder, {key: told for key, (_, told) in ready.items() if told is not None})
        for (name, model), (scorer, _) in ready.items():
            work = functools.partial(score_unit, folder, name, scorer, model)
            added[name] += sum(rows for _, rows in start(todo[name, model], work, workers or start.cores()))
        for name in new:
            _record(folder, name)
    return added


def _units(folder: Path, models: Sequence[str]) -> dict[str, list[Unit]]:
    present, units = shards.Present(folder), plan_of(folder).units()
    return {
        model: [unit for unit in units if shards.shard(folder, unit, model) in present] for model in models
    }


def _refuse(folder: Path, name: str, scorer: Scorer, units: Units) -> None:
    """Raise an error before any row is written where kept features cannot answer."""
    if scorer.needs & INSIDE:
        what = WORDS[min(scorer.needs & INSIDE)]
        raise SoritesError(
            f"{name} needs {what}, which kept features do not hold. Run the suite again with --scorer"
            f" {name!r}."
        )
    present = shards.Present(folder, ("features",))
    every = [shards.features(folder, unit, model) for model, some in units.items() for unit in some]
    missing = [path for path in every if path not in present]
    if missing or not every:
        raise SoritesError(
            f"{folder} kept the features of {len(every) - len(missing)} of {len(every)} shards: {KEEP}"
        )
    for model in units:
        if "training" in scorer.needs and not fit.kept_slices(folder, model):
            raise SoritesError(
                f"{name} must be fitted on training images, and {folder} holds none for {model}: "
                "run the suite with --fit SOURCE and --keep-features"
            )
        if "head" in scorer.needs and read_head(folder, model) is None:
            raise SoritesError(f"{name} needs {WORDS['head']}, and {folder} holds none of {model}")


def _ready(folder: Path, name: str, model: str) -> tuple[Scorer, SearchResult | None]:
    """The scorer for one model, fitted and its parameters searched where it is to be, and what the
    search found.
    """
    fits = fit.Fits(folder, model, read_head(folder, model), suite_of(read_info(folder)).fit)
    scorer, told = fits.scorer(name, core.scorer(name))
    if isinstance(scorer, fit.Refused):
        raise SoritesError(f"{model}: {scorer.note}")
    return scorer, told


def _record_searches(folder: Path, found: Mapping[tuple[str, str], SearchResult]) -> None:
    """Keep what searches found beside those of the run itself."""
    told = fit.read_record(folder)
    for (name, model), search in found.items():
        told.setdefault(model, {}).setdefault("search", {})[name] = search
    if found:
        write_bytes(json.dumps(told, indent=1).encode(), folder / fit.RECORD)


def score_unit(folder: Path, name: str, scorer: Scorer, model: str, unit: Unit) -> int:
    """A unit of work: score the kept outputs of a grid unit and write their rows; return how many."""
    shard = shards.read_shard(shards.shard(folder, unit, model))
    labels = shard.filter(pl.col("output") == "label")
    found = _scores(shards.features(folder, unit, model), name, scorer)
    lost: Scored = (None, "its features were not kept")
    rows = whole(score_rows(labels, name, [found.get(image, lost) for image in labels["image_id"]]))
    write(rows, shards.score_shard(folder, unit, model, name))
    return rows.height


def _scores(features: Path, name: str, scorer: Scorer) -> dict[str, Scored]:
    """Map each image to its OOD score, or to none and why."""
    about, parts = read_tensors(features, ("image_id",), ("logits", "features"))
    return dict(
        zip(
            about["image_id"],
            scored(name, scorer, Outputs(parts.get("logits"), parts.get("features"))),
            strict=True,
        )
    )


def _record(folder: Path, name: str) -> None:
    info = read_info(folder)
    known = info.get("scored", [])
    if name not in known:
        write_info(folder, {**info, "scored": [*known, name]})
