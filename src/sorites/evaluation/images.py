"""Make the images of a plan, one sample at a time: an image, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sorites.core import CLEAN, ImageF32, ImageU8, Sample, Setting, SettingValue, Shift
from sorites.core.errors import SoritesError, as_utf8, exit_message
from sorites.core.rng import rng_for
from sorites.core.samples import read_only, to_float, to_uint8
from sorites.core.types import Draw
from sorites.evaluation.engines.interrupts import stop_if_requested
from sorites.evaluation.plan import Plan, Unit
from sorites.evaluation.samples import GroundTruth, framed_sample, laid_frame


@dataclass(frozen=True)
class Shot:
    """An image to evaluate: its sample, shift and setting, and its pixels or an error."""

    sample: Sample
    shift: str
    setting: Setting
    image: ImageU8 | None = None
    error: str | None = None
    probe: bool = False
    chosen_params: Mapping[str, Any] = field(default_factory=dict)
    """Params that the shift chose for this image; stored with its params, but not part of the request."""
    ground_truth: GroundTruth = None
    """Ground-truth boxes in pixels of the image."""


def shots(plan: Plan, unit: Unit) -> Iterator[Shot]:
    """Yield the images of a slice of one shift."""
    for sample in plan.groups[unit.shift][unit.start : unit.stop]:
        stop_if_requested()
        if unit.shift in plan.shifts:
            yield from shifted_shots(plan, sample, unit.shift, plan.settings[unit.shift])
        else:
            yield captured_shot(plan, sample)


def captured_shot(plan: Plan, sample: Sample, whole: bool = False) -> Shot:
    """Return an image as the source has it, framed; with ``whole`` without the frame of the suite."""
    shot = Shot(sample, sample.shift, sample.setting, ground_truth=_ground_truth_in_file(plan, sample))
    try:
        if whole:
            return replace(shot, image=read_only(sample.load()), ground_truth=sample.ground_truth)
        if sample.shift == CLEAN:
            return replace(
                shot, image=plan.framed(sample.id), ground_truth=plan.framed.ground_truth(sample.id)
            )
        image, ground_truth = framed_sample(plan.suite, sample)
        return replace(shot, image=image, ground_truth=ground_truth)
    except (Exception, SystemExit) as error:
        return replace(shot, error=reason(error, "reading the image"))


def shifted_shots(
    plan: Plan,
    sample: Sample,
    name: str,
    settings: Sequence[SettingValue],
    probe: bool = False,
    whole: bool = False,
) -> Iterator[Shot]:
    """Yield the images of one sample under one shift.

    A failure becomes the error of every image that it prevents. With ``whole``, images of a sample's own dial
    are not framed; other shifts are applied to framed images, and have no whole ones.
    """
    shift = plan.shifts[name]
    left = _planned_of(plan, sample, name, settings, probe)
    try:
        boxes = iter(_boxes_after(plan, sample, shift, settings))
        images = (
            _dial_images(plan, sample, shift, settings, whole)
            if name in plan.own
            else _shifted_images(plan, sample, shift, settings)
        )
        for image, chosen in images:
            stop_if_requested()
            yield replace(left.pop(0), image=image, chosen_params=dict(chosen), ground_truth=next(boxes))
    except (Exception, SystemExit) as error:
        yield from (replace(shot, error=reason(error, name)) for shot in left)


def planned_shots(plan: Plan, unit: Unit) -> list[Shot]:
    """Return the images of a slice without pixels, in the order in which ``shots`` yields them."""
    samples = plan.groups[unit.shift][unit.start : unit.stop]
    if unit.shift not in plan.shifts:
        return [Shot(sample, sample.shift, sample.setting) for sample in samples]
    settings = plan.settings[unit.shift]
    return [shot for sample in samples for shot in _planned_of(plan, sample, unit.shift, settings)]


def planned_probes(plan: Plan, sample: Sample, name: str, severities: Sequence[float]) -> list[Shot]:
    """Return the images of one sample between the settings of a shift, without pixels."""
    return _planned_of(plan, sample, name, severities, probe=True)


def _planned_of(
    plan: Plan, sample: Sample, name: str, settings: Sequence[SettingValue], probe: bool = False
) -> list[Shot]:
    boxes_in_file = _ground_truth_in_file(plan, sample)
    planned = (
        plan.planned_settings(name)
        if settings is plan.settings.get(name)
        else [plan.shifts[name].setting(setting) for setting in settings]
    )
    return [Shot(sample, name, setting, probe=probe, ground_truth=boxes_in_file) for setting in planned]


def _draws(plan: Plan, sample: Sample) -> Draw:
    """Return the random generators of a sample by name of a shift; they ignore the severity."""
    return lambda name: rng_for(plan.suite.seed, sample.id, name)


def _boxes_after(
    plan: Plan, sample: Sample, shift: Shift, settings: Sequence[SettingValue]
) -> list[GroundTruth]:
    """Return the ground-truth boxes at each setting, moved as the shift moves objects."""
    boxes = plan.framed.ground_truth(sample.id)
    if not boxes or not shift.moves_objects:
        return [boxes] * len(settings)
    height, width = plan.framed(sample.id).shape[:2]
    draw = _draws(plan, sample)
    return [shift.boxes_after(boxes, setting, draw, (height, width)) for setting in settings]


def _shifted_images(
    plan: Plan, sample: Sample, shift: Shift, settings: Sequence[SettingValue]
) -> Iterator[tuple[ImageU8, Mapping[str, Any]]]:
    """Yield the images that a shift makes of the framed clean image, with the params that it chose."""
    image, draw = to_float(plan.framed(sample.id)), _draws(plan, sample)
    for setting, (moved, chosen) in zip(settings, shift.sweep_drawn(image, settings, draw), strict=True):
        yield _to_uint8(moved, shift.name, setting), chosen


def has_whole_images(plan: Plan, shift: str) -> bool:
    """Return whether images of a shift exist without the suite's frame: captured ones, and those of dials."""
    return shift not in plan.shifts or shift in plan.own


