"""Modulation transfer function (MTF) of kernels, sharpness numbers derived from it, and test charts.

Frequencies are in cycles per pixel, 0 to 0.5 (Nyquist). The MTF is |sum of taps exp(-2 pi i f x)|, evaluated
directly at each frequency and angle, without binning or interpolation.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError

Array = NDArray[np.float64]
FREQUENCIES: Array = np.linspace(0, 0.5, 257)
# Angles in degrees from the x axis at which OpticsBench compares kernels.
SLICES = (0.0, 45.0, 90.0, 135.0)
# Angles over which the radial MTF is averaged.
RADIAL_ANGLES = tuple(np.arange(64) * 180 / 64)


@functools.lru_cache(maxsize=8)
def _waves(size: int, angles: tuple[float, ...], sine: bool) -> NDArray[np.complex128]:
    """Return exp(-2 pi i f x) by frequency, angle and tap along one axis."""
    turn = np.deg2rad(angles)
    along = np.multiply.outer(FREQUENCIES, np.sin(turn) if sine else np.cos(turn))
    return np.asarray(np.exp(-2j * np.pi * np.multiply.outer(along, np.arange(size) - (size - 1) / 2)))


def slices(taps: Array, angles: Sequence[float] = SLICES) -> Array:
    """Return the MTF along each angle, len(FREQUENCIES) x len(angles); it is 1 at frequency 0."""
    total = taps.sum()
    if taps.ndim != 2 or not np.isfinite(total) or total <= 0:
        raise SoritesError(
            f"MTF: expected a 2-D kernel with a positive sum, got shape {taps.shape} and sum {total}"
        )
    rows, cols = taps.shape
    down, across = _waves(rows, tuple(angles), True), _waves(cols, tuple(angles), False)
    return np.asarray(np.abs(np.einsum("fac,fac->fa", down @ (taps / total), across)))


def mtf(taps: Array, angle: float | None = None) -> Array:
    """Return the MTF at ``FREQUENCIES`` along one angle in degrees, or its mean over all directions."""
    return np.asarray(slices(taps, RADIAL_ANGLES if angle is None else (angle,)).mean(1))


def crossing(curve: Array, contrast: float) -> float:
    """Return the first frequency at which the curve falls to ``contrast``, or nan if it does not."""
    below = np.flatnonzero(curve <= contrast)
    if not below.size:
        return float("nan")
    i = max(int(below[0]), 1)
    share = (curve[i - 1] - contrast) / (curve[i - 1] - curve[i])
    return float(FREQUENCIES[i - 1] + share * (FREQUENCIES[i] - FREQUENCIES[i - 1]))


def area(curve: Array) -> float:
    """Return the mean of the curve up to Nyquist; 1 means no blur."""
    return float(np.trapezoid(curve, FREQUENCIES) / FREQUENCIES[-1])


@dataclass(frozen=True)
class Sharpness:
    """Frequencies at 50, 20 and 10 % contrast in cycles per pixel (nan above Nyquist), and the area under the
    MTF.
    """

    mtf50: float
    mtf20: float
    mtf10: float
    area: float


def sharpness(taps: Array, angle: float | None = None) -> Sharpness:
    """Return the sharpness of a ``(kh, kw)`` kernel, or the mean over the channels of a ``(C, kh, kw)``
    kernel.
    """
    planes = taps if taps.ndim == 3 else taps[None]
    curves = [mtf(plane, angle) for plane in planes]
    read = [(*(crossing(curve, at) for at in (0.5, 0.2, 0.1)), area(curve)) for curve in curves]
    return Sharpness(*np.mean(read, axis=0).tolist())


def encircled(taps: Array, radius_px: float) -> float:
    """Return the share of the light within a radius of the centre of mass, counting pixels whose centre is
    inside.
    """
    rows, cols = (np.arange(n) - (n - 1) / 2 for n in taps.shape)
    total = taps.sum()
    x, y = taps.sum(0) @ cols / total, taps.sum(1) @ rows / total
    inside = np.hypot(cols[None, :] - x, rows[:, None] - y) <= radius_px
    return float(taps[inside].sum() / total)


def strehl(taps: Array, perfect: Array) -> float:
    """Return the peak of a kernel relative to the peak of the same camera's aberration-free kernel."""
    return float(taps.max() / taps.sum() / (perfect.max() / perfect.sum()))


