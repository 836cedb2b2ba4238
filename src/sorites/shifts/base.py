"""Helpers to write a shift as two functions: one prepares what an image needs once, the other
makes each setting of the dial.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from sorites.core import ImageF32, Shift, add_shift
from sorites.core.errors import SoritesError

D = TypeVar("D")

# The largest severity of any dial: above it single precision overflows.
HIGHEST = 1e18

# The stops of a dial that is counted in published levels; used by shifts with several parameters.
LEVELS = (1, 2, 3, 4, 5)


def add_dial(
    prepare: Callable[[ImageF32, np.random.Generator], D],
    *,
    family: str,
    unit: str,
    levels: Sequence[float],
    limit: float = np.inf,
    version: int = 1,
) -> Callable[[Callable[[ImageF32, float, D], ImageF32]], Shift]:
    """Register a shift: ``@add_dial(prepare, family=..., ...)`` goes above ``name(image, severity,
    prepared)``.

    ``prepare(image, rng)`` makes all that does not depend on the severity (the random field, a
    mean, a transform). A sweep makes it once, so a sweep is faster than single calls and equal to
    them by construction. ``limit`` is the largest severity that means anything.
    """

    def register(turn: Callable[[ImageF32, float, D], ImageF32]) -> Shift:
        name = turn.__name__

        @functools.wraps(turn)
        def apply(image: ImageF32, severity: float, rng: np.random.Generator) -> ImageF32:
            return next(together(image, [severity], rng))

        def together(
            image: ImageF32, severities: Sequence[float], rng: np.random.Generator
        ) -> Iterator[ImageF32]:
            check(name, severities, limit, unit)
            prepared = prepare(image, rng)
            for severity in severities:
                yield turn(image, severity, prepared)

        shift = add_shift(family=family, unit=unit, levels=levels, version=version)(apply)
        shift.sweeper(together)
        return shift

    return register


def check(name: str, severities: Sequence[float], limit: float, unit: str) -> None:
    """Raise an error at a severity that is below 0, above ``limit``, or not a number."""
    for severity in severities:
        if not 0 <= severity <= min(limit, HIGHEST) * (1 + 1e-9):
            raise SoritesError(
                f"{name}: wanted a severity from 0 to {min(limit, HIGHEST):g} ({unit}), got"
                f" {float(severity)!r}"
            )


def nothing(image: ImageF32, rng: np.random.Generator) -> None:
    """Prepare nothing, for a shift that needs only the image."""


def between(settings: Sequence[Sequence[float]], severity: float) -> list[float]:
    """Return the parameters at a severity counted in levels: row 0 is severity 0, with straight
    lines between rows.
    """
    low = min(int(severity), len(settings) - 2)
    part = severity - low
    return [
        a if part == 0 else a + (b - a) * part for a, b in zip(settings[low], settings[low + 1], strict=True)
    ]


def clip(image: ImageF32) -> ImageF32:
    """Clip to 0..1 in place."""
    return np.clip(image, 0, 1, out=image)
