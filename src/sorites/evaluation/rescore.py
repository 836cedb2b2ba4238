"""Add scorers to a finished run from its stored logits and features, without evaluating models again.

The rows equal those that the run itself would have written, except for probes of a refinement, whose features
are not stored.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from sorites import core
from sorites.core import Outputs, Scorer
from sorites.core.errors import Notice, SoritesError, UnfinishedRun, tell
from sorites.core.messages import option
from sorites.core.table import RunLike, read, run_folder, write_shard
from sorites.evaluation import fit
from sorites.evaluation.box_scores import Scored
from sorites.evaluation.engines import ENGINES, Engine
from sorites.evaluation.integrity.unfinished import unfinished
from sorites.evaluation.options import ScoreOptions
from sorites.evaluation.plan import Unit
from sorites.evaluation.predict import INSIDE, WORDS, score_rows, score_together, with_all_columns
from sorites.evaluation.reopen import plan_of
from sorites.evaluation.storage import shards
from sorites.evaluation.storage.merge import expand
from sorites.evaluation.storage.record import read_record, write_record
from sorites.evaluation.storage.schema import ModelFit, SearchResult
from sorites.evaluation.storage.tensors import read_head, read_tensors
from sorites.io.files import locked, sweep_temporaries
from sorites.suites.suite import Fit

REPEAT_WITH_FEATURES = f"repeat the run with {option('keep_features')}"
# Slices by model whose shard exists.
Units = Mapping[str, Sequence[Unit]]


@dataclass(frozen=True)
class ScoreTask:
    """A slice, the shard with its rows, and the stored outputs of a model."""

    unit: Unit
    rows: Path
    features: Path


def score(
    run: str | Path | RunLike,
    scorers: str | Sequence[str],
    *,
    engine: str | Engine | None = "local",
    workers: int | None = None,
    address: str | None = None,
    gpus_per_worker: float = 0.0,
) -> dict[str, int]:
    """Add the rows of scorers to a run folder.

    All scorers are fitted before the first row is written. A scorer that cannot be fitted is left out with a
    notice, unless it is the only one.

    Args:
        run: A run folder, made by "sorites run"; may be on an object store: s3://BUCKET/RUN. Also a ``Run``.
        scorers: Scorers to add: energy, 'knn(k=10)'. The run must have been made with kept features.
        engine: Engine that runs the tasks: local (threads), processes, or ray (also on a cluster). Also an
            ``Engine``.
        workers: Number of tasks to run in parallel; default: one per core.
        address: Head of the Ray cluster, for the engine ray; default: RAY_ADDRESS, or a local Ray instance.
        gpus_per_worker: Fraction of a GPU for each worker of the engine ray.

    Returns:
        The number of rows added by each scorer; 0 if all existed.

    Raises:
        UnfinishedRun: The run is unfinished.
        SoritesError: The run lacks what a scorer needs.
    """
    options = ScoreOptions(
        run=run,
        scorers=scorers,
        engine=engine,
        workers=workers,
        address=address,
        gpus_per_worker=gpus_per_worker,
    )
    return add_scores(options)


def add_scores(options: ScoreOptions) -> dict[str, int]:
    """Add the rows of scorers, like ``score``, with options as one object."""
    folder, engine, scorers = run_folder(options.run), options.chosen_engine(), options.scorers
    start = ENGINES.get(engine) if isinstance(engine, str) else engine
    suite, models = (record := read_record(folder)).suite, list(record.models)
    specs = [scorers] if isinstance(scorers, str) else scorers
    names = list(dict.fromkeys(map(core.scorer_name, specs)))
    added = dict.fromkeys(names, 0)
    if (incomplete := unfinished(folder)) is not None:
        raise UnfinishedRun(folder, f"{incomplete.found()} Repeat the run to finish it, then add scores.")
    with locked(folder):
        sweep_temporaries(folder)
        expand(folder)
        units = _units(folder, models)
        new = [name for name in names if name not in suite.scorers]
        for name in new:
            _refuse(folder, name, core.scorer(name), units)
        missing = _missing_scores(folder, models, new, units)
        ready = {(name, model): _ready(folder, name, model, suite.fit) for name, model in missing}
        unfitted = _unfitted(ready, new)
        ready = {key: found for key, found in ready.items() if key[0] not in unfitted}
        _record_searches(folder, {key: search for key, (_, search) in ready.items() if search is not None})
        for (name, model), (scorer, _) in ready.items():
            work = functools.partial(score_unit, folder, name, scorer, model)
            tasks = _score_tasks(folder, models, model, missing[name, model])
            results = start(tasks, work, options.workers or start.cores())
            added[name] += sum(rows for _, rows in results)
        _record(folder, [name for name in new if name not in unfitted])
    return added


Fitted = tuple[Scorer, SearchResult | None]


def _unfitted(ready: Mapping[tuple[str, str], Fitted], new: Sequence[str]) -> dict[str, str]:
    """Return the scorers that cannot be fitted for some model, with the reason, and tell them.

    Raises:
        SoritesError: None of the scorers can be fitted.
    """
    refused = {
        name: f"{model}: {scorer.note}"
        for (name, model), (scorer, _) in ready.items()
        if isinstance(scorer, fit.UnfittedScorer)
    }
    if refused and refused.keys() == set(new):
        raise SoritesError("\n".join(refused.values()))
    for note in refused.values():
        tell(Notice(note, code="scorer_not_fitted"), 4)
    return refused


def _score_tasks(folder: Path, models: Sequence[str], model: str, units: Sequence[Unit]) -> list[ScoreTask]:
    present, features = shards.Predictions(folder, models), shards.tensor_files(folder, shards.FEATURES)
    rows = ((unit, present.find(unit, model)) for unit in units)
    return [ScoreTask(u, path, features[shards.stem(u, model)]) for u, path in rows if path is not None]


def _missing_scores(
    folder: Path, models: Sequence[str], scorers: Sequence[str], units: Units
) -> dict[tuple[str, str], list[Unit]]:
    """Return the slices without scores by scorer and model."""
    present = shards.Predictions(folder, models)
    missing = {
        (name, model): [unit for unit in slices if not present.has_scores(unit, model, name)]
        for name in scorers
        for model, slices in units.items()
    }
    return {key: slices for key, slices in missing.items() if slices}


def _units(folder: Path, models: Sequence[str]) -> dict[str, list[Unit]]:
    present, units = shards.Predictions(folder, models), plan_of(folder).units()
    return {model: [unit for unit in units if present.has(unit, model)] for model in models}


def _refuse(folder: Path, name: str, scorer: Scorer, units: Units) -> None:
    """Raise a ``SoritesError`` if the stored outputs lack what the scorer needs."""
    detectors = read(folder).filter(pl.col("output") == "boxes").select(pl.col("model").unique().sort())
    for model in detectors.collect(engine="streaming")["model"]:
        raise SoritesError(
            f"{model} is a detector, and logits and features of boxes are not stored. Repeat the run with"
            f" {option('scorers', [name])} and another {option('out', 'DIR')}."
        )
    if needed := scorer.needs & (INSIDE | {"texts"}):
        what = WORDS[min(needed)]
        raise SoritesError(
            f"{name} needs {what}, which stored features do not contain. Run the suite again with"
            f" {option('scorers', [name])}."
        )
    present = shards.tensor_files(folder, shards.FEATURES)
    stems = [shards.stem(unit, model) for model, slices in units.items() for unit in slices]
    missing = [stem for stem in stems if stem not in present]
    if missing or not stems:
        raise SoritesError(
            f"{folder} has the features of {len(stems) - len(missing)} of {len(stems)} slices:"
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


def _ready(folder: Path, name: str, model: str, training: Fit | None) -> Fitted:
    """Return the fitted scorer for one model, and the result of its parameter search, if any."""
    return fit.Fits(folder, model, read_head(folder, model), training).scorer(name, core.scorer(name))


def _record_searches(folder: Path, searches: Mapping[tuple[str, str], SearchResult]) -> None:
    """Add the results of searches to those of the run."""
    fits = fit.read_fits(folder)
    for (name, model), search in searches.items():
        entry = fits.get(model) or ModelFit()
        fits[model] = entry.having(search={**entry.search, name: search})
    if searches:
        fit.write_fits(folder, fits)


def score_unit(folder: Path, name: str, scorer: Scorer, model: str, task: ScoreTask) -> int:
    """Score the stored outputs of a slice and write their rows; return how many."""
    labels = shards.read_shard(task.rows).filter(pl.col("output") == "label", pl.col("model") == model)
    scores = _scores(task.features, name, scorer)
    no_features: Scored = (None, "its features were not stored")
    rows = with_all_columns(
        score_rows(labels, name, [scores.get(image, no_features) for image in labels["image_id"]])
    )
    write_shard(rows, folder, shards.score_stem(task.unit, model, name))
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


def _record(folder: Path, names: Sequence[str]) -> None:
    record = read_record(folder)
    if added := [name for name in names if name not in record.scored]:
        write_record(folder, record.having(scored=(*record.scored, *added)))
