"""The three parts of a run as pipelines: fit scorers, evaluate the grid, refine failure severities."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

from sorites.evaluation import fit
from sorites.evaluation import tasks as work
from sorites.evaluation.pipeline.run import Session, Tick
from sorites.evaluation.pipeline.stages import Grid, Probes, Training
from sorites.evaluation.predict import Predictions
from sorites.evaluation.storage import shards
from sorites.evaluation.worker import Running, Task

# Slices that are refined at the same time, so that the probes of a round fill batches.
SLICES_AT_A_TIME = 64


def collect(session: Session, run: Running, tasks: Sequence[Task], tick: Tick) -> None:
    """Show training and validation images to models, and store the outputs."""
    for kind, slices in groupby(tasks, key=lambda task: task.unit.shift):
        for _ in session.run(Training(run.plan, run.folder, kind), list(slices), tick):
            pass


def evaluate(
    session: Session,
    run: Running,
    tasks: Sequence[Task],
    tick: Tick,
    keep_features: bool,
    written: Callable[[Iterable[str]], None],
) -> None:
    """Evaluate the images of all shifts at their settings, and write their rows.

    Args:
        session: The pipeline.
        run: The run.
        tasks: The slices.
        tick: Called with the number of images that were evaluated by a model.
        keep_features: Also write logits and features.
        written: Called with the names of the shards of each slice.
    """

    def write(task: Task, predicted: Mapping[str, Predictions]) -> None:
        written(work.write_predictions(run, task, predicted, keep_features))

    for _ in session.run(Grid(fit.ready(run), write), tasks, tick):
        pass


def refine(
    session: Session, run: Running, tasks: Sequence[Task], tolerance: float, done: Callable[[int], None]
) -> None:
    """Bisect failure severities, many slices in each round, and write the rows of a slice when it is done.

    Args:
        session: The pipeline.
        run: The run.
        tasks: The slices.
        tolerance: Brackets are halved to this fraction of the top level.
        done: Called with the number of slices that were written.
    """
    plan, waiting = fit.ready(run), deque(tasks)
    open_: dict[Task, work.Refinement] = {}
    while waiting or open_:
        while waiting and len(open_) < SLICES_AT_A_TIME:
            task = waiting.popleft()
            grid = work.grid_of(run, task)
            open_[task] = work.Refinement.of(plan, task.unit, grid, tolerance, task.models)
        _round(session, list(open_.values()))
        for task in [task for task, refinement in open_.items() if refinement.is_done]:
            rows, group = open_.pop(task).joined(), task.group or tuple(plan.models)
            shards.write_rows(run.folder, run.run_id, task.unit, rows, group)
            done(1)


def _round(session: Session, refinements: Sequence[work.Refinement]) -> None:
    """Evaluate the middle of every open bracket."""
    severities, owners = {}, {}
    for refinement in refinements:
        for model, by_sample in refinement.wanted().items():
            task = Task(refinement.unit, (model,))
            severities[task], owners[task] = by_sample, refinement
    if not severities:
        return
    probes = Probes(refinements[0].plan, severities)
    for _ in session.run(probes, list(severities)):
        pass
    for task, predicted in probes.rows.items():
        (model,) = task.models
        owners[task].add(model, predicted[model].rows)
    for refinement in refinements:
        refinement.narrow()
