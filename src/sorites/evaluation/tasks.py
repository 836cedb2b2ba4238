"""Tasks of a run, and the refinement of failure severities by bisection.

On the grid, an image is classified correctly at one setting and misclassified at the next. Halving this
bracket until it is narrower than the tolerance costs one forward pass per halving and sample, the minimum for
a yes-or-no answer. The result is a crossing inside the first failing bracket; a sample that recovers and
fails again keeps its first bracket. With a detector, every detected object has its own bracket; an image made
for one object is judged for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from sorites.core import CLEAN
from sorites.core.table import SCHEMA
from sorites.evaluation.fit import ready
from sorites.evaluation.images import Shot, shifted_shots, shots
from sorites.evaluation.pipeline.run import Pipeline
from sorites.evaluation.pipeline.stages import Grid
from sorites.evaluation.plan import Plan, Unit
from sorites.evaluation.predict import Predictions, predict
from sorites.evaluation.storage import shards
from sorites.evaluation.storage.contents import contents
from sorites.evaluation.storage.tensors import arrays_of, write_tensors
from sorites.evaluation.worker import Running, Task
from sorites.metrics.detection.failure import found_objects

# Size, modification time and hash of the data of an image; null if unknown.
Hash = tuple[int | None, int | None, str | None]


@dataclass(frozen=True)
class Done:
    """Report of a task to the process that started the run.

    Attributes:
        shards: The names of the shards that it wrote.
        hashes: The hashes of the images of its slice, if it was asked for them.
    """

    shards: tuple[str, ...] = ()
    hashes: tuple[Hash, ...] = ()


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


@dataclass(eq=False)
class Refinement:
    """The bisection of the failure severities of one slice, round by round.

    Attributes:
        plan: The plan.
        unit: The slice.
        step: Brackets wider than this are halved.
        rows: The rows of the probes by model.
    """

    plan: Plan
    unit: Unit
    step: float
    rows: dict[str, list[pl.DataFrame]]
    _open: Brackets
    _evaluated: set[tuple[str, str, float]] = field(default_factory=set)
    _steps: Steps = field(default_factory=dict)

    @classmethod
    def of(
        cls, plan: Plan, unit: Unit, grid: pl.DataFrame, tolerance: float, models: Sequence[str]
    ) -> Refinement:
        """Start with the brackets of a grid; ``tolerance`` is a fraction of the top level."""
        step = tolerance * plan.shifts[unit.shift].top
        wide = {key: bracket for key, bracket in brackets(grid, unit.shift).items() if bracket.wider(step)}
        return cls(plan, unit, step, {name: [] for name in models}, wide)

    @property
    def is_done(self) -> bool:
        """True if no bracket is wider than the step."""
        return not self._open

    def wanted(self) -> dict[str, dict[str, list[float]]]:
        """Return the middles of the open brackets, by model and sample; each model sees only its own."""
        severities: dict[str, dict[str, set[float]]] = {}
        for key, bracket in self._open.items():
            severities.setdefault(key[0], {}).setdefault(key[1], set()).add(bracket.middle)
        return {
            model: {sample: sorted(values) for sample, values in by_sample.items()}
            for model, by_sample in severities.items()
        }

    def add(self, model: str, rows: pl.DataFrame) -> None:
        """Add the rows of a model in this round."""
        self.rows[model].append(rows)
        self._steps |= _steps(rows)

    def narrow(self) -> None:
        """End a round: narrow the brackets by what was added, and close those that are narrow enough."""
        steps, self._steps = self._steps, {}
        self._evaluated |= {(*key[:2], bracket.middle) for key, bracket in self._open.items()}
        for key, bracket in list(self._open.items()):
            results = dict(steps.get(key, ()))
            if results.get(bracket.middle) is None:
                del self._open[key]
                continue
            _narrow(bracket, results)
            if not bracket.wider(self.step) or (*key[:2], bracket.middle) in self._evaluated:
                del self._open[key]

    def joined(self) -> dict[str, pl.DataFrame]:
        """Return the rows of all rounds by model."""
        return {
            name: pl.concat(parts) if parts else pl.DataFrame(schema=SCHEMA)
            for name, parts in self.rows.items()
        }


def refine(
    plan: Plan, unit: Unit, grid: pl.DataFrame, tolerance: float, batch: int, models: Sequence[str]
) -> dict[str, pl.DataFrame]:
    """Return the probe rows of one slice of a shift, by model; ``tolerance`` is a fraction of the top
    level.
    """
    refinement = Refinement.of(plan, unit, grid, tolerance, models)
    while not refinement.is_done:
        for name, severities in refinement.wanted().items():
            shots = _middles(plan, unit, severities)
            refinement.add(name, predict(plan, shots, batch, models=[name])[name].rows)
        refinement.narrow()
    return refinement.joined()


def _narrow(bracket: Bracket, results: Mapping[float, bool | None]) -> None:
    """Narrow a bracket by the results inside it: its own, and those of images made for other objects."""
    for severity in sorted(results):
        if bracket.low < severity < bracket.high and results[severity] is not None:
            bracket.low, bracket.high = (
                (severity, bracket.high) if results[severity] else (bracket.low, severity)
            )


def _middles(plan: Plan, unit: Unit, severities: Mapping[str, Sequence[float]]) -> Iterator[Shot]:
    for sample in plan.groups[unit.shift][unit.start : unit.stop]:
        if sample.id in severities:
            yield from shifted_shots(plan, sample, unit.shift, severities[sample.id], probe=True)


# Tasks are top-level functions of a run and a task, so that threads, processes and clusters can run them.


def evaluate(
    run: Running, task: Task, *, batch: int, keep_features: bool = False, producers: int = 0
) -> Done:
    """Make the images of a slice, evaluate them with the task's models, and write the missing files.

    Args:
        run: The run.
        task: The task.
        batch: Images per forward pass.
        keep_features: Also write logits and features.
        producers: The number of processes that make the images; 0 makes and evaluates them in turns.

    Returns:
        What was written, and the hashes of the images, if the task asks for them.
    """
    plan, unit = ready(run), run.here(task.unit)
    if not producers:
        predicted = predict(plan, shots(plan, unit), batch, run.tick, task.models)
        return Done(write_predictions(run, task, predicted, keep_features), _hashes(run, task))
    names: list[str] = []

    def write(here: Task, predicted: Mapping[str, Predictions]) -> None:
        names.extend(write_predictions(run, task, predicted, keep_features))

    # Producers stay for the next tasks of this worker; to start them takes seconds.
    session = run.once(f"session {producers} {batch} {sorted(plan.own)}", Pipeline(producers, batch).session)
    for _ in session.run(Grid(plan, write), [replace(task, unit=unit)], run.tick):
        pass
    return Done(tuple(names), _hashes(run, task))


def hash_images(run: Running, task: Task) -> Done:
    """Hash the images of a slice."""
    return Done(hashes=_hashes(run, task))


def _hashes(run: Running, task: Task) -> tuple[Hash, ...]:
    """Return size, time and hash of the data of each image of a slice, if the task asks for them."""
    unit = run.here(task.unit)
    images = run.plan.groups[unit.shift][unit.start : unit.stop] if task.hashes else ()
    return tuple(contents(images).rows())


def write_predictions(
    run: Running, task: Task, predicted: Mapping[str, Predictions], keep_features: bool = False
) -> tuple[str, ...]:
    """Write the missing files of a task.

    Args:
        run: The run.
        task: The task.
        predicted: The predictions of its models.
        keep_features: Also write logits and features.

    Returns:
        The names of the shards.
    """
    folder = run.folder
    for name, predictions in predicted.items() if keep_features else ():
        about = {"image_id": predictions.image_ids}
        stem, arrays = shards.stem(task.unit, name), arrays_of(predictions.outputs)
        write_tensors(folder / shards.FEATURES, stem, arrays, **about)
    names = task.models if task.without_rows is None else task.without_rows
    rows = {name: predicted[name].rows for name in names}
    return shards.write_rows(folder, run.run_id, task.unit, rows, task.group or tuple(run.plan.models))


def probe(run: Running, task: Task, *, batch: int, tolerance: float) -> None:
    """Bisect the failure severities of a slice and write the rows of the probes."""
    plan = ready(run)
    rows = refine(plan, run.here(task.unit), grid_of(run, task), tolerance, batch, task.models)
    shards.write_rows(run.folder, run.run_id, task.unit, rows, task.group or tuple(plan.models))


def grid_of(run: Running, task: Task) -> pl.DataFrame:
    """Return the rows of the slices that a refinement starts from."""
    paths = run.rows or refined_files(run.plan, task, run.once("predictions", lambda _: present_in(run)))
    return shards.read_rows(paths, task.models)


def present_in(run: Running) -> shards.Predictions:
    """Return the shards of a run."""
    return shards.Predictions(run.folder, run.plan.models)


def refined_files(plan: Plan, task: Task, present: shards.Predictions) -> tuple[Path, ...]:
    """Return the files with the rows that a probe refines: of its slice, and of the clean images.

    Raises:
        MissingFile: The slice was not evaluated.
    """
    starts = [*plan.clean_units(task.unit), replace(task.unit, probe=False)]
    return tuple(dict.fromkeys(path for start in starts for path in present.paths(start, task.models)))
