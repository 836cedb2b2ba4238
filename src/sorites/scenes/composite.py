"""Compose a cut-out into a place (scale, position, light, shadow) with the exact box around it; add
weather and night.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from sorites import core
from sorites.core import Image, Picture, to_image
from sorites.core.errors import SoritesError
from sorites.core.samples import Image as Image_of
from sorites.scenes.fields import GREY, Field, smooth, to_light, to_shown

# The largest height and width of a thing, as shares of the place's side; the pose draws a size
# slightly below.
TALL, WIDE = 0.66, 0.80

# The range of the height at which a thing stands on the ground, as shares of the place's side from
# the top.
FOOT = (0.84, 0.90)

# The shift and the severity for each word for weather.
WEATHER = {"foggy": ("haze", 1.0), "raining": ("rain", 1.5), "snowing": ("snowfall", 1.2)}

# The share of daylight that is left at night, by channel.
NIGHT = (0.115, 0.13, 0.20)

# The gain of a lamp in the middle at night, and the standard deviation of the noise in the dark, in
# linear light.
LAMP, GRAIN = 1.6, 0.012


@dataclass(frozen=True)
class CutOut:
    """A thing without its surroundings: its colours in linear light and its mask 0..1, both trimmed
    to the visible part.
    """

    light: Image
    mask: Field


@dataclass(frozen=True)
class Pose:
    """The size and position of a thing in a place: a scale, and its middle and its foot as shares
    of the place's side.
    """

    scale: float
    middle: float
    foot: float


def cut_out(picture: Picture, alpha: NDArray[np.uint8], ground: int = 128) -> CutOut:
    """Return the thing alone.

    The gray ``ground`` that partly transparent pixels were mixed with is removed from them.
    """
    mask = alpha.astype(np.float32) * np.float32(1 / 255)
    rows, cols = (np.flatnonzero((mask > 0.02).any(axis)) for axis in (1, 0))
    if not len(rows):
        raise SoritesError("wanted a cut-out, got a picture whose mask is empty")
    box = (slice(rows[0], rows[-1] + 1), slice(cols[0], cols[-1] + 1))
    shown, cover = to_image(picture[box]), mask[box][..., None]
    colours = (shown - (1 - cover) * np.float32(ground / 255)) / np.maximum(cover, np.float32(0.05))
    return CutOut(to_light(np.clip(colours, 0, 1).astype(np.float32)), mask[box])


def draw_pose(rng: np.random.Generator) -> Pose:
    """Draw a pose."""
    return Pose(rng.uniform(0.88, 1.0), rng.uniform(0.44, 0.56), rng.uniform(*FOOT))


def insert(
    thing: CutOut, place: Image, at: Pose, shadow: float = 0.55
) -> tuple[Image, tuple[float, float, float, float]]:
    """Return the picture of the thing in the place (sRGB) and the box around its pixels that are at
    least half opaque: x0, y0, x1, y1 in px.
    """
    side = place.shape[0]
    light, mask = resized(thing, _fitting(thing, side, at.scale))
    top, left = _corner(mask, side, at)
    ground = to_light(place)
    paste(light, mask, ground, top, left, shadow)
    return to_shown(ground), _box(mask, top, left)


def box_of(thing: CutOut, side: int, at: Pose) -> tuple[float, float, float, float]:
    """Return the box that ``insert`` gives in a place of ``side`` px, without making the picture."""
    mask = resized_mask(thing, _fitting(thing, side, at.scale))
    return _box(mask, *_corner(mask, side, at))


def _corner(mask: Field, side: int, at: Pose) -> tuple[int, int]:
    """Return the row and the column of the thing's upper left corner."""
    height, width = mask.shape
    return round(side * at.foot) - height, round(side * at.middle - width / 2)


def _box(mask: Field, top: int, left: int) -> tuple[float, float, float, float]:
    rows, cols = (np.flatnonzero((mask >= 0.5).any(axis)) for axis in (1, 0))
    return float(left + cols[0]), float(top + rows[0]), float(left + cols[-1] + 1), float(top + rows[-1] + 1)


def paste(light: Image, mask: Field, ground: Image, top: int, left: int, shadow: float = 0.55) -> None:
    """Lay a thing and its shadow on ``ground``, which is in linear light; the whole thing has to
    lie inside of it.
    """
    height, width = mask.shape
    where, dark = _shadow(mask, ground.shape[0], top, left)
    ground[where] *= 1 - shadow * dark[..., None]
    inside = (slice(top, top + height), slice(left, left + width))
    lit = _lit(light, mask, ground[inside])
    ground[inside] += (lit - ground[inside]) * mask[..., None]


def _fitting(thing: CutOut, side: int, scale: float) -> float:
    height, width = thing.mask.shape
    return scale * min(TALL * side / float(height), WIDE * side / float(width))


