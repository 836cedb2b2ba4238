"""Helpers to write a shift as two functions: one prepares what all severities share, the other applies a
severity.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from sorites.core import ImageF32, Shift, add_shift
from sorites.core.errors import SoritesError
from sorites.core.types import Stage

D = TypeVar("D")

# The maximum severity of any shift: above it, single precision overflows.
MAX_SEVERITY = 1e18

# The levels of shifts whose severity is an interpolated published level.
LEVELS = (1, 2, 3, 4, 5)


def add_continuous_shift(
    prepare: Callable[[ImageF32, np.random.Generator], D],
    *,
    family: str,
    unit: str,
    levels: Sequence[float],
    limit: float = np.inf,
    version: int = 1,
    stage: Stage = "scene",
) -> Callable[[Callable[[ImageF32, float, D], ImageF32]], Shift]:
    """Register a shift with a continuous severity.

    The decorated function ``name(image, severity, prepared)`` applies a severity. A sweep prepares only once,
    so it is faster than single calls and, by construction, equal to them.

    Args:
        prepare: ``prepare(image, rng)`` computes everything that does not depend on the severity, such as
            random fields or transforms.
        family: The family of the shift.
        unit: The unit of the severity.
        levels: The default severities.
        limit: The maximum severity.
        version: The version of the shift; increase it when its images change.
        stage: Where in the making of an image the shift acts.
    """

    def register(apply_prepared: Callable[[ImageF32, float, D], ImageF32]) -> Shift:
        name = apply_prepared.__name__

        @functools.wraps(apply_prepared)
        def apply(image: ImageF32, severity: float, rng: np.random.Generator) -> ImageF32:
            return next(sweep(image, [severity], rng))

        def sweep(
            image: ImageF32, severities: Sequence[float], rng: np.random.Generator
        ) -> Iterator[ImageF32]:
            check(name, severities, limit, unit)
            prepared = prepare(image, rng)
            for severity in severities:
                yield apply_prepared(image, severity, prepared)

        shift = add_shift(family=family, unit=unit, levels=levels, version=version, stage=stage)(apply)
        shift.sweeper(sweep)
        return shift

    return register


def check(name: str, severities: Sequence[float], limit: float, unit: str) -> None:
    """Raise an error if a severity is below 0, above ``limit``, or not a number."""
    for severity in severities:
        if not 0 <= severity <= min(limit, MAX_SEVERITY) * (1 + 1e-9):
            raise SoritesError(
                f"{name}: expected a severity from 0 to {min(limit, MAX_SEVERITY):g} ({unit}), got"
                f" {float(severity)!r}"
            )


def nothing(image: ImageF32, rng: np.random.Generator) -> None:
    """Prepare nothing, for shifts that only need the image."""


def between(settings: Sequence[Sequence[float]], severity: float) -> list[float]:
    """Interpolate parameters linearly at a severity counted in levels; row 0 is severity 0."""
    low = min(int(severity), len(settings) - 2)
    fraction = severity - low
    return [
        a if fraction == 0 else a + (b - a) * fraction
        for a, b in zip(settings[low], settings[low + 1], strict=True)
    ]


def clip(image: ImageF32) -> ImageF32:
    """Clip to 0..1 in place."""
    return np.clip(image, 0, 1, out=image)
