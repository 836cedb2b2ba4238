"""Plan to shards: every unit that is not yet done, on an engine, with progress; then the table."""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites.core import Model, Source
from sorites.engines import ENGINES
from sorites.errors import SoritesError
from sorites.pipeline import fit as fitting
from sorites.pipeline import folder as folders
from sorites.pipeline import plan as plans
from sorites.pipeline.pictures import shots
from sorites.pipeline.plan import Plan, Unit
from sorites.pipeline.predict import Record, Seen, look, try_models
from sorites.pipeline.refine import refine as bisect
from sorites.progress import Bar, Tick
from sorites.suite import Suite
from sorites.suite import load as load_suite
from sorites.table import read, rows, write, write_bytes

BATCH = 8

known: dict[str, Plan] = {}
"""Plans run by this process, by run id: their pictures can be made again without reading anything from disk."""


def run(
    suite: str | Path | Suite,
    *,
    source: str | Source | None = None,
    models: Sequence[str | Model | Callable[..., Any]] = (),
    shifts: Sequence[str] = (),
    levels: Sequence[int] = (),
    severities: Sequence[float] = (),
    scorers: Sequence[str] = (),
    fit: str | Source | None = None,
    options: Mapping[str, Any] | None = None,
    labels: str | Sequence[str] | None = None,
    limit: int | None = None,
    seed: int | None = None,
    refine: float | None = None,
    batch: int = BATCH,
    keep_features: bool = False,
    out: str | Path | None = None,
    engine: str = "local",
    workers: int | None = None,
    bar: Bar | None = None,
) -> pl.LazyFrame:
    """Evaluate a suite and give its table; what is finished in ``out`` already is not done again."""
    objects = {model.name: model for model in (_as_model(m) for m in models if not isinstance(m, str))}
    names = [m if isinstance(m, str) else _as_model(m).name for m in models]
    recipe = load_suite(suite).override(
        source=source.name if isinstance(source, Source) else source,
        models=tuple(names),
        shifts=shifts,
        levels=levels,
        severities=severities,
        options=options,
        scorers=tuple(scorers),
        fit=None if fit is None else {"source": fit.name if isinstance(fit, Source) else fit},
        labels=labels if labels is None or isinstance(labels, str) else tuple(labels),
        limit=limit,
        seed=seed,
        refine=refine,
    )
    plan = plans.make(recipe, _as_source(source), objects, _as_source(fit))
    return read(execute(plan, out, batch=batch, keep_features=keep_features, engine=engine, workers=workers, bar=bar))


def _as_source(thing: str | Source | None) -> Source | None:
    return thing if isinstance(thing, Source) else None


def _as_model(thing: Model | Callable[..., Any]) -> Model:
    if isinstance(thing, Model):
        return thing
    from sorites.models.python import as_model

    return as_model(getattr(thing, "__name__", type(thing).__name__), thing)


def execute(
    plan: Plan,
    out: str | Path | None = None,
    *,
    batch: int = BATCH,
    keep_features: bool = False,
    engine: str = "local",
    workers: int | None = None,
    bar: Bar | None = None,
) -> Path:
    """Do what is missing of a plan and give the run folder."""
    if batch < 1:
        raise SoritesError(f"--batch wants a whole number above 0, got {batch}")
    if workers is not None and workers < 1:
        raise SoritesError(f"--workers wants a whole number above 0, got {workers}")
    if not plan.models:
        raise SoritesError(f'suite {plan.suite.name} names no model: add --model NAME. See "sorites list models".')
    start = ENGINES.get(engine)
    fitting.refuse_unfitted(plan)
    try_models(plan)
    run_id = folders.describe(plan)["run_id"]
    folder = Path(out) if out is not None else default_folder(plan)
    with folders.opened(folder, plan) as info:
        known[run_id] = plan
        _sweep_temporaries(folder)

        def job(units: Sequence[Unit], work: Callable[[Unit], None]) -> Iterator[Unit]:
            return start(units, work, workers or os.cpu_count() or 1)

        if _unfinished(plan, folder, keep_features, bool(info["suite"]["refine"])):
            plan = fitting.fitted(plan, folder, batch, job, keep_features, bar)
        grid = functools.partial(_grid, plan, folder, run_id, batch, keep_features)
        _stage(plan, folder, plan.units(), grid, job, keep_features, "evaluating", bar)
        if info["suite"]["refine"]:
            probe = functools.partial(_probe, plan, folder, run_id, batch, info["suite"]["refine"])
            _stage(plan, folder, plan.probes(), probe, job, False, "refining", bar)
        after(plan, folder, workers, bar)
    return folder


def _unfinished(plan: Plan, folder: Path, keep_features: bool, refine: bool) -> bool:
    return any(_missing(plan, folder, unit, keep_features) for unit in plan.units()) or (
        refine and any(_missing(plan, folder, unit, False) for unit in plan.probes())
    )


