"""Stages of a pipeline: the images of the grid, of scorers that are fitted, or of probes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sorites.core import Outputs, Sample, Scorer
from sorites.evaluation import fit
from sorites.evaluation.box_scores import Scored
from sorites.evaluation.images import Shot, planned_probes, planned_shots
from sorites.evaluation.pipeline.finish import Collected
from sorites.evaluation.pipeline.jobs import Part
from sorites.evaluation.plan import Plan
from sorites.evaluation.predict import (
    Predictions,
    SeenImages,
    Verdicts,
    score_looked,
    score_together,
)
from sorites.evaluation.worker import Task


class Stage(ABC):
    """Tasks of one kind.

    Args:
        plan: The plan, with fitted scorers if they are used.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @abstractmethod
    def part(self, number: int, task: Task, inputs: tuple[int, ...]) -> Part:
        """Return what a producer needs to make the images of a task.

        Args:
            number: The number of the task.
            task: The task.
            inputs: The inputs of its models, as indices into ``Workshop.inputs``.
        """

    @abstractmethod
    def shots(self, task: Task) -> list[Shot]:
        """Return the images of a task, without pixels, in the order in which they are made."""

    @abstractmethod
    def finish(self, task: Task, collected: Collected) -> None:
        """Use the answers to all images of a task."""

    def looking(self, model: str) -> Mapping[str, Scorer]:
        """Return the scorers of a model, of which some may look inside."""
        return self.plan.scorers_of(model)

    def width_of(self, model: str) -> int:
        """Return the number of logits of a model."""
        return self.plan.width_of(model)


Write = Callable[[Task, Mapping[str, Predictions]], None]


class Grid(Stage):
    """The images of all shifts at their settings.

    Args:
        plan: The plan.
        write: Writes the predictions of a task.
    """

    def __init__(self, plan: Plan, write: Write) -> None:
        super().__init__(plan)
        self._write = write

    def part(self, number: int, task: Task, inputs: tuple[int, ...]) -> Part:
        group, unit = self.plan.groups[task.unit.shift], task.unit
        return Part(number, unit.shift, tuple(group[unit.start : unit.stop]), inputs)

    def shots(self, task: Task) -> list[Shot]:
        return planned_shots(self.plan, task.unit)

    def finish(self, task: Task, collected: Collected) -> None:
        self._write(task, predictions(self.plan, collected))


class Training(Stage):
    """The images that scorers are fitted on, or that a search of parameters is judged by.

    Args:
        plan: The plan.
        folder: The run folder.
        kind: The kind of slice.
    """

    def __init__(self, plan: Plan, folder: Path, kind: str) -> None:
        super().__init__(plan)
        self._folder, self._kind = folder, kind

    def part(self, number: int, task: Task, inputs: tuple[int, ...]) -> Part:
        samples = fit.samples_of(self.plan, task.unit.shift)[task.unit.start : task.unit.stop]
        return Part(number, None, tuple(samples), inputs)

    def shots(self, task: Task) -> list[Shot]:
        samples = fit.samples_of(self.plan, task.unit.shift)[task.unit.start : task.unit.stop]
        return [fit.planned_training_shot(sample) for sample in samples]

    def looking(self, model: str) -> Mapping[str, Scorer]:
        return fit.looking(self.plan, self._kind)

    def finish(self, task: Task, collected: Collected) -> None:
        answers = {name: collected.answers(name) for name in task.models}
        fit.store(
            self._folder,
            self.plan,
            task,
            collected.shots,
            {name: answered for name, (answered, _) in answers.items()},
            {name: looks for name, (_, looks) in answers.items()},
        )


# By task, the severities of each sample.
Severities = Mapping[Task, Mapping[str, Sequence[float]]]


class Probes(Stage):
    """Images between the settings of shifts.

    Args:
        plan: The plan.
        severities: What to evaluate.
    """

    def __init__(self, plan: Plan, severities: Severities) -> None:
        super().__init__(plan)
        self._severities = severities
        self.rows: dict[Task, Mapping[str, Predictions]] = {}

    def part(self, number: int, task: Task, inputs: tuple[int, ...]) -> Part:
        chosen = self._chosen(task)
        severities = tuple(tuple(values) for _, values in chosen)
        return Part(number, task.unit.shift, tuple(sample for sample, _ in chosen), inputs, severities)

    def shots(self, task: Task) -> list[Shot]:
        return [
            shot
            for sample, values in self._chosen(task)
            for shot in planned_probes(self.plan, sample, task.unit.shift, values)
        ]

    def _chosen(self, task: Task) -> list[tuple[Sample, Sequence[float]]]:
        severities = self._severities[task]
        group = self.plan.groups[task.unit.shift][task.unit.start : task.unit.stop]
        return [(sample, severities[sample.id]) for sample in group if sample.id in severities]

    def finish(self, task: Task, collected: Collected) -> None:
        self.rows[task] = predictions(self.plan, collected)


def predictions(plan: Plan, collected: Collected) -> dict[str, Predictions]:
    """Return the rows of a complete task by model."""
    seen = SeenImages(plan)
    ids = seen.add(collected.shots)
    rows = seen.rows()
    return {name: _verdicts(plan, collected, name, ids).predictions(rows) for name in collected.models}


def _verdicts(plan: Plan, collected: Collected, name: str, ids: Sequence[str]) -> Verdicts:
    verdicts = Verdicts(plan, plan.models[name])
    answers, looks = collected.answers(name)

    def score(name: str, scorer: Scorer, outputs: Outputs) -> list[Scored]:
        if scorer.looks:
            return score_looked(name, scorer, outputs, looks.get(name, []))
        return score_together(name, scorer, outputs)

    verdicts.add(collected.shots, ids, answers, score)
    return verdicts
