"""Measures of pixel values: PSNR, SSIM and the share of values that were clipped.

``optics.quality`` has PSNR and SSIM for values 0..1; its sums are on another scale and in another order: the last bits differ.
"""

from __future__ import annotations

import math

import numpy as np

from sorites.core import Picture, add_measure
from sorites.errors import BadPicture


@add_measure(nearer="higher", unit="dB")
def psnr(reference: Picture, moved: Picture) -> float:
    """Peak signal-to-noise ratio in dB with white = 255; infinite for equal pictures."""
    error = np.square(reference.astype(np.float64) - moved).mean()
    return float(10 * math.log10(255**2 / error)) if error else math.inf


@add_measure(nearer="higher", unit="-1 to 1")
def ssim(reference: Picture, moved: Picture) -> float:
    """Structural similarity (Wang et al. 2004), mean over pixels and channels; 1 for equal pictures.

    The window is Gaussian, 11 px wide with sigma 1.5; a picture must be 11 px or more on each side.
    """
    if min(reference.shape[:2]) < 11:
        raise BadPicture(f"SSIM looks through a window of 11 px; the picture is {reference.shape[1]}x{reference.shape[0]}")
    from sorites.optics.quality import window

    x, y = reference.astype(np.float64), moved.astype(np.float64)
    mean_x, mean_y = window(x), window(y)
    var_x, var_y = window(x * x) - mean_x**2, window(y * y) - mean_y**2
    both = window(x * y) - mean_x * mean_y
    flat, steep = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    alike = (2 * mean_x * mean_y + flat) * (2 * both + steep) / ((mean_x**2 + mean_y**2 + flat) * (var_x + var_y + steep))
    return float(alike[5:-5, 5:-5].mean())


@add_measure(nearer="lower", unit="share of values")
def clipped_share(reference: Picture, moved: Picture) -> float:
    """Share of values at 0 or 255 that were not so in the reference; 0 for equal pictures, at most 1."""
    ends = np.isin(moved, (0, 255)) & ~np.isin(reference, (0, 255))
    return float(ends.mean())
