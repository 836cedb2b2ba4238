"""The contrast that a kernel leaves at each spatial frequency (MTF), and the numbers people read off that curve.

Frequencies are in cycles per pixel, 0 to 0.5 (Nyquist). The MTF is |sum of taps exp(-2 pi i f x)|, computed at exactly the wanted
frequency and angle, without binning and without interpolation between bins.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError

Array = NDArray[np.float64]
FREQUENCIES: Array = np.linspace(0, 0.5, 257)
SLICES = (0.0, 45.0, 90.0, 135.0)
"""The angles, in degrees from the x axis, at which OpticsBench compares kernels."""
AROUND = tuple(np.arange(64) * 180 / 64)
"""The angles over which a radial MTF is the mean."""


@functools.lru_cache(maxsize=8)
def _waves(size: int, angles: tuple[float, ...], sine: bool) -> NDArray[np.complex128]:
    """Return exp(-2 pi i f x) for every frequency, angle and tap along one axis."""
    turn = np.deg2rad(angles)
    along = np.multiply.outer(FREQUENCIES, np.sin(turn) if sine else np.cos(turn))
    return np.asarray(np.exp(-2j * np.pi * np.multiply.outer(along, np.arange(size) - (size - 1) / 2)))


def slices(taps: Array, angles: Sequence[float] = SLICES) -> Array:
    """Return the MTF along each angle, len(FREQUENCIES) x len(angles); it is 1 at frequency 0."""
    total = taps.sum()
    if taps.ndim != 2 or not np.isfinite(total) or total <= 0:
        raise SoritesError(f"MTF: wanted a 2-D kernel with a positive sum, got shape {taps.shape} and sum {total}")
    rows, cols = taps.shape
    down, across = _waves(rows, tuple(angles), True), _waves(cols, tuple(angles), False)
    return np.asarray(np.abs(np.einsum("fac,fac->fa", down @ (taps / total), across)))


def mtf(taps: Array, angle: float | None = None) -> Array:
    """Return the MTF at ``FREQUENCIES`` along one angle in degrees, or its mean over all directions."""
    return np.asarray(slices(taps, AROUND if angle is None else (angle,)).mean(1))


def crossing(curve: Array, contrast: float) -> float:
    """Return the first frequency at which the curve falls to ``contrast``, or nan if it never does."""
    below = np.flatnonzero(curve <= contrast)
    if not below.size:
        return float("nan")
    i = max(int(below[0]), 1)
    share = (curve[i - 1] - contrast) / (curve[i - 1] - curve[i])
    return float(FREQUENCIES[i - 1] + share * (FREQUENCIES[i] - FREQUENCIES[i - 1]))


def area(curve: Array) -> float:
    """Return the mean of the curve up to Nyquist; it is 1 without blur."""
    return float(np.trapezoid(curve, FREQUENCIES) / FREQUENCIES[-1])


@dataclass(frozen=True)
class Sharpness:
    """The frequencies at 50, 20 and 10 % contrast in cycles per pixel (nan above Nyquist), and the area under the curve."""

    mtf50: float
    mtf20: float
    mtf10: float
    area: float


def sharpness(taps: Array, angle: float | None = None) -> Sharpness:
    """Return the sharpness of a ``(kh, kw)`` kernel, or the mean over the channels of a ``(C, kh, kw)`` kernel."""
    planes = taps if taps.ndim == 3 else taps[None]
    curves = [mtf(plane, angle) for plane in planes]
    read = [(*(crossing(curve, at) for at in (0.5, 0.2, 0.1)), area(curve)) for curve in curves]
    return Sharpness(*np.mean(read, axis=0).tolist())


def encircled(taps: Array, radius_px: float) -> float:
    """Return the share of the light within a radius of the centre of mass; a pixel counts as inside if its centre is."""
    rows, cols = (np.arange(n) - (n - 1) / 2 for n in taps.shape)
    total = taps.sum()
    x, y = taps.sum(0) @ cols / total, taps.sum(1) @ rows / total
    inside = np.hypot(cols[None, :] - x, rows[:, None] - y) <= radius_px
    return float(taps[inside].sum() / total)


def strehl(taps: Array, perfect: Array) -> float:
    """Return the brightest pixel of a kernel divided by that of the same camera's perfect kernel."""
    return float(taps.max() / taps.sum() / (perfect.max() / perfect.sum()))
