"""Test charts and the numbers read off them: a slanted edge, spilled coins (dead leaves), texture MTF and acutance.

Charts are gray H x W arrays with values 0..1.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError
from sorites.optics.mtf import FREQUENCIES

Array = NDArray[np.float64]


def slanted_edge(size: int = 224, degrees: float = 5.0, low: float = 0.2, high: float = 0.8) -> Array:
    """Return a dark half beside a light half with the edge turned from the vertical; pixels on it are mixed by coverage."""
    middle = np.arange(size) - (size - 1) / 2
    turn = np.deg2rad(degrees)
    across = middle[None, :] * np.cos(turn) - middle[:, None] * np.sin(turn)
    return np.asarray(low + (high - low) * np.clip(across + 0.5, 0, 1))


@functools.lru_cache(maxsize=4)
def spilled_coins(size: int = 224, seed: int = 0, smallest: float = 1.0, fine: int = 3) -> Array:
    """Return overlapping disks of random gray, sized so that no scale is preferred (radius density r^-3).

    Radii run from ``smallest`` px to a quarter of the chart. The disks are drawn front to back at ``fine`` times the size, then
    averaged.
    """
    rng, side = np.random.default_rng(seed), size * fine
    chart = np.full((side, side), np.nan)
    bare = side * side
    while bare > 0.0005 * side * side:
        shares = rng.random((256, 4))
        radii = (smallest**-2.0 + shares[:, 0] * ((size / 4) ** -2.0 - smallest**-2.0)) ** -0.5 * fine
        for (_, x, y, gray), radius in zip(shares, radii, strict=True):
            bare -= _lay(chart, x * side, y * side, radius, gray)
    chart[np.isnan(chart)] = 0.5
    return np.asarray(chart.reshape(size, fine, size, fine).mean((1, 3)))


def _lay(chart: Array, x: float, y: float, radius: float, gray: float) -> int:
    """Draw a disk behind everything drawn so far, and return the number of pixels where it is visible."""
    left, top = max(0, int(x - radius)), max(0, int(y - radius))
    part = chart[top : int(y + radius) + 2, left : int(x + radius) + 2]
    rows, cols = np.ogrid[: part.shape[0], : part.shape[1]]
    shown = ((rows + top - y) ** 2 + (cols + left - x) ** 2 <= radius**2) & np.isnan(part)
    part[shown] = gray
    return int(shown.sum())


def _power(chart: Array) -> Array:
    """Return the power spectrum, Hann-tapered and averaged over all directions, at whole cycles per chart up to Nyquist."""
    size = len(chart)
    taper = np.hanning(size)
    spectrum = np.abs(np.fft.fft2((chart - chart.mean()) * np.outer(taper, taper))) ** 2
    cycles = np.fft.fftfreq(size, 1 / size)
    ring = np.rint(np.hypot(cycles[:, None], cycles[None, :])).astype(int).ravel()
    counts = np.bincount(ring)
    return np.asarray((np.bincount(ring, spectrum.ravel()) / counts)[: size // 2 + 1])


def texture_mtf(ideal: Array, seen: Array, noise: float = 0.0) -> Array:
    """Return sqrt((power seen - power of the noise) / power of the ideal chart) at ``mtf.FREQUENCIES``.

    The method follows Burns, "Refined measurement of digital image texture loss" (2013). ``noise`` is the variance of white
    noise.
    """
    if ideal.shape != seen.shape or ideal.ndim != 2 or ideal.shape[0] != ideal.shape[1]:
        raise SoritesError(f"texture MTF: wanted two square gray charts of one size, got {ideal.shape} and {seen.shape}")
    size = len(ideal)
    floor = noise * (np.hanning(size) ** 2).sum() ** 2
    ratio = np.sqrt(np.clip(_power(seen) - floor, 0, None) / _power(ideal))
    ratio[0] = 1.0
    return np.asarray(np.interp(FREQUENCIES, np.arange(len(ratio)) / size, ratio))


def acutance(curve: Array, pixels_per_degree: float = 59.0) -> float:
    """Weight an MTF by the eye's contrast sensitivity, 75 v^0.8 exp(-0.2 v) / 34.05 with v in cycles per degree (CPIQ).

    The default is a screen of 0.254 mm pixels seen from 86 cm. The result is 1 without blur.
    """
    cycles = FREQUENCIES * pixels_per_degree
    weight = 75 * cycles**0.8 * np.exp(-0.2 * cycles) / 34.05
    return float(np.trapezoid(curve * weight, FREQUENCIES) / np.trapezoid(weight, FREQUENCIES))
