"""The images of a unit, made one sample at a time: a picture, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sorites import core
from sorites.core import CLEAN, Picture, Sample, Setting, Stop
from sorites.engines.interrupts import leave_if_asked
from sorites.errors import SoritesError, as_utf8, left_by_exit
from sorites.pipeline.plan import Plan, Unit, framed_picture
from sorites.rng import rng_for


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
    """The params that the shift chose for this image; they are kept with its params but were not asked for."""


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
    shot = Shot(sample, sample.shift, sample.setting)
    try:
        clean = sample.shift == CLEAN
        return replace(shot, picture=plan.framed(sample.id) if clean else framed_picture(plan.suite, sample))
    except (Exception, SystemExit) as error:
        return replace(shot, error=reason(error, "reading the picture"))


def turned(plan: Plan, sample: Sample, name: str, stops: Sequence[Stop], probe: bool = False) -> Iterator[Shot]:
    """Yield the images of one sample under one shift. A failure becomes the error of every image that it prevents."""
    shift = plan.shifts[name]
    left = [(stop, Shot(sample, name, shift.setting(stop), probe=probe)) for stop in stops]
    try:
        image, rng = core.to_image(plan.framed(sample.id)), rng_for(plan.suite.seed, sample.id, name)
        for moved, chosen in shift.sweep_with_chosen_params(image, stops, rng):
            leave_if_asked()
            stop, shot = left[0]
            if not np.isfinite(moved.sum()):
                raise SoritesError(f"{name} gave pixels that are not finite at {stop}")
            shot = replace(shot, picture=core.read_only(core.to_picture(moved)), chosen_params=dict(chosen))
            del left[0]
            yield shot
    except (Exception, SystemExit) as error:
        yield from (replace(shot, error=reason(error, name)) for _, shot in left)


def reason(error: Exception | SystemExit, doing: str) -> str:
    """Return an error as a row keeps it, in UTF-8: our own in their words, others with their kind and what was being done."""
    if isinstance(error, SystemExit):
        return f"{doing}: {left_by_exit(error)}"
    return as_utf8(str(error) if isinstance(error, SoritesError) else f"{doing}: {type(error).__name__}: {error}")
