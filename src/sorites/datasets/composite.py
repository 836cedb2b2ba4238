"""Compose a cut-out into a place (scale, position, light, shadow) with the exact box around it; add weather and night."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from sorites import core
from sorites.core import Image, Picture, to_image
from sorites.errors import SoritesError
from sorites.shifts._air import GREY, to_light, to_shown
from sorites.shifts._fields import Field, smooth

TALL, WIDE = 0.66, 0.80
"""The largest height and width of a thing, as shares of the place's side; the pose draws a size slightly below."""

FOOT = (0.84, 0.90)
"""The range of the height at which a thing stands on the ground, as shares of the place's side from the top."""

WEATHER = {"foggy": ("haze", 1.0), "raining": ("rain", 1.5), "snowing": ("snowfall", 1.2)}
"""The shift and the severity for each word for weather."""

NIGHT = (0.115, 0.13, 0.20)
"""The share of daylight that is left at night, by channel."""

LAMP, GRAIN = 1.6, 0.012
"""The gain of a lamp in the middle at night, and the standard deviation of the noise in the dark, in linear light."""


@dataclass(frozen=True)
class CutOut:
    """A thing without its surroundings: its colours in linear light and its mask 0..1, both trimmed to the visible part."""

    light: Image
    mask: Field


@dataclass(frozen=True)
class Pose:
    """The size and position of a thing in a place: a scale, and its middle and its foot as shares of the place's side."""

    scale: float
    middle: float
    foot: float


def cut_out(picture: Picture, alpha: NDArray[np.uint8], ground: int = 128) -> CutOut:
    """Return the thing alone. The gray ``ground`` that partly transparent pixels were mixed with is removed from them."""
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


def insert(thing: CutOut, place: Image, at: Pose, shadow: float = 0.55) -> tuple[Image, tuple[float, float, float, float]]:
    """Return the picture of the thing in the place (sRGB) and the box around its pixels that are at least half opaque: x0, y0,
    x1, y1 in px."""
    side = place.shape[0]
    light, mask = _sized(thing, side, at.scale)
    height, width = mask.shape
    top, left = _corner(mask, side, at)
    ground = to_light(place)
    ground *= 1 - shadow * _shadow(mask, side, top, left)[..., None]
    inside = (slice(top, top + height), slice(left, left + width))
    lit = _lit(light, mask, ground[inside])
    ground[inside] += (lit - ground[inside]) * mask[..., None]
    return to_shown(ground), _box(mask, top, left)


def box_of(thing: CutOut, side: int, at: Pose) -> tuple[float, float, float, float]:
    """Return the box that ``insert`` gives in a place of ``side`` px, without making the picture."""
    _, mask = _sized(thing, side, at.scale)
    return _box(mask, *_corner(mask, side, at))


def _corner(mask: Field, side: int, at: Pose) -> tuple[int, int]:
    """Return the row and the column of the thing's upper left corner."""
    height, width = mask.shape
    return round(side * at.foot) - height, round(side * at.middle - width / 2)


def _box(mask: Field, top: int, left: int) -> tuple[float, float, float, float]:
    rows, cols = (np.flatnonzero((mask >= 0.5).any(axis)) for axis in (1, 0))
    return float(left + cols[0]), float(top + rows[0]), float(left + cols[-1] + 1), float(top + rows[-1] + 1)


def _sized(thing: CutOut, side: int, scale: float) -> tuple[Image, Field]:
    """Return the thing scaled, with its mask; colours are weighted by the mask so that no border shows."""
    height, width = thing.mask.shape
    factor = scale * min(TALL * side / height, WIDE * side / width)
    size = (max(2, round(width * factor)), max(2, round(height * factor)))

    def scaled(plane: Field) -> Field:
        resized = Pillow.fromarray(np.ascontiguousarray(plane)).resize(
            size, Pillow.Resampling.BOX if factor < 1 else Pillow.Resampling.BILINEAR
        )
        return np.asarray(resized)

    mask = np.clip(scaled(thing.mask), 0, 1)
    planes = [scaled(thing.light[..., c] * thing.mask) / np.maximum(mask, np.float32(1e-3)) for c in range(3)]
    return np.clip(np.stack(planes, axis=-1), 0, 1), mask


def _shadow(mask: Field, side: int, top: int, left: int) -> Field:
    """Return the darkness of the shadow at the foot: the lowest part of the thing flattened onto the ground and blurred, darkest
    where it touches."""
    height, width = mask.shape
    flat = max(3, height // 9)
    low = mask[-max(1, height // 3) :].max(axis=0)
    field = np.zeros((side, side), np.float32)
    foot = top + height
    rows = slice(max(0, foot - flat), min(side, foot + flat // 2))
    field[rows, left : left + width] = low
    soft: Field = 0.6 * smooth(field, side / 40, truncate=3) + 0.4 * smooth(field, side / 120, truncate=3)
    return soft


def _lit(light: Image, mask: Field, behind: Image) -> Image:
    """Return the thing in the place's light: a third of the way to its brightness and a fifth to its colour."""
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
    """Return the image at night: little, bluish light, a lamp near the middle, and the noise of a long exposure."""
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
