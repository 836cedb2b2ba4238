"""Compose cut-outs into places (scale, position, light, shadow) with exact boxes, and add weather and
night.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from sorites import core
from sorites.core import ImageF32, ImageU8, to_float
from sorites.core.errors import SoritesError
from sorites.core.samples import ImageF32 as Image_of
from sorites.scenes.fields import GREY, Field, smooth, to_linear, to_srgb

# Largest height and width of an object, as shares of the place's side; poses are slightly smaller.
MAX_HEIGHT, MAX_WIDTH = 0.66, 0.80

# Range of the vertical position of an object's foot, as shares of the place's side from the top.
FOOT = (0.84, 0.90)

# Shift and severity by weather.
WEATHER = {"foggy": ("haze", 1.0), "raining": ("rain", 1.5), "snowing": ("snowfall", 1.2)}

# Share of daylight left at night, by channel.
NIGHT = (0.115, 0.13, 0.20)

# Gain of the lamp in the middle at night, and standard deviation of the noise in the dark, in linear light.
LAMP, GRAIN = 1.6, 0.012


@dataclass(frozen=True)
class CutOut:
    """An object without its surroundings: colours in linear light and mask 0..1, both trimmed to the
    visible part.
    """

    light: ImageF32
    mask: Field


@dataclass(frozen=True)
class Pose:
    """Scale of an object, and its centre and foot as shares of the place's side."""

    scale: float
    middle: float
    foot: float


def cut_out(image: ImageU8, alpha: NDArray[np.uint8], ground: int = 128) -> CutOut:
    """Cut an object out of an image.

    Args:
        image: The image.
        alpha: Mask of the object.
        ground: Gray value that partly transparent pixels were mixed with; it is removed from them.
    """
    mask = alpha.astype(np.float32) * np.float32(1 / 255)
    rows, cols = (np.flatnonzero((mask > 0.02).any(axis)) for axis in (1, 0))
    if not len(rows):
        raise SoritesError("expected a cut-out, got an image with an empty mask")
    box = (slice(rows[0], rows[-1] + 1), slice(cols[0], cols[-1] + 1))
    pixels, cover = to_float(image[box]), mask[box][..., None]
    colours = (pixels - (1 - cover) * np.float32(ground / 255)) / np.maximum(cover, np.float32(0.05))
    return CutOut(to_linear(np.clip(colours, 0, 1).astype(np.float32)), mask[box])


def draw_pose(rng: np.random.Generator) -> Pose:
    """Draw the size and position of an object in its scene."""
    return Pose(rng.uniform(0.88, 1.0), rng.uniform(0.44, 0.56), rng.uniform(*FOOT))


def insert(
    obj: CutOut, place: ImageF32, at: Pose, shadow: float = 0.55
) -> tuple[ImageF32, tuple[float, float, float, float]]:
    """Compose the object into a place (sRGB).

    Returns:
        The image, and the box (x0, y0, x1, y1 in px) around the pixels of the object that are at least half
        opaque.
    """
    side = place.shape[0]
    light, mask = resized(obj, _fitting(obj, side, at.scale))
    top, left = _corner(mask, side, at)
    ground = to_linear(place)
    paste(light, mask, ground, top, left, shadow)
    return to_srgb(ground), _box(mask, top, left)


def box_of(obj: CutOut, side: int, at: Pose) -> tuple[float, float, float, float]:
    """Return the box that ``insert`` returns for a place of ``side`` px, without making the image."""
    mask = resized_mask(obj, _fitting(obj, side, at.scale))
    return _box(mask, *_corner(mask, side, at))


def _corner(mask: Field, side: int, at: Pose) -> tuple[int, int]:
    """Return the row and column of the object's upper left corner."""
    height, width = mask.shape
    return round(side * at.foot) - height, round(side * at.middle - width / 2)


def _box(mask: Field, top: int, left: int) -> tuple[float, float, float, float]:
    rows, cols = (np.flatnonzero((mask >= 0.5).any(axis)) for axis in (1, 0))
    return float(left + cols[0]), float(top + rows[0]), float(left + cols[-1] + 1), float(top + rows[-1] + 1)


