"""Cut tasks into jobs for producers, and make the images of a job.

A job contains all tasks of one range of samples, so that each image is decoded and framed once. It carries
its samples, so that a producer neither lists the source nor reads the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from numpy.typing import NDArray

from sorites.core import CLEAN, ImageU8, Sample, SettingValue, Shift
from sorites.core.labels import Labels
from sorites.core.packed import as_packed
from sorites.evaluation.engines.interrupts import stop_if_requested
from sorites.evaluation.fit import training_shot
from sorites.evaluation.images import Shot, captured_shot, reason, shifted_shots
from sorites.evaluation.plan import MAX_FRAMED_BYTES, Plan, own_dials, shift_of
from sorites.evaluation.samples import CleanImages, GroundTruth
from sorites.suites.suite import Suite

# Turns an image into the input of a model, given whether it is framed.
Prepare = Callable[[ImageU8, bool], NDArray[Any]]


@dataclass(frozen=True)
class Part:
    """The images of one task.

    Attributes:
        task: The number of the task.
        shift: The shift; None for images that scorers are fitted on.
        samples: The samples of its slice.
        inputs: The inputs of the models that have not evaluated it, as indices into ``Workshop.inputs``.
        severities: The severities of each sample, for probes between the settings of the shift.
    """

    task: int
    shift: str | None
    samples: tuple[Sample, ...]
    inputs: tuple[int, ...]
    severities: tuple[tuple[float, ...], ...] | None = None


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
        decoded: How often an image of the source was decoded for it; 0 if it was made of one that was there.
    """

    task: int
    index: int
    inputs: tuple[NDArray[Any] | str, ...] = ()
    error: str | None = None
    chosen_params: Mapping[str, Any] = field(default_factory=dict)
    ground_truth: GroundTruth = None
    decoded: int = 0


@dataclass(frozen=True)
class Workshop:
    """The part of a run that producers need to make images; it contains no model and can be pickled.

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
        before = 0
        for part in job.parts:
            for index, shot in enumerate(_shots(plan, part)):
                made = self._prepared(part, index, shot, plan.is_framed(shot.sample))
                # Images that are not clean are decoded one by one.
                alone = part.shift is None or shot.sample.shift != CLEAN
                yield replace(made, decoded=plan.framed.decoded - before + alone)
                before = plan.framed.decoded

    def _prepared(self, part: Part, index: int, shot: Shot, framed: bool) -> Made:
        inputs: list[NDArray[Any] | str] = []
        image = shot.image
        for number in part.inputs if image is not None else ():
            try:
                assert image is not None
                inputs.append(self.inputs[number](image, framed))
            except (Exception, SystemExit) as error:  # preprocessing of users may raise anything
                inputs.append(reason(error, "preparing the image"))
        return Made(part.task, index, tuple(inputs), shot.error, shot.chosen_params, shot.ground_truth)

    def _plan(self, job: Job) -> Plan:
        """Return a plan that contains only the samples of a job, and no models."""
        shifted = [part for part in job.parts if part.shift is not None]
        samples = {sample.id: sample for part in shifted for sample in part.samples if sample.shift == CLEAN}
        clean = as_packed(list(samples.values()))
        dials = own_dials(clean)
        own = {name: dials[name] for name in self.own if name in dials}
        return Plan(
            suite=self.suite,
            source=self.source,
            labels=Labels((), ()),
            models={},
            groups={CLEAN: clean},
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


def _shots(plan: Plan, part: Part) -> Iterator[Shot]:
    """Yield the images of a part."""
    for index, sample in enumerate(part.samples):
        stop_if_requested()
        if part.shift is None:
            yield training_shot(plan.suite, sample)
        elif part.severities is not None:
            yield from shifted_shots(plan, sample, part.shift, part.severities[index], probe=True)
        elif part.shift in plan.shifts:
            yield from shifted_shots(plan, sample, part.shift, plan.settings[part.shift])
        else:
            yield captured_shot(plan, sample)


def cut(parts: Iterable[tuple[int, Part]]) -> Iterator[Job]:
    """Cut parts into jobs, in their order.

    Args:
        parts: The start of the range of samples of each part, and the part; all parts of a range in a row, as
            ``Plan.units`` returns them.
    """
    for number, (_, rows) in enumerate(groupby(parts, key=lambda row: row[0])):
        yield Job(number, tuple(part for _, part in rows))
