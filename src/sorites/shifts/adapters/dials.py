"""Severities of a transform with one varied parameter: its values, or their numbers if they do not rise."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sorites.core import ImageF32, Shift
from sorites.core.errors import SoritesError

# A difference of means that is smaller than this share of the largest one is rounding, not an order.
TOLERANCE = 0.01
# The least mean change of an image that is more than rounding; a step of 8 bits is 0.004.
LEAST_CHANGE = 1e-5
SIDE = 96


@dataclass(frozen=True)
class Values:
    """The values of the parameter, from weak to strong.

    If all are above 0 and rising, they are the severities. Otherwise (a quality of 90, 50, 10) the severity
    is the number of the value, and values in between are interpolated; below 1 the first value is used.
    """

    values: tuple[float, ...]
    whole: bool = False

    @property
    def direct(self) -> bool:
        """True if the values are severities."""
        return all(low < high for low, high in zip((0.0, *self.values), self.values, strict=False))

    @property
    def levels(self) -> tuple[float, ...]:
        """The severities of the values."""
        return self.values if self.direct else tuple(float(i + 1) for i in range(len(self.values)))

    def at(self, severity: float) -> float | int:
        """Return the value at a severity; whole numbers stay whole."""
        value = severity if self.direct else float(np.interp(severity, self.levels, self.values))
        return round(value) if self.whole else value


def values_of(given: Sequence[float | int], called: str) -> Values:
    """Return the values of a parameter; a leading 0, at which severity 0 is the unchanged image, is dropped.

    Raises:
        SoritesError: There is no value, or one is not finite.
    """
    numbers = [value for i, value in enumerate(given) if i or value != 0]
    if not numbers or not np.isfinite(numbers).all():
        raise SoritesError(f"{called}: expected one or more numbers as values, got {list(given)}")
    return Values(tuple(map(float, numbers)), all(isinstance(value, int) for value in numbers))


def trial_image() -> ImageF32:
    """Return a synthetic image with edges, smooth parts and grain."""
    rng = np.random.default_rng(0)
    blocks = np.kron(rng.random((6, 6, 3)), np.ones((SIDE // 6, SIDE // 6, 1)))
    y, x = np.mgrid[0 : 1 : SIDE * 1j, 0 : 1 : SIDE * 1j]
    smooth = np.stack([x, y, 1 - x], axis=2)
    image = 0.45 * blocks + 0.45 * smooth + 0.1 * rng.random((SIDE, SIDE, 3))
    return np.asarray((image * 255).round() / 255, np.float32)


def check_order(shift: Shift) -> None:
    """Check on one image that a higher level changes it more.

    Raises:
        SoritesError: It does not.
    """
    image = trial_image()
    moved = shift.sweep(image, shift.levels, np.random.default_rng(0))
    changes = [float(np.abs(each - image).mean()) for each in moved]
    least = TOLERANCE * max(changes)
    falls = any(after < before - least for before, after in itertools.pairwise(changes))
    if falls or changes[-1] <= changes[0] * (len(changes) > 1) or max(changes) < LEAST_CHANGE:
        listed = ", ".join(f"{change:.4g}" for change in changes)
        raise SoritesError(
            f"shift {shift.name}: a higher severity must change the image more, but the mean absolute"
            f" changes of a trial image are {listed}. Order the values from weak to strong, or add check=no."
        )


def seed_of(rng: np.random.Generator) -> int:
    """Return a seed for a library with its own generators, drawn from the stream of the sample."""
    return int(rng.integers(2**31))
