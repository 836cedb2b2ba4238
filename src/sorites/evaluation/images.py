"""The images of a unit, made one sample at a time: a picture, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sorites import core
from sorites.core import CLEAN, Image, Picture, Sample, Setting, Shift, Stop
from sorites.core.errors import SoritesError, as_utf8, left_by_exit
from sorites.core.rng import rng_for
from sorites.evaluation.engines.interrupts import leave_if_asked
from sorites.evaluation.plan import Plan, Unit
from sorites.evaluation.samples import Truth, framed_sample, laid_frame


@dataclass(frozen=True)
class Shot:
    """One image: its sample, shift and setting, and its picture or the reason why there is none."""

    sample: Sample
    shift: str
    setting: Setting
    picture: Picture | None = None
    error: str | None = None
    probe: bool = False
    chosen_params: Mapping[str, Any] = field(default_factory=dict)
    """The params that the shift chose for this image; they are kept with its params but were not
    asked for.
    """
    truth: Truth = None
    """The true boxes in pixels of the picture."""


def shots(plan: Plan, unit: Unit) -> Iterator[Shot]:
    """Yield the images of a grid unit."""
    for sample in plan.groups[unit.shift][unit.start : unit.stop]:
        leave_if_asked()
        if unit.shift in plan.shifts:
            yield from turned(plan, sample, unit.shift, plan.stops[unit.shift])
        else:
            yield captured(plan, sample)


def captured(plan: Plan, sample: Sample) -> Shot:
    """Return the image as the source has it, framed."""
    shot = Shot(sample, sample.shift, sample.setting, truth=_truth_in_file(plan, sample))
    try:
        if sample.shift == CLEAN:
            return replace(shot, picture=plan.framed(sample.id), truth=plan.framed.truth(sample.id))
        picture, truth = framed_sample(plan.suite, sample)
        return replace(shot, picture=picture, truth=truth)
    except (Exception, SystemExit) as error:
        return replace(shot, error=reason(error, "reading the picture"))


def turned(
    plan: Plan, sample: Sample, name: str, stops: Sequence[Stop], probe: bool = False
) -> Iterator[Shot]:
    """Yield the images of one sample under one shift.

    A failure becomes the error of every image that it prevents.
    """
    shift = plan.shifts[name]
    known = _truth_in_file(plan, sample)
    left = [Shot(sample, name, shift.setting(stop), probe=probe, truth=known) for stop in stops]
    try:
        if sample.truth and shift.moves_things:
            raise SoritesError(
                f"{name} moves things, and true boxes cannot follow it: leave it out, or the boxes"
            )
        for picture, chosen in (_given if name in plan.own else _made)(plan, sample, shift, stops):
            leave_if_asked()
            shot = replace(
                left.pop(0), picture=picture, chosen_params=dict(chosen), truth=plan.framed.truth(sample.id)
            )
            yield shot
    except (Exception, SystemExit) as error:
        yield from (replace(shot, error=reason(error, name)) for shot in left)


def _made(
    plan: Plan, sample: Sample, shift: Shift, stops: Sequence[Stop]
) -> Iterator[tuple[Picture, Mapping[str, Any]]]:
    """Yield the pictures that a shift makes of the framed clean one, each with the params that it chose."""
    image, rng = core.to_image(plan.framed(sample.id)), rng_for(plan.suite.seed, sample.id, shift.name)
    for stop, (moved, chosen) in zip(stops, shift.sweep_with_chosen_params(image, stops, rng), strict=True):
        yield _rounded(moved, shift.name, stop), chosen


def _given(
    plan: Plan, sample: Sample, shift: Shift, stops: Sequence[Stop]
) -> Iterator[tuple[Picture, Mapping[str, Any]]]:
    """Yield the pictures of a dial of the sample's own: each stands where a decoded file would, and
    is framed as one.
    """
    dial, frame = sample.dial(shift.name), laid_frame(plan.suite, sample)
    if dial is None:
        raise SoritesError(f"{sample.id} has no dial {shift.name}")
    images = iter(dial.sweep([float(stop) for stop in stops if isinstance(stop, int | float) and stop]))
    for stop in stops:
        if stop == 0:
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
                f"{shift.name}: wanted an image at {stop}, H x W x 3 floats from 0 to 1, got {came}"
            )
        picture = _rounded(image, shift.name, stop)
        yield picture if frame is None else core.read_only(frame(picture)), {}


def _rounded(image: Image, name: str, stop: Stop) -> Picture:
    if not np.isfinite(image.sum()):
        raise SoritesError(f"{name} gave pixels that are not finite at {stop}")
    return core.read_only(core.to_picture(image))


def _truth_in_file(plan: Plan, sample: Sample) -> Truth:
    """Return the true boxes of a picture that may not be readable: where a frame would move them,
    nothing is known of them.
    """
    return sample.truth if laid_frame(plan.suite, sample) is None else None


def reason(error: Exception | SystemExit, doing: str) -> str:
    """Return an error as a row keeps it, in UTF-8: our own in their words, others with their kind
    and what was being done.
    """
    if isinstance(error, SystemExit):
        return f"{doing}: {left_by_exit(error)}"
    return as_utf8(
        str(error) if isinstance(error, SoritesError) else f"{doing}: {type(error).__name__}: {error}"
    )


# Pictures that cannot be read and are therefore left out: counted, with the reason of the first, so that
# it can be said.


@dataclass
class LeftOut:
    """The number of pictures of a kind that were left out, and why the first was."""

    kind: str = "pictures"
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


def readable(samples: Iterable[Sample], left: LeftOut) -> Iterator[tuple[Sample, Picture]]:
    """Yield the samples that can be read with their pictures; the others are counted."""
    for sample in samples:
        try:
            picture = sample.load()
        except (Exception, SystemExit) as error:
            left.add(sample.id, reason(error, "reading the picture"))
            continue
        yield sample, picture
