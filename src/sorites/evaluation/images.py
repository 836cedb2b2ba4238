"""The images of a unit, made one sample at a time: an image, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sorites import core
from sorites.core import CLEAN, ImageF32, ImageU8, Sample, Setting, SettingValue, Shift
from sorites.core.errors import SoritesError, as_utf8, left_by_exit
from sorites.core.rng import rng_for
from sorites.evaluation.engines.interrupts import leave_if_asked
from sorites.evaluation.plan import Plan, Unit
from sorites.evaluation.samples import GroundTruth, framed_sample, laid_frame


@dataclass(frozen=True)
class Shot:
    """One image: its sample, shift and setting, and its image or the reason why there is none."""

    sample: Sample
    shift: str
    setting: Setting
    image: ImageU8 | None = None
    error: str | None = None
    probe: bool = False
    chosen_params: Mapping[str, Any] = field(default_factory=dict)
    """The params that the shift chose for this image; they are kept with its params but were not
    asked for.
    """
    ground_truth: GroundTruth = None
    """The ground-truth boxes in pixels of the image."""


def shots(plan: Plan, unit: Unit) -> Iterator[Shot]:
    """Yield the images of a grid unit."""
    for sample in plan.groups[unit.shift][unit.start : unit.stop]:
        leave_if_asked()
        if unit.shift in plan.shifts:
            yield from turned(plan, sample, unit.shift, plan.settings[unit.shift])
        else:
            yield captured(plan, sample)


def captured(plan: Plan, sample: Sample) -> Shot:
    """Return the image as the source has it, framed."""
    shot = Shot(sample, sample.shift, sample.setting, ground_truth=_ground_truth_in_file(plan, sample))
    try:
        if sample.shift == CLEAN:
            return replace(
                shot, image=plan.framed(sample.id), ground_truth=plan.framed.ground_truth(sample.id)
            )
        image, ground_truth = framed_sample(plan.suite, sample)
        return replace(shot, image=image, ground_truth=ground_truth)
    except (Exception, SystemExit) as error:
        return replace(shot, error=reason(error, "reading the image"))


def turned(
    plan: Plan, sample: Sample, name: str, settings: Sequence[SettingValue], probe: bool = False
) -> Iterator[Shot]:
    """Yield the images of one sample under one shift.

    A failure becomes the error of every image that it prevents.
    """
    shift = plan.shifts[name]
    known = _ground_truth_in_file(plan, sample)
    left = [
        Shot(sample, name, shift.setting(setting), probe=probe, ground_truth=known) for setting in settings
    ]
    try:
        if sample.ground_truth and shift.moves_objects:
            raise SoritesError(
                f"{name} moves objects, and ground-truth boxes cannot follow it: leave it out, or the boxes"
            )
        for image, chosen in (_given if name in plan.own else _made)(plan, sample, shift, settings):
            leave_if_asked()
            shot = replace(
                left.pop(0),
                image=image,
                chosen_params=dict(chosen),
                ground_truth=plan.framed.ground_truth(sample.id),
            )
            yield shot
    except (Exception, SystemExit) as error:
        yield from (replace(shot, error=reason(error, name)) for shot in left)


def _made(
    plan: Plan, sample: Sample, shift: Shift, settings: Sequence[SettingValue]
) -> Iterator[tuple[ImageU8, Mapping[str, Any]]]:
    """Yield the images that a shift makes of the framed clean one, each with the params that it chose."""
    image, rng = core.to_float(plan.framed(sample.id)), rng_for(plan.suite.seed, sample.id, shift.name)
    for setting, (moved, chosen) in zip(
        settings, shift.sweep_with_chosen_params(image, settings, rng), strict=True
    ):
        yield _rounded(moved, shift.name, setting), chosen


def _given(
    plan: Plan, sample: Sample, shift: Shift, settings: Sequence[SettingValue]
) -> Iterator[tuple[ImageU8, Mapping[str, Any]]]:
    """Yield the images of a dial of the sample's own: each stands where a decoded file would, and
    is framed as one.
    """
    dial, frame = sample.dial(shift.name), laid_frame(plan.suite, sample)
    if dial is None:
        raise SoritesError(f"{sample.id} has no dial {shift.name}")
    images = iter(
        dial.sweep([float(setting) for setting in settings if isinstance(setting, int | float) and setting])
    )
    for setting in settings:
        if setting == 0:
            yield plan.framed(sample.id), {}
            continue
        image = next(images, None)
        if not (
            isinstance(image, np.ndarray)
            and image.dtype.kind == "f"
            and image.ndim == 3
            and image.shape[2] == 3
        ):
            came = (
                "none"
                if image is None
                else f"{getattr(image, 'dtype', type(image).__name__)} {np.shape(image)}"
            )
            raise SoritesError(
                f"{shift.name}: wanted an image at {setting}, H x W x 3 floats from 0 to 1, got {came}"
            )
        image_u8 = _rounded(image, shift.name, setting)
        yield image_u8 if frame is None else core.read_only(frame(image_u8)), {}


def _rounded(image: ImageF32, name: str, setting: SettingValue) -> ImageU8:
    if not np.isfinite(image.sum()):
        raise SoritesError(f"{name} gave pixels that are not finite at {setting}")
    return core.read_only(core.to_uint8(image))


def _ground_truth_in_file(plan: Plan, sample: Sample) -> GroundTruth:
    """Return the ground-truth boxes of an image that may not be readable: where a frame would move them,
    nothing is known of them.
    """
    return sample.ground_truth if laid_frame(plan.suite, sample) is None else None


def reason(error: Exception | SystemExit, doing: str) -> str:
    """Return an error as a row keeps it, in UTF-8: our own in their words, others with their kind
    and what was being done.
    """
    if isinstance(error, SystemExit):
        return f"{doing}: {left_by_exit(error)}"
    return as_utf8(
        str(error) if isinstance(error, SoritesError) else f"{doing}: {type(error).__name__}: {error}"
    )


# Images that cannot be read and are therefore left out: counted, with the reason of the first, so that
# it can be said.


@dataclass
class LeftOut:
    """The number of images of a kind that were left out, and why the first was."""

    kind: str = "images"
    count: int = 0
    first: str = ""

    def add(self, what: str, why: str) -> None:
        """Count one more."""
        self.count += 1
        self.first = self.first or f"{what}: {why}"

    def join(self, count: int, first: str) -> None:
        """Count those that were left out elsewhere as well."""
        self.count += count
        self.first = self.first or first

    def say(self) -> str:
        """Return one sentence about them; empty where there are none."""
        return (
            f"{self.count} {self.kind} could not be read and are left out; the first, {self.first}"
            if self.count
            else ""
        )


def readable(samples: Iterable[Sample], left: LeftOut) -> Iterator[tuple[Sample, ImageU8]]:
    """Yield the samples that can be read with their images; the others are counted."""
    for sample in samples:
        try:
            image = sample.load()
        except (Exception, SystemExit) as error:
            left.add(sample.id, reason(error, "reading the image"))
            continue
        yield sample, image
