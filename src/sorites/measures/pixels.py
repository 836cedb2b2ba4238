"""Measures of pixel values: PSNR, SSIM and the share of values that were clipped."""

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
    from sorites.optics import quality

    return quality.ssim(reference, moved, white=255)


@add_measure(nearer="lower", unit="share of values")
def clipped_share(reference: Picture, moved: Picture) -> float:
    """Share of values at 0 or 255 that were not so in the reference; 0 for equal pictures, at most 1."""
    ends = np.isin(moved, (0, 255)) & ~np.isin(reference, (0, 255))
    return float(ends.mean())
