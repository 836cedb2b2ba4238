"""Refined failure severities: bisect the dial inside each trajectory's first failing bracket.

On the grid an image is right at one setting and wrong at the next; the crossing lies between. Halving
that bracket until it is narrower than the tolerance costs one model pass a halving and trajectory,
the least that a yes-or-no answer allows. What is found is a crossing inside the first failing
bracket; a trajectory that recovers and fails again elsewhere keeps its first bracket. Of a detector
every object that it found has a bracket of its own; an image made for one object is judged for all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from sorites.core import CLEAN
from sorites.core.table import SCHEMA, write
from sorites.evaluation.fit import ready
from sorites.evaluation.images import Shot, shots, turned
from sorites.evaluation.plan import Plan, Unit
from sorites.evaluation.predict import Predictions, predict
from sorites.evaluation.storage import shards
from sorites.evaluation.worker import Task, running_in
from sorites.io.files import write_bytes
from sorites.metrics.detection.failure import found_objects


@dataclass
class Bracket:
    """Right at ``low``, wrong at ``high``."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    def wider(self, step: float) -> bool:
        """Return whether halving it again makes sense: rounding in the settings costs no pass, and
        floats have an end.
        """
        return self.high - self.low > step * (1 + 1e-9) and self.low < self.middle < self.high


# The model and the sample of a trajectory, and the object in it where boxes are judged.
Key = tuple[str, str] | tuple[str, str, int]

Brackets = dict[Key, Bracket]
# The verdicts of each trajectory by rising severity.
Steps = dict[Key, list[tuple[float, bool | None]]]


def brackets(grid: pl.DataFrame, shift: str) -> Brackets:
    """Return the first failing bracket of each trajectory that has one; a missing verdict below it
    leaves the trajectory out.
    """
    rows = grid.filter(pl.col("shift").is_in([CLEAN, shift]), ~pl.col("probe"))
    found: Brackets = {}
    for key, steps in _steps(rows).items():
        low = None
        for severity, correct in steps:
            if correct and (low is not None or severity == 0):
                low = severity
                continue
            if correct is False and low is not None:
                found[key] = Bracket(low, severity)
            break
    return found


def _steps(rows: pl.DataFrame) -> Steps:
    """Return the verdicts of each sample on label rows, and of each object on rows of boxes."""
    found: Steps = {}
    labels = rows.filter(pl.col("output") == "label").sort("severity")
    for model, sample, severity, correct in labels.select(
        "model", "sample_id", "severity", "correct"
    ).iter_rows():
        found.setdefault((model, sample), []).append((severity, correct))
    boxes = rows.filter(pl.col("output") == "boxes").sort("severity")
    if boxes.is_empty():
        return found
    verdicts = {
        (row, obj): hit
        for row, obj, hit in found_objects(boxes).select("row", "object", "correct").iter_rows()
    }
    most = pl.col("ground_truth").list.len().max().over("model", "sample_id").fill_null(0)
    places = boxes.select("model", "sample_id", "severity", most).with_row_index()
    for row, model, sample, severity, objects in places.iter_rows():
        for obj in range(objects):
            found.setdefault((model, sample, obj), []).append((severity, verdicts.get((row, obj))))
    return found


def refine(
    plan: Plan, unit: Unit, grid: pl.DataFrame, tolerance: float, batch: int, models: Sequence[str]
) -> dict[str, list[pl.DataFrame]]:
    """Return the probe rows of one slice along one dial, by model.

    ``tolerance`` is a fraction of the top level.
    """
    step = tolerance * plan.shifts[unit.shift].top
    open_: Brackets = {
        key: bracket for key, bracket in brackets(grid, unit.shift).items() if bracket.wider(step)
    }
    rows: dict[str, list[pl.DataFrame]] = {name: [] for name in models}
    shown: set[tuple[str, str, float]] = set()
    while open_:
        steps = _round(plan, unit, open_, batch, rows)
        shown |= {(*key[:2], bracket.middle) for key, bracket in open_.items()}
        for key, bracket in list(open_.items()):
            judged = dict(steps.get(key, ()))
            if judged.get(bracket.middle) is None:
                del open_[key]
                continue
            _narrow(bracket, judged)
            if not bracket.wider(step) or (*key[:2], bracket.middle) in shown:
                del open_[key]
    return rows


def _narrow(bracket: Bracket, judged: Mapping[float, bool | None]) -> None:
    """Move the ends of a bracket by the verdicts inside it: its own, and those of images made for
    other objects.
    """
    for severity in sorted(judged):
        if bracket.low < severity < bracket.high and judged[severity] is not None:
            bracket.low, bracket.high = (
                (severity, bracket.high) if judged[severity] else (bracket.low, severity)
            )


def _round(plan: Plan, unit: Unit, open_: Brackets, batch: int, rows: dict[str, list[pl.DataFrame]]) -> Steps:
    """Show every open trajectory its middle, batched over samples; a model sees only its own."""
    steps: Steps = {}
    for name in rows:
        wanted: dict[str, set[float]] = {}
        for key, bracket in open_.items():
            if key[0] == name:
                wanted.setdefault(key[1], set()).add(bracket.middle)
        found = predict(plan, _middles(plan, unit, wanted), batch, models=[name])[name].rows
        rows[name].append(found)
        steps |= _steps(found)
    return steps


def _middles(plan: Plan, unit: Unit, wanted: Mapping[str, set[float]]) -> Iterator[Shot]:
    for sample in plan.groups[unit.shift][unit.start : unit.stop]:
        if sample.id in wanted:
            yield from turned(plan, sample, unit.shift, sorted(wanted[sample.id]), probe=True)


# The units of work of a run, each a top-level function of the run folder and a task: threads, processes
# and a cluster run the same ones. What a unit needs it finds in its process (``running``) or loads from
# the folder, once per process.


def evaluate(folder: Path, task: Task, *, batch: int, keep_features: bool = False) -> None:
    """Make the images of a grid unit, show them to the task's models, and write one shard per model."""
    running = running_in(folder)
    plan = ready(folder, running)
    found = predict(plan, shots(plan, task.unit), batch, running.tick, task.models)
    for name, predictions in found.items():
        if keep_features:
            write_bytes(_to_safetensors(predictions), shards.features(folder, task.unit, name))
        _keep(predictions.rows, running.run_id, shards.shard(folder, task.unit, name))


def probe(folder: Path, task: Task, *, batch: int, tolerance: float) -> None:
    """Bisect the failure severities of a slice along one dial, and write the probes' rows, one shard
    per model.
    """
    running = running_in(folder)
    plan = ready(folder, running)
    starts = [*plan.clean_units(task.unit), replace(task.unit, probe=False)]
    paths = [shards.shard(folder, start, name) for start in starts for name in task.models]
    grid = pl.concat([shards.read_shard(path) for path in paths], how="diagonal")
    for name, rows in refine(plan, task.unit, grid, tolerance, batch, task.models).items():
        found = pl.concat(rows) if rows else pl.DataFrame(schema=SCHEMA)
        _keep(found, running.run_id, shards.shard(folder, task.unit, name))


def _keep(rows: pl.DataFrame, run_id: str, path: Path) -> None:
    write(rows.with_columns(run_id=pl.lit(run_id)).select(SCHEMA.names()), path)


def _to_safetensors(found: Predictions) -> bytes:
    """Pack logits and features as safetensors, one row per image, with the image ids in its metadata."""
    from safetensors.numpy import save

    given = {"features": found.outputs.features, "logits": found.outputs.logits}
    tensors = {part: array for part, array in given.items() if array is not None}
    return save(tensors, metadata={"image_id": json.dumps(found.image_ids)})
