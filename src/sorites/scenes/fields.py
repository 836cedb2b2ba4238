"""Fields of numbers over an image, such as noise, blurs and streaks, shared by several shifts.

They are sums of shifted slices instead of FFTs: exact at the border, deterministic across threads, and fast
for the short reaches used here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sorites.core.samples import ImageF32
from sorites.optics.develop import light_of_bytes, srgb_from_linear

# An array of H x W, or H x W x C.
Field = NDArray[np.float32]


def gaussian_taps(sigma: float, truncate: float = 4.0) -> NDArray[np.float64]:
    """Return the weights of a Gaussian from 0 to its reach (px); the first counts once, the others twice,
    and they sum to 1.
    """
    reach = int(truncate * sigma + 0.5)
    taps: NDArray[np.float64] = np.exp(-0.5 * (np.arange(reach + 1) / max(sigma, 1e-9)) ** 2)
    taps /= 2 * taps.sum() - 1
    return taps


def smooth(
    field: Field,
    sigma: float | tuple[float, float],
    *,
    truncate: float = 4.0,
    mode: Literal["edge", "symmetric"] = "edge",
) -> Field:
    """Blur rows and columns with a Gaussian cut at ``truncate`` sigma; ``sigma`` is in px, one number or
    one per axis.
    """
    sigmas = sigma if isinstance(sigma, tuple) else (sigma, sigma)
    for axis in (0, 1):
        field = _smooth_along(field, gaussian_taps(sigmas[axis], truncate).astype(np.float32), axis, mode)
    return field


def mean_3x3(field: Field) -> Field:
    """Return the mean over 3 x 3 px."""
    third = np.full(2, 1 / 3, np.float32)
    return _smooth_along(_smooth_along(field, third, 0, "edge"), third, 1, "edge")


def _smooth_along(field: Field, taps: Field, axis: int, mode: Literal["edge", "symmetric"]) -> Field:
    reach, length = len(taps) - 1, field.shape[axis]
    wide = np.pad(field, [(reach, reach) if a == axis else (0, 0) for a in range(field.ndim)], mode=mode)

    def part(start: int) -> Field:
        return wide[start : start + length] if axis == 0 else wide[:, start : start + length]

    out: Field = part(reach) * taps[0]
    pair = np.empty_like(out)
    for step in range(1, reach + 1):
        np.add(part(reach - step), part(reach + step), out=pair)
        pair *= taps[step]
        out += pair
    return out


def streak(field: Field, weights: Sequence[float], angle: float) -> Field:
    """Return the weighted sum of the field at whole pixels 0, 1, 2, ... px away along ``angle`` (radians,
    y down).
    """
    steps = np.arange(len(weights))
    rows = np.ceil(steps * math.sin(angle) - 0.5).astype(int)
    cols = np.ceil(steps * math.cos(angle) - 0.5).astype(int)
    top, left = -min(0, rows.min()), -min(0, cols.min())
    margins = [(top, max(0, rows.max())), (left, max(0, cols.max()))]
    wide = np.pad(field, margins + [(0, 0)] * (field.ndim - 2), mode="edge")
    out, part = np.zeros_like(field), np.empty_like(field)
    height, width = field.shape[:2]
    for row, col, weight in zip(rows + top, cols + left, weights, strict=True):
        np.multiply(wide[row : row + height, col : col + width], np.float32(weight), out=part)
        out += part
    return out


def half_gaussian(reach: float, sigma: float) -> list[float]:
    """Return the weights at 0, 1, 2, ... px from a Gaussian's middle, ``2 reach + 1`` of them with the
    last one partial.
    """
    steps = np.arange(math.ceil(2 * reach + 1))
    weights = np.exp(-0.5 * (steps / max(sigma, 1e-9)) ** 2) * np.clip(2 * reach + 1 - steps, 0, 1)
    weights /= weights.sum()
    count = int(np.flatnonzero(weights > 1e-5)[-1]) + 1
    return [float(weight) for weight in weights[:count]]


def stretch(field: Field, zoom: float) -> Field:
    """Enlarge the middle of a field by ``zoom`` (>= 1) bilinearly, with the outermost kept values on the
    border.
    """
    from PIL import Image as pil

    height, width = field.shape
    (top, bottom), (left, right) = (_middle(side, zoom) for side in (height, width))
    resized = pil.fromarray(field).resize(
        (width, height), pil.Resampling.BILINEAR, box=(left, top, right, bottom)
    )
    return np.asarray(resized)


def _middle(length: int, zoom: float) -> tuple[float, float]:
    """Return the start and end of the kept pixels as a Pillow box: half a (small) pixel beyond the first
    and last value.
    """
    length_kept = max(length / zoom, 1.0)
    scale = (length_kept - 1) / (length - 1) if length_kept > 1 else 1 / length
    start = (length - length_kept) / 2 + 0.5 - 0.5 * scale
    return start, min(start + length * scale, length)


def across(height: int, width: int, angle: float) -> Field:
    """Return the position of each pixel along a direction (radians): 0 at the first corner reached, 1 at
    the last.
    """
    y, x = np.arange(height, dtype=np.float32)[:, None], np.arange(width, dtype=np.float32)
    along = y * np.float32(math.sin(angle)) + x * np.float32(math.cos(angle))
    along -= along.min()
    along /= np.float32(max(float(along.max()), 1e-6))
    return along


def front_mask(along: Field, part: float) -> Field:
    """Return 1 where a soft front at ``part`` of the way has passed, 0 elsewhere."""
    front = (np.float32(1.1 * part) - along) * np.float32(10)
    return np.clip(front, 0, 1, out=front)


def plasma_noise(side: int, rng: np.random.Generator) -> list[Field]:
    """Draw the noise of ``plasma`` for a square of at least ``side`` px: three uniform grids in -1..1 per
    octave.
    """
    octaves = max(1, (side - 1).bit_length())
    return [
        rng.random((3, 1 << k, 1 << k), dtype=np.float32) * np.float32(2) - np.float32(1)
        for k in range(octaves)
    ]


def plasma(noise: Sequence[Field], decay: float) -> Field:
    """Return periodic diamond-square heights in 0..1 (Fournier, Fussell and Carpenter 1982).

    The noise of each octave is ``decay`` squared times weaker than the previous one.
    """
    corner, gain = np.zeros((1, 1), np.float32), 1.0
    for draw in noise:
        grain, quarter = draw * np.float32(gain), np.float32(0.25)
        down, right = np.roll(corner, -1, 0), np.roll(corner, -1, 1)
        middle = (corner + down + right + np.roll(down, -1, 1)) * quarter + grain[0]
        top = (middle + np.roll(middle, 1, 0) + corner + right) * quarter + grain[1]
        side = (middle + np.roll(middle, 1, 1) + corner + down) * quarter + grain[2]
        finer = np.empty((2 * len(corner), 2 * len(corner)), np.float32)
        finer[::2, ::2], finer[1::2, 1::2], finer[::2, 1::2], finer[1::2, ::2] = corner, middle, top, side
        corner, gain = finer, gain / decay**2
    corner -= corner.min()
    corner /= corner.max()
    return corner


# Weights of linear red, green and blue in luminance (ITU-R BT.709).
GREY = np.array([0.2126, 0.7152, 0.0722], np.float32)


@cache
def _tables() -> tuple[Field, Field]:
    """Return the tables from sRGB to linear light (per 8-bit value) and back (2^14 steps), finer than
    8-bit rounding.
    """
    steps = np.arange((1 << 14) + 1) / (1 << 14)
    return light_of_bytes().astype(np.float32), srgb_from_linear(steps).astype(np.float32)


def to_linear(image: ImageF32) -> ImageF32:
    """Convert sRGB to linear light, interpolating linearly between 8-bit values."""
    table = _tables()[0]
    scaled = image * np.float32(255)
    low = np.minimum(scaled.astype(np.uint8), 254)
    part = scaled - low
    light = np.take(table, low)
    light += part * (np.take(table, low + 1) - light)
    return light


def to_srgb(light: ImageF32) -> ImageF32:
    """Convert linear light to sRGB, clipping at white."""
    steps = np.clip(light, 0, 1)
    steps *= np.float32(1 << 14)
    steps += np.float32(0.5)
    return np.take(_tables()[1], steps.astype(np.int16))
