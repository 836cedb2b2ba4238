"""Geometric shifts: the camera or the object turns or moves, or the lens distorts.

Each has a unit and moves ground-truth boxes with the image (see ``scenes.moved_boxes`` for the rule). The
image keeps its size; what comes from outside of it is mid-grey. Directions and signs are drawn per sample.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from sorites.core import Box, ImageF32, Shift
from sorites.core.types import Stage
from sorites.scenes import point_maps
from sorites.scenes.moved_boxes import boxes_after_map
from sorites.scenes.point_maps import PointMap, Size
from sorites.scenes.resample import resized, warped
from sorites.shifts.base import add_continuous_shift, check, clip

D = TypeVar("D")
# Returns the map of a severity for a random draw and a size of the image.
MapOf = Callable[[float, D, Size], PointMap]
# Changes an image, given the map and the severity.
Change = Callable[[ImageF32, PointMap, float, D], ImageF32]


def _warp(image: ImageF32, map_: PointMap, severity: float, drawn: object) -> ImageF32:
    return warped(image, map_)


def add_geometric_shift(
    draw: Callable[[np.random.Generator], D],
    *,
    unit: str,
    levels: Sequence[float],
    limit: float,
    stage: Stage = "scene",
    change: Change[D] = _warp,
) -> Callable[[MapOf[D]], Shift]:
    """Register a geometric shift.

    The decorated function ``name(severity, drawn, size)`` returns the map of points, from which both the
    image and the boxes follow.

    Args:
        draw: Returns what a sample draws.
        unit: The unit of the severity.
        levels: The default severities.
        limit: The maximum severity.
        stage: Where in the making of an image the shift acts.
        change: Makes the image, if not by the general warp.
    """

    def register(map_of: MapOf[D]) -> Shift:
        @functools.wraps(map_of)
        def apply(image: ImageF32, severity: float, drawn: D) -> ImageF32:
            return change(image, map_of(severity, drawn, image.shape[:2]), severity, drawn)

        def prepare(image: ImageF32, rng: np.random.Generator) -> D:
            return draw(rng)

        shift = add_continuous_shift(
            prepare, family="geometry", unit=unit, levels=levels, limit=limit, stage=stage
        )(apply)

        @shift.box_mover
        def move(
            boxes: Sequence[Box], severity: float, rng: np.random.Generator, size: Size
        ) -> Sequence[Box]:
            check(shift.name, [severity], limit, unit)
            return boxes_after_map(boxes, map_of(severity, draw(rng), size), size)

        return shift

    return register


def _sign(rng: np.random.Generator) -> float:
    return -1.0 if rng.random() < 0.5 else 1.0


def _direction(rng: np.random.Generator) -> float:
    return float(rng.uniform(0, 2 * math.pi))


@add_geometric_shift(_sign, unit="degrees", levels=(5, 10, 15, 20, 30), limit=180)
def rotation(severity: float, sign: float, size: Size) -> PointMap:
    """Turn the image about its centre by ``severity`` degrees, clockwise or counter-clockwise."""
    return point_maps.rotation(sign * severity, size)


def _nothing(rng: np.random.Generator) -> None:
    """Draw nothing."""


def _reduce(image: ImageF32, map_: PointMap, severity: float, drawn: object) -> ImageF32:
    """Reduce the image about its centre, anti-aliased."""
    size, step = image.shape[:2], 2.0**severity
    start = (size[0] * (1 - step) / 2, size[1] * (1 - step) / 2)
    return clip(resized(image, (size[0], size[1]), (step, step), start))


@add_geometric_shift(_nothing, unit="octaves", levels=(0.5, 1, 1.5, 2, 3), limit=6, change=_reduce)
def scale(severity: float, drawn: None, size: Size) -> PointMap:
    """Move the camera away: objects become 2^``severity`` times smaller, about the centre of the image."""
    return point_maps.scaling(2.0**-severity, size)


@add_geometric_shift(_direction, unit="fraction of the side", levels=(0.05, 0.1, 0.2, 0.3, 0.4), limit=1)
def translation(severity: float, direction: float, size: Size) -> PointMap:
    """Move the image by ``severity`` of its width and height, in a direction drawn per sample."""
    right, down = (severity * part for part in (math.cos(direction), math.sin(direction)))
    return point_maps.translation(right * size[1], down * size[0])


@add_geometric_shift(_sign, unit="degrees", levels=(5, 10, 15, 20, 30), limit=60)
def shear(severity: float, sign: float, size: Size) -> PointMap:
    """Shear the image horizontally: upright lines lean by ``severity`` degrees, to the left or right."""
    return point_maps.shearing(sign * severity, size)


@add_geometric_shift(_direction, unit="degrees", levels=(10, 20, 30, 40, 50), limit=75)
def perspective(severity: float, direction: float, size: Size) -> PointMap:
    """See the image as a plane turned by ``severity`` degrees, in a direction drawn per sample.

    The focal length is the longer side of the image.
    """
    return point_maps.tilting(severity, direction, size)


def _corner(rng: np.random.Generator) -> tuple[float, float]:
    return float(rng.random()), float(rng.random())


def _enlarge(image: ImageF32, map_: PointMap, severity: float, drawn: tuple[float, float]) -> ImageF32:
    """Enlarge the window; the kernel is cut at the border of the image."""
    height, width = image.shape[:2]
    left, top = drawn
    start = (top * severity * height, left * severity * width)
    return clip(resized(image, (height, width), (1 - severity, 1 - severity), start, border=False))


@add_geometric_shift(
    _corner,
    unit="fraction of the side",
    levels=(0.1, 0.2, 0.3, 0.4, 0.5),
    limit=0.95,
    stage="isp",
    change=_enlarge,
)
def crop(severity: float, corner: tuple[float, float], size: Size) -> PointMap:
    """Cut ``severity`` of the width and height away and enlarge the rest, at a place drawn per sample."""
    return point_maps.cropping(*corner, 1 - severity, size)


def _barrel(rng: np.random.Generator) -> bool:
    return bool(rng.random() < 0.5)


@add_geometric_shift(
    _barrel, unit="fraction of the half diagonal", levels=(0.05, 0.1, 0.2, 0.3, 0.5), limit=2, stage="optics"
)
def radial_distortion(severity: float, barrel: bool, size: Size) -> PointMap:
    """Distort like a lens, with corners displaced by ``severity``: barrel or pincushion, drawn per sample.

    The displacement grows with the third power of the distance from the centre; the two are inverse to each
    other.
    """
    return point_maps.Radial(severity, barrel, size)
