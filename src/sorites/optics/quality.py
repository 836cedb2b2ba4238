"""PSNR and SSIM tell how alike two pictures are. Pictures are H x W or H x W x C with values 0..1; channels are averaged.

The measures of the same names compare pictures of 8 bits and sum on their scale: the last bits differ.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from sorites.errors import SoritesError

Array = NDArray[np.float64]
SIGMA, REACH = 1.5, 5
"""The 11 x 11 Gaussian window of Wang et al. 2004."""


def psnr(first: Array, second: Array) -> float:
    """Return 10 log10(1 / mean squared difference) in dB; it is infinite for equal pictures."""
    _same(first, second)
    error = float(np.mean((np.asarray(first, np.float64) - second) ** 2))
    return math.inf if error == 0 else -10 * math.log10(error)


def ssim(first: Array, second: Array) -> float:
    """Return the structural similarity (Wang et al. 2004), averaged over all windows that lie inside the picture."""
    _same(first, second)
    a, b = (np.atleast_3d(np.asarray(x, np.float64)) for x in (first, second))
    mean_a, mean_b = window(a), window(b)
    spread = window(a * a) - mean_a**2 + window(b * b) - mean_b**2
    shared = window(a * b) - mean_a * mean_b
    one, two = 0.01**2, 0.03**2
    light = (2 * mean_a * mean_b + one) / (mean_a**2 + mean_b**2 + one)
    inner = (light * (2 * shared + two) / (spread + two))[REACH:-REACH, REACH:-REACH]
    return float(inner.mean())


def window(values: Array) -> Array:
    """Average over the Gaussian window around each pixel of H x W x C; the border is mirrored."""
    return np.asarray(ndimage.gaussian_filter(values, (SIGMA, SIGMA, 0), radius=(REACH, REACH, 0)))


def _same(first: Array, second: Array) -> None:
    """Raise an error unless both pictures have one shape, larger than the window."""
    if np.shape(first) != np.shape(second) or min(np.shape(first)[:2]) <= 2 * REACH:
        raise SoritesError(
            f"wanted two pictures of one shape with sides above {2 * REACH} px, got {np.shape(first)} and {np.shape(second)}"
        )
