"""Cut tasks into jobs for producers, and make the images of a job.

A job contains all tasks of one range of samples, so that each image is decoded and framed once. It carries
its samples, so that a producer neither lists the source nor reads the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from numpy.typing import NDArray

from sorites.core import CLEAN, ImageU8, Sample, SettingValue, Shift
from sorites.core.labels import Labels
from sorites.core.packed import as_packed
from sorites.evaluation.images import Shot, reason, shots
from sorites.evaluation.plan import MAX_FRAMED_BYTES, Plan, Unit, own_dials, shift_of
from sorites.evaluation.samples import CleanImages, GroundTruth
from sorites.evaluation.worker import Task
from sorites.suites.suite import Suite

# Turns an image into the input of a model, given whether it is framed.
Prepare = Callable[[ImageU8, bool], NDArray[Any]]


@dataclass(frozen=True)
class Part:
    """The images of one task.

    Attributes:
        task: The number of the task.
        shift: The shift.
        samples: The samples of its slice.
        inputs: The inputs of the models that have not evaluated it, as indices into ``Workshop.inputs``.
    """

    task: int
    shift: str
    samples: tuple[Sample, ...]
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class Job:
    """The tasks of one range of samples."""

    number: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Made:
    """One image of a task, or the reason why there is none.

    Attributes:
        task: The number of the task.
        index: The position among the images of the task.
        inputs: The image as each input of the task, or an error for those that could not be prepared.
        error: Why there is no image.
        chosen_params: The params that the shift chose.
        ground_truth: The ground-truth boxes in pixels of the framed image.
    """

    task: int
    index: int
    inputs: tuple[NDArray[Any] | str, ...] = ()
    error: str | None = None
    chosen_params: Mapping[str, Any] = field(default_factory=dict)
    ground_truth: GroundTruth = None


@dataclass(frozen=True)
class Workshop:
    """What a producer needs to make the images of any job of a run; it contains no model and can be pickled.

    Attributes:
        suite: The suite.
        source: The name of the first source.
        settings: The settings of each applied shift.
        own: The shifts that are dials of samples.
        inputs: The distinct inputs of the models.
    """

    suite: Suite
    source: str
    settings: Mapping[str, tuple[SettingValue, ...]]
    own: tuple[str, ...]
    inputs: tuple[Prepare, ...]

    @classmethod
    def of(cls, plan: Plan, inputs: Sequence[Prepare]) -> Workshop:
        """Return the workshop of a plan."""
        return cls(plan.suite, plan.source, plan.settings, tuple(plan.own), tuple(inputs))

    def make(self, job: Job) -> Iterator[Made]:
        """Make the images of a job, task by task; a failure becomes the error of every image it prevents."""
        plan = self._plan(job)
        for part in job.parts:
            for index, shot in enumerate(shots(plan, Unit(part.shift, 0, len(part.samples)))):
                yield self._prepared(plan, part, index, shot)

    def _prepared(self, plan: Plan, part: Part, index: int, shot: Shot) -> Made:
        inputs: list[NDArray[Any] | str] = []
        image, framed = shot.image, plan.is_framed(shot.sample)
        for number in part.inputs if image is not None else ():
            try:
                assert image is not None
                inputs.append(self.inputs[number](image, framed))
            except (Exception, SystemExit) as error:  # preprocessing of users may raise anything
                inputs.append(reason(error, "preparing the image"))
        return Made(part.task, index, tuple(inputs), shot.error, shot.chosen_params, shot.ground_truth)

    def _plan(self, job: Job) -> Plan:
        """Return a plan that contains only the samples of a job, and no models."""
        groups = {part.shift: as_packed(part.samples) for part in job.parts}
        samples = {id(sample): sample for part in job.parts for sample in part.samples}.values()
        clean = as_packed([sample for sample in samples if sample.shift == CLEAN])
        dials = own_dials(clean)
        own = {name: dials[name] for name in self.own if name in dials}
        return Plan(
            suite=self.suite,
            source=self.source,
            labels=Labels((), ()),
            models={},
            groups=groups,
            shifts=self.shifts() | {name: shift_of(dial) for name, dial in own.items()},
            settings=self.settings,
            columns={},
            scorers={},
            framed=CleanImages(self.suite, clean, MAX_FRAMED_BYTES),
            own=own,
        )

    def shifts(self) -> dict[str, Shift]:
        """Return the applied shifts that are plug-ins.

        Raises:
            SoritesError: One is not registered in this process.
        """
        applied = [dial for dial in self.suite.dials if dial.name in self.settings]
        return {dial.name: dial.shift() for dial in applied if dial.name not in self.own}


def distinct_inputs(plan: Plan) -> tuple[tuple[Prepare, ...], dict[str, int]]:
    """Return the distinct inputs of a plan's models, and the index of each model's input."""
    inputs: list[Prepare] = []
    places: dict[str, int] = {}
    for name, model in plan.models.items():
        if model.prepare not in inputs:
            inputs.append(model.prepare)
        places[name] = inputs.index(model.prepare)
    return tuple(inputs), places


def cut(plan: Plan, tasks: Sequence[Task], places: Mapping[str, int]) -> Iterator[Job]:
    """Cut tasks into jobs, in the order of the tasks.

    Args:
        plan: The plan.
        tasks: The tasks, with all shifts of a range of samples in a row, as ``Plan.units`` returns them.
        places: The index of each model's input.
    """
    numbered = enumerate(tasks)
    for number, (_, rows) in enumerate(groupby(numbered, key=lambda row: row[1].unit.start)):
        shared: dict[int, tuple[Sample, ...]] = {}
        parts = []
        for index, task in rows:
            group, unit = plan.groups[task.unit.shift], task.unit
            # Applied shifts share the clean group, whose samples are then built and pickled once.
            samples = shared.setdefault(id(group), tuple(group[unit.start : unit.stop]))
            inputs = tuple(sorted({places[name] for name in task.models}))
            parts.append(Part(index, unit.shift, samples, inputs))
        yield Job(number, tuple(parts))
