"""The learning rate at each step of a stage, as torch's own schedulers have it, without their state: a stopped training that goes
on needs only its step."""

from __future__ import annotations

import math

from sorites.training.recipe_parts import Schedule

CYCLE_FROM, CYCLE_TO = 1 / 25, 1e-4
"""One cycle begins at this share of the highest rate, and ends at this share of where it began."""


def rate(schedule: Schedule, highest: float, step: int, steps: int, per_epoch: int) -> float:
    """Return the learning rate of a step, counted from the beginning of its stage of ``steps`` steps."""
    warm = min(round(schedule.warm_up * per_epoch), steps)
    if step < warm:
        return highest * (schedule.warm_up_from + (1 - schedule.warm_up_from) * step / warm)
    step, steps = step - warm, steps - warm
    if schedule.kind == "step":
        every = max(1, round(schedule.every * per_epoch))
        return highest * schedule.factor ** (step // every)
    if schedule.kind == "cosine":
        return _eased(highest, schedule.floor, step / steps)
    if schedule.kind == "one_cycle":
        return _one_cycle(highest, schedule.rise, step, steps)
    return highest


def _one_cycle(highest: float, rise: float, step: int, steps: int) -> float:
    """Return the rate of Smith and Topin's one cycle, eased by cosines."""
    top, end = rise * steps - 1, steps - 1
    start = highest * CYCLE_FROM
    if step <= top:
        return _eased(start, highest, step / top)
    return _eased(highest, start * CYCLE_TO, (step - top) / (end - top)) if end > top else highest


def _eased(start: float, end: float, share: float) -> float:
    """Return the value a share of the way along half a cosine."""
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))
