"""Image similarity: PSNR and SSIM.

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
# Windows per side that are averaged at a time, so that strips stay in the processor's cache.
STRIP = 16


def psnr(first: Array, second: Array) -> float:
    """Return 10 log10(1 / mean squared difference) in dB; infinite for equal images."""
    _check_shapes(first, second)
    error = float(np.mean((np.asarray(first, np.float64) - second) ** 2))
    return math.inf if error == 0 else -10 * math.log10(error)


def ssim(first: NDArray[Any], second: NDArray[Any], white: float = 1.0) -> float:
    """Return the structural similarity (Wang et al. 2004), averaged over all windows inside the image."""
    _check_shapes(first, second)
    a, b = (np.moveaxis(np.atleast_3d(np.asarray(x)), -1, 0) for x in (first, second))
    channels, high, wide = a.shape
    maps, down = (np.empty((4, channels, rows, wide)) for rows in (STRIP + 2 * REACH, STRIP))
    means, total = np.empty((4, channels, STRIP, wide - 2 * REACH)), 0.0
    for i in _starts(high):
        rows = min(STRIP, high - 2 * REACH - i)
        strip = maps[:, :, : rows + 2 * REACH]
        _fill(strip, a[:, i : i + strip.shape[2]], b[:, i : i + strip.shape[2]])
        total += _similarity_sum(_windows(strip, down[:, :, :rows], means[:, :, :rows]), white)
    return float(total / (channels * (high - 2 * REACH) * (wide - 2 * REACH)))


def _fill(maps: Array, first: NDArray[Any], second: NDArray[Any]) -> None:
    """Fill the maps with both images, the sum of their squares and their product."""
    a, b, squares, product = maps
    a[...], b[...] = first, second
    np.multiply(b, b, out=squares)
    np.multiply(a, a, out=product)
    squares += product
    np.multiply(a, b, out=product)


def _windows(maps: Array, down: Array, means: Array) -> Array:
    """Average maps (... x H x W) over every Gaussian window inside, as products with a banded weight matrix.

    Multiplying a few windows at a time skips most zeros of the band. ``down`` and ``means`` are reused
    buffers, as allocation would cost as much as the sums.
    """
    np.matmul(_band(maps.shape[-2]), maps, out=down)
    for i in _starts(maps.shape[-1]):
        part = down[..., i : i + STRIP + 2 * REACH]
        np.matmul(part, _band(part.shape[-1]).T, out=means[..., i : i + STRIP])
    return means


def _similarity_sum(means: Array, white: float) -> float:
    """Return the sum of SSIM over the windows, computed in place.

    SSIM is (2 ab + c1) (2 (product - ab) + c2) / ((aa + bb + c1) (squares - aa - bb + c2)).
    """
    a, b, squares, product = means
    c1, c2 = (0.01 * white) ** 2, (0.03 * white) ** 2
    both = a * b
    product -= both
    for top in (both, product):
        top *= 2
    a *= a
    b *= b
    a += b
    squares -= a
    for part, constant in ((both, c1), (product, c2), (a, c1), (squares, c2)):
        part += constant
    both *= product
    a *= squares
    both /= a
    return float(both.sum())


def _starts(side: int) -> range:
    return range(0, side - 2 * REACH, STRIP)


@cache
def _band(side: int) -> Array:
    """Return the window weights over ``side`` pixels, one window per row."""
    taps = np.exp(-0.5 * (np.arange(-REACH, REACH + 1) / SIGMA) ** 2)
    band = np.zeros((side - 2 * REACH, side))
    for i, row in enumerate(band):
        row[i : i + len(taps)] = taps / taps.sum()
    return band


def _check_shapes(first: NDArray[Any], second: NDArray[Any]) -> None:
    if np.shape(first) != np.shape(second) or min(np.shape(first)[:2]) <= 2 * REACH:
        raise SoritesError(
            f"expected two images of one shape with sides above {2 * REACH} px, got {np.shape(first)} and"
            f" {np.shape(second)}"
        )