def resized(thing: CutOut, factor: float) -> tuple[Image, Field]:
    """Return the thing scaled, with its mask; colours are weighted by the mask so that no border shows."""
    mask = resized_mask(thing, factor)
    planes = [
        _scaled(thing.light[..., c] * thing.mask, factor) / np.maximum(mask, np.float32(1e-3))
        for c in range(3)
    ]
    return np.clip(np.stack(planes, axis=-1), 0, 1), mask


def resized_mask(thing: CutOut, factor: float) -> Field:
    """Return the mask of the thing scaled, as ``resized`` does."""
    return np.clip(_scaled(thing.mask, factor), 0, 1)


def _scaled(plane: Field, factor: float) -> Field:
    height, width = plane.shape
    size = (max(2, round(width * factor)), max(2, round(height * factor)))
    resample = Pillow.Resampling.BOX if factor < 1 else Pillow.Resampling.BILINEAR
    return np.asarray(Pillow.fromarray(np.ascontiguousarray(plane)).resize(size, resample))


def _shadow(mask: Field, side: int, top: int, left: int) -> tuple[tuple[slice, slice], Field]:
    """Return where the shadow at the foot lies and its darkness: the lowest part of the thing
    flattened onto the ground and blurred, darkest where it touches.
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


def _lit(light: Image, mask: Field, behind: Image) -> Image:
    """Return the thing in the place's light: a third of the way to its brightness and a fifth to
    its colour.
    """
    weight = mask.sum() + 1e-6
    mine = np.einsum("hwc,hw->c", light, mask) / weight
    theirs = behind.reshape(-1, 3).mean(axis=0)
    gain = np.clip((theirs @ GREY + 0.02) / (mine @ GREY + 0.02), 0.4, 2.5) ** 0.33
    tint = np.clip((theirs / (theirs @ GREY + 1e-4)) ** 0.2, 0.8, 1.25)
    lit: Image = np.clip(light * (gain * tint).astype(np.float32), 0, 1)
    return lit


def weathered(image: Image, weather: str, rng: np.random.Generator) -> Image:
    """Return the image through fog, rain or snow; other words for weather leave it unchanged."""
    if weather not in WEATHER:
        return image
    name, severity = WEATHER[weather]
    return core.shift(name)(image, severity, rng)


def at_night(image: Image, rng: np.random.Generator) -> Image:
    """Return the image at night: little, bluish light, a lamp near the middle, and the noise of a
    long exposure.
    """
    side = image.shape[0]
    y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j].astype(np.float32)
    lamp = 1 + np.float32(LAMP) * np.exp(-(x**2 + (y - 0.2) ** 2) / np.float32(0.35))
    light = to_light(image) * np.array(NIGHT, np.float32) * lamp[..., None]
    light += (
        rng.standard_normal(light.shape, dtype=np.float32)
        * np.float32(GRAIN)
        * np.sqrt(light + np.float32(0.02))
        / math.sqrt(0.1)
    )
    return to_shown(light)


# Several things in one place, some in front of others, with a box around the part of each that can be
# seen.


# The side in px for which the sizes of things are given; in a picture of another side they grow
# with it.
SIDE = 640

# The shortest and the longest that the longer side of a thing may be, in px of a picture of
# ``SIDE``.
SIZES = (48.0, 400.0)

# The most that a cut-out is enlarged: beyond it a thing would be blurred before any shift.
ENLARGED = 2.5

# The least share of a thing that has to be seen; one that is hidden further has no box.
SEEN = 0.25

# The range of the height at which things stand, as shares of the side from the top.
GROUND = (0.5, 0.98)


@dataclass(frozen=True)
class Spot:
    """The place of a thing: a scale of its cut-out, and its upper left corner in px."""

    factor: float
    top: int
    left: int


@dataclass(frozen=True)
class Seen:
    """The visible part of a thing: the share of its own pixels, their number, and the box around
    them (x0, y0, x1, y1).
    """

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
    """Return the order in which things are drawn: one that stands lower in the picture is nearer,
    and drawn later.
    """
    foot = [
        spot.top + max(2, round(thing.mask.shape[0] * spot.factor))
        for thing, spot in zip(things, spots, strict=True)
    ]
    return sorted(range(len(things)), key=lambda i: foot[i])


def seen(things: Sequence[CutOut], spots: Sequence[Spot], side: int) -> list[Seen]:
    """Return what can be seen of each thing: its pixels that are at least half opaque and not
    behind those of a nearer thing.
    """
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


def draw(things: Sequence[CutOut], spots: Sequence[Spot], place: Image_of, shadow: float = 0.55) -> Image_of:
    """Return the picture (sRGB) of the things in a place, far ones first."""
    ground = to_light(place)
    for i in _feet(things, spots):
        light, mask = resized(things[i], spots[i].factor)
        paste(light, mask, ground, spots[i].top, spots[i].left, shadow)
    return to_shown(ground)