def paste(light: ImageF32, mask: Field, ground: ImageF32, top: int, left: int, shadow: float = 0.55) -> None:
    """Draw an object and its shadow in place on ``ground`` (linear light); the object must be entirely
    inside.
    """
    height, width = mask.shape
    where, dark = _shadow(mask, ground.shape[0], top, left)
    ground[where] *= 1 - shadow * dark[..., None]
    inside = (slice(top, top + height), slice(left, left + width))
    lit = _relight(light, mask, ground[inside])
    ground[inside] += (lit - ground[inside]) * mask[..., None]


def _fitting(obj: CutOut, side: int, scale: float) -> float:
    height, width = obj.mask.shape
    return scale * min(MAX_HEIGHT * side / float(height), MAX_WIDTH * side / float(width))


def resized(obj: CutOut, factor: float) -> tuple[ImageF32, Field]:
    """Return the scaled object and its mask; colours are weighted by the mask so that no border shows."""
    mask = resized_mask(obj, factor)
    planes = [
        _scaled(obj.light[..., c] * obj.mask, factor) / np.maximum(mask, np.float32(1e-3)) for c in range(3)
    ]
    return np.clip(np.stack(planes, axis=-1), 0, 1), mask


def resized_mask(obj: CutOut, factor: float) -> Field:
    """Return the scaled mask of the object."""
    return np.clip(_scaled(obj.mask, factor), 0, 1)


def _scaled(plane: Field, factor: float) -> Field:
    height, width = plane.shape
    size = (max(2, round(width * factor)), max(2, round(height * factor)))
    resample = Pillow.Resampling.BOX if factor < 1 else Pillow.Resampling.BILINEAR
    return np.asarray(Pillow.fromarray(np.ascontiguousarray(plane)).resize(size, resample))


