"""Tasks of a run, and the refinement of failure severities by bisection.

On the grid, an image is classified correctly at one setting and misclassified at the next. Halving this
bracket until it is narrower than the tolerance costs one forward pass per halving and sample, the minimum for
a yes-or-no answer. The result is a crossing inside the first failing bracket; a sample that recovers and
fails again keeps its first bracket. With a detector, every detected object has its own bracket; an image made
for one object is judged for all.
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
from sorites.evaluation.images import Shot, shifted_shots, shots
from sorites.evaluation.plan import Plan, Unit
from sorites.evaluation.predict import Predictions, predict
from sorites.evaluation.storage import shards
from sorites.evaluation.worker import Task, running_in
from sorites.io.files import write_bytes
from sorites.metrics.detection.failure import found_objects


@dataclass
class Bracket:
    """Correct at ``low``, misclassified at ``high``."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    def wider(self, step: float) -> bool:
        """Return whether the bracket should be halved again.

        The margin absorbs rounding in the settings; the second condition stops at the resolution of floats.
        """
        return self.high - self.low > step * (1 + 1e-9) and self.low < self.middle < self.high


# Model and sample, and the object if boxes are judged.
Key = tuple[str, str] | tuple[str, str, int]

Brackets = dict[Key, Bracket]
# Severities in increasing order, with whether the prediction is correct.
Steps = dict[Key, list[tuple[float, bool | None]]]


def brackets(grid: pl.DataFrame, shift: str) -> Brackets:
    """Return the first failing bracket of each sample that has one; samples with a missing result below it
    are skipped.
    """
    rows = grid.filter(pl.col("shift").is_in([CLEAN, shift]), ~pl.col("probe"))
    failing: Brackets = {}
    for key, steps in _steps(rows).items():
        low = None
        for severity, correct in steps:
            if correct and (low is not None or severity == 0):
                low = severity
                continue
            if correct is False and low is not None:
                failing[key] = Bracket(low, severity)
            break
    return failing


def _steps(rows: pl.DataFrame) -> Steps:
    """Return the results of each sample for label rows, and of each object for rows of boxes."""
    steps: Steps = {}
    labels = rows.filter(pl.col("output") == "label").sort("severity")
    for model, sample, severity, correct in labels.select(
        "model", "sample_id", "severity", "correct"
    ).iter_rows():
        steps.setdefault((model, sample), []).append((severity, correct))
    boxes = rows.filter(pl.col("output") == "boxes").sort("severity")
    if boxes.is_empty():
        return steps
    verdicts = {
        (row, obj): hit
        for row, obj, hit in found_objects(boxes).select("row", "object", "correct").iter_rows()
    }
    most = pl.col("ground_truth").list.len().max().over("model", "sample_id").fill_null(0)
    rows_ = boxes.select("model", "sample_id", "severity", most).with_row_index()
    for row, model, sample, severity, objects in rows_.iter_rows():
        for obj in range(objects):
            steps.setdefault((model, sample, obj), []).append((severity, verdicts.get((row, obj))))
    return steps


def refine(
    plan: Plan, unit: Unit, grid: pl.DataFrame, tolerance: float, batch: int, models: Sequence[str]
) -> dict[str, list[pl.DataFrame]]:
    """Return the probe rows of one slice of a shift, by model; ``tolerance`` is a fraction of the top
    level.
    """
    step = tolerance * plan.shifts[unit.shift].top
    open_: Brackets = {
        key: bracket for key, bracket in brackets(grid, unit.shift).items() if bracket.wider(step)
    }
    rows: dict[str, list[pl.DataFrame]] = {name: [] for name in models}
    evaluated: set[tuple[str, str, float]] = set()
    while open_:
        steps = _round(plan, unit, open_, batch, rows)
        evaluated |= {(*key[:2], bracket.middle) for key, bracket in open_.items()}
        for key, bracket in list(open_.items()):
            results = dict(steps.get(key, ()))
            if results.get(bracket.middle) is None:
                del open_[key]
                continue
            _narrow(bracket, results)
            if not bracket.wider(step) or (*key[:2], bracket.middle) in evaluated:
                del open_[key]
    return rows


def _narrow(bracket: Bracket, results: Mapping[float, bool | None]) -> None:
    """Narrow a bracket by the results inside it: its own, and those of images made for other objects."""
    for severity in sorted(results):
        if bracket.low < severity < bracket.high and results[severity] is not None:
            bracket.low, bracket.high = (
                (severity, bracket.high) if results[severity] else (bracket.low, severity)
            )


def _round(plan: Plan, unit: Unit, open_: Brackets, batch: int, rows: dict[str, list[pl.DataFrame]]) -> Steps:
    """Evaluate the middle of every open bracket, batched over samples; each model sees only its own."""
    steps: Steps = {}
    for name in rows:
        severities: dict[str, set[float]] = {}
        for key, bracket in open_.items():
            if key[0] == name:
                severities.setdefault(key[1], set()).add(bracket.middle)
        predicted = predict(plan, _middles(plan, unit, severities), batch, models=[name])[name].rows
        rows[name].append(predicted)
        steps |= _steps(predicted)
    return steps


def _middles(plan: Plan, unit: Unit, severities: Mapping[str, set[float]]) -> Iterator[Shot]:
    for sample in plan.groups[unit.shift][unit.start : unit.stop]:
        if sample.id in severities:
            yield from shifted_shots(plan, sample, unit.shift, sorted(severities[sample.id]), probe=True)


# Tasks are top-level functions of the run folder and a task, so that threads, processes and clusters can run
# them. They get the plan from their process (``running_in``), which loads it once.


def evaluate(folder: Path, task: Task, *, batch: int, keep_features: bool = False) -> None:
    """Make the images of a slice, evaluate them with the task's models, and write one shard per model."""
    running = running_in(folder)
    plan = ready(folder, running)
    predicted = predict(plan, shots(plan, task.unit), batch, running.tick, task.models)
    for name, predictions in predicted.items():
        if keep_features:
            write_bytes(_to_safetensors(predictions), shards.features(folder, task.unit, name))
        _write_shard(predictions.rows, running.run_id, shards.shard(folder, task.unit, name))


def probe(folder: Path, task: Task, *, batch: int, tolerance: float) -> None:
    """Bisect the failure severities of a slice and write the rows of the probes, one shard per model."""
    running = running_in(folder)
    plan = ready(folder, running)
    starts = [*plan.clean_units(task.unit), replace(task.unit, probe=False)]
    paths = [shards.shard(folder, start, name) for start in starts for name in task.models]
    grid = pl.concat([shards.read_shard(path) for path in paths], how="diagonal")
    for name, rows in refine(plan, task.unit, grid, tolerance, batch, task.models).items():
        probe_rows = pl.concat(rows) if rows else pl.DataFrame(schema=SCHEMA)
        _write_shard(probe_rows, running.run_id, shards.shard(folder, task.unit, name))


def _write_shard(rows: pl.DataFrame, run_id: str, path: Path) -> None:
    write(rows.with_columns(run_id=pl.lit(run_id)).select(SCHEMA.names()), path)


def _to_safetensors(predictions: Predictions) -> bytes:
    """Return logits and features as safetensors, one row per image, with the image ids as metadata."""
    from safetensors.numpy import save

    parts = {"features": predictions.outputs.features, "logits": predictions.outputs.logits}
    tensors = {part: array for part, array in parts.items() if array is not None}
    return save(tensors, metadata={"image_id": json.dumps(predictions.image_ids)})
