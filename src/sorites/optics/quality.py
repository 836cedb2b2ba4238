"""PSNR and SSIM tell how alike two images are.

Images are H x W or H x W x C with values 0..1; channels are averaged.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError

Array = NDArray[np.float64]
# The 11 x 11 Gaussian window of Wang et al. 2004.
SIGMA, REACH = 1.5, 5
# This many windows per side are averaged at a time: strips stay in the processor's cache.
STEP = 16


def psnr(first: Array, second: Array) -> float:
    """Return 10 log10(1 / mean squared difference) in dB; it is infinite for equal images."""
    _same(first, second)
    error = float(np.mean((np.asarray(first, np.float64) - second) ** 2))
    return math.inf if error == 0 else -10 * math.log10(error)


def ssim(first: NDArray[Any], second: NDArray[Any], white: float = 1.0) -> float:
    """Return the structural similarity (Wang et al. 2004), averaged over all windows that lie
    inside the image.
    """
    _same(first, second)
    a, b = (np.moveaxis(np.atleast_3d(np.asarray(x)), -1, 0) for x in (first, second))
    channels, high, wide = a.shape
    maps, down = (np.empty((4, channels, rows, wide)) for rows in (STEP + 2 * REACH, STEP))
    means, total = np.empty((4, channels, STEP, wide - 2 * REACH)), 0.0
    for i in _starts(high):
        rows = min(STEP, high - 2 * REACH - i)
        strip = maps[:, :, : rows + 2 * REACH]
        _fill(strip, a[:, i : i + strip.shape[2]], b[:, i : i + strip.shape[2]])
        total += _alike(_windows(strip, down[:, :, :rows], means[:, :, :rows]), white)
    return float(total / (channels * (high - 2 * REACH) * (wide - 2 * REACH)))


def _fill(maps: Array, first: NDArray[Any], second: NDArray[Any]) -> None:
    """Set the maps to both images, the sum of their squares and their product."""
    a, b, squares, product = maps
    a[...], b[...] = first, second
    np.multiply(b, b, out=squares)
    np.multiply(a, a, out=product)
    squares += product
    np.multiply(a, b, out=product)


def _windows(maps: Array, down: Array, means: Array) -> Array:
    """Average maps of ... x H x W over every Gaussian window that lies inside, as products with a
    band of weights.

    Products of a few windows at a time keep most of the band's zeros out, and run at the speed of
    matrices; ``down`` and ``means`` are written to, because new memory costs as much as the sums.
    """
    np.matmul(_band(maps.shape[-2]), maps, out=down)
    for i in _starts(maps.shape[-1]):
        part = down[..., i : i + STEP + 2 * REACH]
        np.matmul(part, _band(part.shape[-1]).T, out=means[..., i : i + STEP])
    return means


def _alike(means: Array, white: float) -> float:
    """Return the sum of the similarity over the windows, from the means of both, of their squares
    and of their product.

    It is (2 ab + one) (2 (product - ab) + two) / ((aa + bb + one) (squares - aa - bb + two)), in
    the memory of the means.
    """
    a, b, squares, product = means
    one, two = (0.01 * white) ** 2, (0.03 * white) ** 2
    both = a * b
    product -= both
    for top in (both, product):
        top *= 2
    a *= a
    b *= b
    a += b
    squares -= a
    for part, more in ((both, one), (product, two), (a, one), (squares, two)):
        part += more
    both *= product
    a *= squares
    both /= a
    return float(both.sum())


def _starts(side: int) -> range:
    return range(0, side - 2 * REACH, STEP)


@cache
def _band(side: int) -> Array:
    """Return the weights of the windows inside ``side`` pixels, one window a row."""
    taps = np.exp(-0.5 * (np.arange(-REACH, REACH + 1) / SIGMA) ** 2)
    band = np.zeros((side - 2 * REACH, side))
    for i, row in enumerate(band):
        row[i : i + len(taps)] = taps / taps.sum()
    return band


def _same(first: NDArray[Any], second: NDArray[Any]) -> None:
    """Raise an error unless both images have one shape, larger than the window."""
    if np.shape(first) != np.shape(second) or min(np.shape(first)[:2]) <= 2 * REACH:
        raise SoritesError(
            f"wanted two images of one shape with sides above {2 * REACH} px, got {np.shape(first)} and"
            f" {np.shape(second)}"
        )