# Test charts
def slanted_edge(size: int = 224, degrees: float = 5.0, low: float = 0.2, high: float = 0.8) -> Array:
    """Return a chart with a dark and a light half; pixels on the tilted edge are mixed by coverage."""
    middle = np.arange(size) - (size - 1) / 2
    turn = np.deg2rad(degrees)
    across = middle[None, :] * np.cos(turn) - middle[:, None] * np.sin(turn)
    return np.asarray(low + (high - low) * np.clip(across + 0.5, 0, 1))


@functools.lru_cache(maxsize=4)
def spilled_coins(size: int = 224, seed: int = 0, smallest: float = 1.0, fine: int = 3) -> Array:
    """Return a dead-leaves chart: overlapping disks of random gray with scale-invariant radii (density r^-3).

    Args:
        size: Side of the chart in px.
        seed: Seed of the disks.
        smallest: Smallest radius in px; the largest is a quarter of the chart.
        fine: Supersampling factor.
    """
    rng, side = np.random.default_rng(seed), size * fine
    chart = np.full((side, side), np.nan)
    uncovered = side * side
    while uncovered > 0.0005 * side * side:
        shares = rng.random((256, 4))
        radii = (smallest**-2.0 + shares[:, 0] * ((size / 4) ** -2.0 - smallest**-2.0)) ** -0.5 * fine
        for (_, x, y, gray), radius in zip(shares, radii, strict=True):
            uncovered -= _draw_disk(chart, x * side, y * side, radius, gray)
    chart[np.isnan(chart)] = 0.5
    return np.asarray(chart.reshape(size, fine, size, fine).mean((1, 3)))


def _draw_disk(chart: Array, x: float, y: float, radius: float, gray: float) -> int:
    """Draw a disk behind everything drawn so far and return the number of its visible pixels."""
    left, top = max(0, int(x - radius)), max(0, int(y - radius))
    part = chart[top : int(y + radius) + 2, left : int(x + radius) + 2]
    rows, cols = np.ogrid[: part.shape[0], : part.shape[1]]
    visible = ((rows + top - y) ** 2 + (cols + left - x) ** 2 <= radius**2) & np.isnan(part)
    part[visible] = gray
    return int(visible.sum())


def _power(chart: Array) -> Array:
    """Return the Hann-tapered power spectrum, averaged over directions, at whole cycles per chart up to
    Nyquist.
    """
    size = len(chart)
    taper = np.hanning(size)
    spectrum = np.abs(np.fft.fft2((chart - chart.mean()) * np.outer(taper, taper))) ** 2
    cycles = np.fft.fftfreq(size, 1 / size)
    ring = np.rint(np.hypot(cycles[:, None], cycles[None, :])).astype(int).ravel()
    counts = np.bincount(ring)
    return np.asarray((np.bincount(ring, spectrum.ravel()) / counts)[: size // 2 + 1])


def texture_mtf(ideal: Array, image: Array, noise: float = 0.0) -> Array:
    """Return the texture MTF at ``FREQUENCIES`` (Burns, "Refined measurement of digital image texture loss",
    2013).

    It is sqrt((power of the image - power of the noise) / power of the ideal chart); ``noise`` is the
    variance of white noise.
    """
    if ideal.shape != image.shape or ideal.ndim != 2 or ideal.shape[0] != ideal.shape[1]:
        raise SoritesError(
            f"texture MTF: expected two square gray charts of one size, got {ideal.shape} and {image.shape}"
        )
    size = len(ideal)
    floor = noise * (np.hanning(size) ** 2).sum() ** 2
    ratio = np.sqrt(np.clip(_power(image) - floor, 0, None) / _power(ideal))
    ratio[0] = 1.0
    return np.asarray(np.interp(FREQUENCIES, np.arange(len(ratio)) / size, ratio))


def acutance(curve: Array, pixels_per_degree: float = 59.0) -> float:
    """Weight an MTF by the contrast sensitivity of the eye (CPIQ); the result is 1 without blur.

    The sensitivity is 75 v^0.8 exp(-0.2 v) / 34.05 with v in cycles per degree. The default is a screen with
    0.254 mm pixels at 86 cm.
    """
    cycles = FREQUENCIES * pixels_per_degree
    weight = 75 * cycles**0.8 * np.exp(-0.2 * cycles) / 34.05
    return float(np.trapezoid(curve * weight, FREQUENCIES) / np.trapezoid(weight, FREQUENCIES))
