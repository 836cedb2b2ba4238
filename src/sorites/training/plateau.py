"""A learning rate that falls when the validation loss no longer does, as torch's ``ReduceLROnPlateau`` has it.

The share of the rate follows from the losses so far and from nothing else, so that a stopped training needs no more than its
history to go on.
"""

from __future__ import annotations

from collections.abc import Iterable

from sorites.training.recipe_parts import Schedule

THRESHOLD = 1e-4
"""A loss counts as lower if it is so by more than this share of the lowest."""


def share(losses: Iterable[float], schedule: Schedule) -> float:
    """Return what the rate is multiplied by after these validation losses, 1 for schedules of another kind.

    It is ``factor`` for each time that more than ``patience`` losses in a row were not lower than the lowest.
    """
    best, bad, found = float("inf"), 0, 1.0
    for loss in losses if schedule.kind == "plateau" else ():
        if loss < best * (1 - THRESHOLD):
            best, bad = loss, 0
        else:
            bad += 1
        if bad > schedule.patience:
            found, bad = found * schedule.factor, 0
    return found