def _shadow(mask: Field, side: int, top: int, left: int) -> tuple[tuple[slice, slice], Field]:
    """Return the area and the darkness of the shadow: the lower part of the object flattened onto the
    ground and blurred.
    """
    height, width = mask.shape
    flat = max(3, height // 9)
    low = mask[-max(1, height // 3) :].max(axis=0)
    foot, reach = top + height, int(3 * side / 40 + 0.5) + 1
    rows = slice(max(0, foot - flat), min(side, foot + flat // 2))
    near = (
        slice(max(0, rows.start - reach), min(side, rows.stop + reach)),
        slice(max(0, left - reach), left + width + reach),
    )
    field = np.zeros((near[0].stop - near[0].start, min(side, near[1].stop) - near[1].start), np.float32)
    field[rows.start - near[0].start : rows.stop - near[0].start, left - near[1].start :][:, :width] = low
    soft: Field = 0.6 * smooth(field, side / 40, truncate=3) + 0.4 * smooth(field, side / 120, truncate=3)
    return near, soft


def _relight(light: ImageF32, mask: Field, behind: ImageF32) -> ImageF32:
    """Adapt the object to the place's light: a third of the way to its brightness, a fifth to its colour."""
    weight = mask.sum() + 1e-6
    mine = np.einsum("hwc,hw->c", light, mask) / weight
    theirs = behind.reshape(-1, 3).mean(axis=0)
    gain = np.clip((theirs @ GREY + 0.02) / (mine @ GREY + 0.02), 0.4, 2.5) ** 0.33
    tint = np.clip((theirs / (theirs @ GREY + 1e-4)) ** 0.2, 0.8, 1.25)
    lit: ImageF32 = np.clip(light * (gain * tint).astype(np.float32), 0, 1)
    return lit


def weathered(image: ImageF32, weather: str, rng: np.random.Generator) -> ImageF32:
    """Return the image in fog, rain or snow; other weather leaves it unchanged."""
    if weather not in WEATHER:
        return image
    name, severity = WEATHER[weather]
    return core.shift(name)(image, severity, rng)


def at_night(image: ImageF32, rng: np.random.Generator) -> ImageF32:
    """Return the image at night: dim bluish light, a lamp near the middle, and the noise of a long
    exposure.
    """
    side = image.shape[0]
    y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j].astype(np.float32)
    lamp = 1 + np.float32(LAMP) * np.exp(-(x**2 + (y - 0.2) ** 2) / np.float32(0.35))
    light = to_linear(image) * np.array(NIGHT, np.float32) * lamp[..., None]
    light += (
        rng.standard_normal(light.shape, dtype=np.float32)
        * np.float32(GRAIN)
        * np.sqrt(light + np.float32(0.02))
        / math.sqrt(0.1)
    )
    return to_srgb(light)


# Several objects in one place

# Side in px that ``SIZES`` refers to; sizes scale with the side of the image.
SIDE = 640

# Range of the longer side of an object, in px of an image of ``SIDE``.
SIZES = (48.0, 400.0)

# Maximum enlargement of a cut-out; beyond it an object would be blurred before any shift.
ENLARGED = 2.5

# Minimum visible share of an object; objects that are hidden more have no box.
MIN_VISIBLE_SHARE = 0.25

# Range of the vertical position of the objects' feet, as shares of the side from the top.
GROUND = (0.5, 0.98)


@dataclass(frozen=True)
class Spot:
    """Scale of a cut-out and the position of its upper left corner in px."""

    factor: float
    top: int
    left: int


@dataclass(frozen=True)
class Seen:
    """Visible part of an object: share of its pixels, their number, and the box around them (x0, y0, x1,
    y1).
    """

    share: float
    area: int
    box: tuple[float, float, float, float]


def draw_spots(objects: Sequence[CutOut], side: int, rng: np.random.Generator) -> list[Spot]:
    """Draw a spot inside the image for each object; sizes are uniform in their logarithm."""
    return [_spot(obj, side, rng) for obj in objects]


def _spot(obj: CutOut, side: int, rng: np.random.Generator) -> Spot:
    least, most = (size * side / SIDE for size in SIZES)
    longest = max(obj.mask.shape)
    drawn = math.exp(rng.uniform(math.log(least), math.log(max(least, min(most, ENLARGED * longest)))))
    factor = drawn / longest
    height, width = (max(2, round(length * factor)) for length in obj.mask.shape)
    foot = round(rng.uniform(max(height, GROUND[0] * side), max(height, GROUND[1] * side)))
    return Spot(factor, foot - height, int(rng.integers(side - width + 1)))


def _drawing_order(objects: Sequence[CutOut], spots: Sequence[Spot]) -> list[int]:
    """Return the drawing order of the objects: lower in the image is nearer and drawn later."""
    foot = [
        spot.top + max(2, round(obj.mask.shape[0] * spot.factor))
        for obj, spot in zip(objects, spots, strict=True)
    ]
    return sorted(range(len(objects)), key=lambda i: foot[i])


def visible_parts(objects: Sequence[CutOut], spots: Sequence[Spot], side: int) -> list[Seen]:
    """Return the visible part of each object: pixels at least half opaque and not hidden by a nearer
    object.
    """
    taken = np.zeros((side, side), bool)
    visible: dict[int, Seen] = {}
    for i in reversed(_drawing_order(objects, spots)):
        own = resized_mask(objects[i], spots[i].factor) >= 0.5
        top, left = spots[i].top, spots[i].left
        behind = taken[top : top + own.shape[0], left : left + own.shape[1]]
        visible[i] = _visible_part(own & ~behind, int(own.sum()), top, left)
        behind |= own
    return [visible[i] for i in range(len(objects))]


def _visible_part(
    free: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], whole: int, top: int, left: int
) -> Seen:
    rows, cols = (np.flatnonzero(free.any(axis)) for axis in (1, 0))
    if not len(rows):
        return Seen(0.0, 0, (float(left), float(top), float(left), float(top)))
    box = (left + cols[0], top + rows[0], left + cols[-1] + 1, top + rows[-1] + 1)
    return Seen(int(free.sum()) / whole, int(free.sum()), tuple(map(float, box)))  # type: ignore[arg-type]


def draw(objects: Sequence[CutOut], spots: Sequence[Spot], place: Image_of, shadow: float = 0.55) -> Image_of:
    """Return the image (sRGB) of the objects in a place, drawn back to front."""
    ground = to_linear(place)
    for i in _drawing_order(objects, spots):
        light, mask = resized(objects[i], spots[i].factor)
        paste(light, mask, ground, spots[i].top, spots[i].left, shadow)
    return to_srgb(ground)