def _dial_images(
    plan: Plan, sample: Sample, shift: Shift, settings: Sequence[SettingValue], whole: bool = False
) -> Iterator[tuple[ImageU8, Mapping[str, Any]]]:
    """Yield the images of a sample's own dial, framed like a decoded file unless they are to be whole."""
    dial, frame = sample.dial(shift.name), None if whole else laid_frame(plan.suite, sample)
    if dial is None:
        raise SoritesError(f"{sample.id} has no dial {shift.name}")
    images = iter(
        dial.sweep([float(setting) for setting in settings if isinstance(setting, int | float) and setting])
    )
    for setting in settings:
        if setting == 0:
            yield read_only(sample.load()) if whole else plan.framed(sample.id), {}
            continue
        image = next(images, None)
        if not (
            isinstance(image, np.ndarray)
            and image.dtype.kind == "f"
            and image.ndim == 3
            and image.shape[2] == 3
        ):
            actual = (
                "none"
                if image is None
                else f"{getattr(image, 'dtype', type(image).__name__)} {np.shape(image)}"
            )
            raise SoritesError(
                f"{shift.name}: expected an image at {setting}, H x W x 3 floats from 0 to 1, got {actual}"
            )
        image_u8 = _to_uint8(image, shift.name, setting)
        yield image_u8 if frame is None else read_only(frame(image_u8)), {}


def _to_uint8(image: ImageF32, name: str, setting: SettingValue) -> ImageU8:
    low, high = (float(bound(image)) for bound in (np.min, np.max))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise SoritesError(f"{name} returned pixels that are not finite at {setting}")
    return read_only(to_uint8(image, in_range=low >= 0 and high <= 1))


def _ground_truth_in_file(plan: Plan, sample: Sample) -> GroundTruth:
    """Return the ground-truth boxes for an image that may be unreadable; unknown if a frame would move
    them.
    """
    return sample.ground_truth if laid_frame(plan.suite, sample) is None else None


def reason(error: Exception | SystemExit, doing: str) -> str:
    """Return an error as text for the table, in UTF-8; errors that are not ours get their class and what was
    being done.
    """
    if isinstance(error, SystemExit):
        return f"{doing}: {exit_message(error)}"
    return as_utf8(
        str(error) if isinstance(error, SoritesError) else f"{doing}: {type(error).__name__}: {error}"
    )


@dataclass
class LeftOut:
    """Counts unreadable images and keeps the reason of the first."""

    kind: str = "images"
    count: int = 0
    first: str = ""

    def add(self, what: str, why: str) -> None:
        """Count one image."""
        self.count += 1
        self.first = self.first or f"{what}: {why}"

    def join(self, count: int, first: str) -> None:
        """Add the count of another process."""
        self.count += count
        self.first = self.first or first

    def say(self) -> str:
        """Return one sentence about them; empty if there are none."""
        return (
            f"{self.count} {self.kind} could not be read and are left out; the first, {self.first}"
            if self.count
            else ""
        )


def readable(samples: Iterable[Sample], left: LeftOut) -> Iterator[tuple[Sample, ImageU8]]:
    """Yield the samples that can be read with their images; count the others in ``left``."""
    for sample in samples:
        try:
            image = sample.load()
        except (Exception, SystemExit) as error:
            left.add(sample.id, reason(error, "reading the image"))
            continue
        yield sample, image
