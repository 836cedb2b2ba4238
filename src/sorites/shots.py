"""The images of a unit, made one sample at a time: a picture, or the reason there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sorites import core
from sorites.core import CLEAN, SHIFTS, Picture, Sample, Setting
from sorites.errors import SoritesError
from sorites.plan import Plan, Unit, frame_of
from sorites.rng import rng_for


@dataclass(frozen=True)
class Shot:
    """One image: whose, under which shift and setting, and its picture or the reason there is none."""

    sample: Sample
    shift: str
    setting: Setting
    picture: Picture | None = None
    error: str | None = None
    probe: bool = False


def shots(plan: Plan, unit: Unit) -> Iterator[Shot]:
    """The images of a grid unit."""
    for sample in plan.groups[unit.shift][unit.start : unit.stop]:
        if unit.shift in plan.dials:
            yield from turned(plan, sample, unit.shift, plan.dials[unit.shift])
        else:
            yield captured(plan, sample)


def captured(plan: Plan, sample: Sample) -> Shot:
    """The image as the source has it, framed."""
    shot = Shot(sample, sample.shift, sample.setting)
    try:
        return replace(shot, picture=plan.framed(sample.id) if sample.shift == CLEAN else frame_of(plan.suite.frame, sample))
    except Exception as error:
        return replace(shot, error=reason(error, "reading the picture"))


def turned(plan: Plan, sample: Sample, name: str, severities: Sequence[float], probe: bool = False) -> Iterator[Shot]:
    """One sample along one dial. What goes wrong becomes the error of every image it keeps from being made."""
    shift = SHIFTS.get(name)
    left = [Shot(sample, name, Setting(severity, level=shift.level_of(severity)), probe=probe) for severity in severities]
    try:
        moved = shift.sweep(core.to_image(plan.framed(sample.id)), severities, rng_for(plan.suite.seed, sample.id, name))
        for image in moved:
            yield replace(left.pop(0), picture=core.to_picture(image))
    except Exception as error:
        yield from (replace(shot, error=reason(error, name)) for shot in left)


def reason(error: Exception, doing: str) -> str:
    """An error as a row keeps it: our own in their words, others with their kind and what was being done."""
    return str(error) if isinstance(error, SoritesError) else f"{doing}: {type(error).__name__}: {error}"