def after(plan: Plan, folder: Path, workers: int | None = None, bar: Bar | None = None) -> None:
    """What is learnt of the images once all are seen: levels that the source brings, and degrees that the suite asks for."""
    from sorites.pipeline import distance

    distance.write_published_levels(plan, folder)
    if plan.suite.distance:
        distance.distance_of_run(plan, folder, plan.suite.distance, bar)
    if plan.suite.similarity or plan.suite.lpips_below is not None:
        from sorites.pipeline.similarity import similarity

        similarity(folder, plan.suite.similarity, lpips_below=plan.suite.lpips_below, workers=workers, bar=bar)


def default_folder(plan: Plan) -> Path:
    """Named by the run's id, so that the same command finds its own work and another command does not."""
    return Path("runs") / f"{plan.suite.name}-{folders.describe(plan)['run_id'][:8]}"


def feature_bytes(plan: Plan) -> int:
    """What ``keep_features`` will take on disk, training pictures and last layers with it."""
    heads = sum(sum(part.nbytes for part in model.head) for model in plan.models.values() if model.head)
    return plan.images() * _wide(plan) + training_bytes(plan) + heads


def training_bytes(plan: Plan) -> int:
    """What the outputs of training pictures will take on disk, with what scorers see inside the models."""
    return len(plan.fit) * (_wide(plan) + fitting.inside_bytes(plan)) if plan.fit else 0


def _wide(plan: Plan) -> int:
    """Bytes of one picture's outputs, all models together."""
    return sum(sum(part.nbytes for part in (one.features, one.logits) if part is not None) for one in try_models(plan).values())


def _stage(
    plan: Plan,
    folder: Path,
    units: Sequence[Unit],
    work: Callable[[Unit, Sequence[str], Tick], None],
    engine: Callable[[Sequence[Unit], Callable[[Unit], None]], Iterator[Unit]],
    keep_features: bool,
    what: str,
    bar: Bar | None,
) -> None:
    todo = {unit: names for unit in units if (names := _missing(plan, folder, unit, keep_features))}
    if not todo:
        return
    probing = next(iter(todo)).probe
    steps = len(todo) if probing else sum(_images(plan, unit) * len(names) for unit, names in todo.items())
    tick = _locked(bar(what, steps)) if bar else lambda n: None
    advance: Tick = (lambda n: None) if probing else tick
    for _ in engine(list(todo), lambda unit: work(unit, todo[unit], advance)):
        if probing:
            tick(1)


def _images(plan: Plan, unit: Unit) -> int:
    return (unit.stop - unit.start) * len(plan.stops.get(unit.shift, (0,)))


def _locked(tick: Tick) -> Tick:
    lock = threading.Lock()

    def advance(n: int) -> None:
        with lock:
            tick(n)

    return advance


def _missing(plan: Plan, folder: Path, unit: Unit, keep_features: bool) -> list[str]:
    """The models whose shard of this unit is not there yet."""

    def done(name: str) -> bool:
        kept = not keep_features or folders.features(folder, unit, name).exists()
        return kept and folders.shard(folder, unit, name).exists()

    return [name for name in plan.models if not done(name)]


def _grid(
    plan: Plan, folder: Path, run_id: str, batch: int, keep_features: bool, unit: Unit, names: Sequence[str], tick: Tick
) -> None:
    for name, seen in look(plan, shots(plan, unit), batch, tick, names).items():
        if keep_features:
            write_bytes(_packed(seen), folders.features(folder, unit, name))
        _keep(seen.records, run_id, folders.shard(folder, unit, name))


def _probe(
    plan: Plan, folder: Path, run_id: str, batch: int, tolerance: float, unit: Unit, names: Sequence[str], tick: Tick
) -> None:
    starts = [Unit(shift, unit.start, unit.stop) for shift in ("clean", unit.shift)]
    grid = pl.concat([pl.read_parquet(folders.shard(folder, start, name)) for start in starts for name in names])
    for name, records in bisect(plan, unit, grid, tolerance, batch, tick).items():
        if name in names:
            _keep(records, run_id, folders.shard(folder, unit, name))


def _keep(records: Sequence[Record], run_id: str, path: Path) -> None:
    write(rows(records).with_columns(run_id=pl.lit(run_id)), path)


def _packed(seen: Seen) -> bytes:
    """Logits and features as safetensors, one row an image, with the image ids in its metadata."""
    from safetensors.numpy import save

    def stacked(part: str) -> Any:
        held = [getattr(outputs, part) for outputs in seen.outputs]
        return np.concatenate(held) if held and held[0] is not None else None

    tensors = {part: array for part in ("features", "logits") if (array := stacked(part)) is not None}
    return save(tensors, metadata={"image_id": json.dumps(seen.image_ids)})


def _sweep_temporaries(folder: Path) -> None:
    for left in folder.rglob("*.tmp"):
        left.unlink(missing_ok=True)
