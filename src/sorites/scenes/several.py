"""Several things in one place, some in front of others, with a box around the part of each that can be seen.

Where things stand follows from the generator alone, so that the boxes are known before a picture is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sorites.scenes.composite import CutOut, paste, resized, resized_mask
from sorites.scenes.light import to_light, to_shown
from sorites.types import Image

SIDE = 640
"""The side in px for which the sizes of things are given; in a picture of another side they grow with it."""

SIZES = (48.0, 400.0)
"""The shortest and the longest that the longer side of a thing may be, in px of a picture of ``SIDE``."""

ENLARGED = 2.5
"""The most that a cut-out is enlarged: beyond it a thing would be blurred before any shift."""

SEEN = 0.25
"""The least share of a thing that has to be seen; one that is hidden further has no box."""

GROUND = (0.5, 0.98)
"""The range of the height at which things stand, as shares of the side from the top."""


@dataclass(frozen=True)
class Spot:
    """The place of a thing: a scale of its cut-out, and its upper left corner in px."""

    factor: float
    top: int
    left: int


@dataclass(frozen=True)
class Seen:
    """The visible part of a thing: the share of its own pixels, their number, and the box around them (x0, y0, x1, y1)."""

    share: float
    area: int
    box: tuple[float, float, float, float]


def stand(things: Sequence[CutOut], side: int, rng: np.random.Generator) -> list[Spot]:
    """Draw where each thing stands, wholly inside the picture; sizes are spread evenly in their logarithm."""
    return [_spot(thing, side, rng) for thing in things]


def _spot(thing: CutOut, side: int, rng: np.random.Generator) -> Spot:
    least, most = (size * side / SIDE for size in SIZES)
    longest = max(thing.mask.shape)
    drawn = math.exp(rng.uniform(math.log(least), math.log(max(least, min(most, ENLARGED * longest)))))
    factor = drawn / longest
    height, width = (max(2, round(length * factor)) for length in thing.mask.shape)
    foot = round(rng.uniform(max(height, GROUND[0] * side), max(height, GROUND[1] * side)))
    return Spot(factor, foot - height, int(rng.integers(side - width + 1)))


def _feet(things: Sequence[CutOut], spots: Sequence[Spot]) -> list[int]:
    """Return the order in which things are drawn: one that stands lower in the picture is nearer, and drawn later."""
    foot = [spot.top + max(2, round(thing.mask.shape[0] * spot.factor)) for thing, spot in zip(things, spots, strict=True)]
    return sorted(range(len(things)), key=lambda i: foot[i])


def seen(things: Sequence[CutOut], spots: Sequence[Spot], side: int) -> list[Seen]:
    """Return what can be seen of each thing: its pixels that are at least half opaque and not behind those of a nearer thing."""
    taken = np.zeros((side, side), bool)
    found: dict[int, Seen] = {}
    for i in reversed(_feet(things, spots)):
        own = resized_mask(things[i], spots[i].factor) >= 0.5
        top, left = spots[i].top, spots[i].left
        behind = taken[top : top + own.shape[0], left : left + own.shape[1]]
        found[i] = _seen(own & ~behind, int(own.sum()), top, left)
        behind |= own
    return [found[i] for i in range(len(things))]


def _seen(free: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], whole: int, top: int, left: int) -> Seen:
    rows, cols = (np.flatnonzero(free.any(axis)) for axis in (1, 0))
    if not len(rows):
        return Seen(0.0, 0, (float(left), float(top), float(left), float(top)))
    box = (left + cols[0], top + rows[0], left + cols[-1] + 1, top + rows[-1] + 1)
    return Seen(int(free.sum()) / whole, int(free.sum()), tuple(map(float, box)))  # type: ignore[arg-type]


def draw(things: Sequence[CutOut], spots: Sequence[Spot], place: Image, shadow: float = 0.55) -> Image:
    """Return the picture (sRGB) of the things in a place, far ones first."""
    ground = to_light(place)
    for i in _feet(things, spots):
        light, mask = resized(things[i], spots[i].factor)
        paste(light, mask, ground, spots[i].top, spots[i].left, shadow)
    return to_shown(ground)
