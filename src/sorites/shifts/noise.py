"""Sensor noise: one random field per sample, scaled by the severity.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations", ICLR 2019.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from sorites.core import ImageF32
from sorites.shifts.base import add_continuous_shift, clip

# The number of bins of probability in a quantile table; each is represented by its centre.
BINS = 4096

# Poisson rates up to this one are inverted exactly, larger ones by the Cornish-Fisher expansion.
EXACT = 64.0

# The minimum photon noise: fainter noise is invisible in single precision, and the photon count overflows.
FAINTEST = 1e-9


def _normal(image: ImageF32, rng: np.random.Generator) -> ImageF32:
    return rng.standard_normal(image.shape, dtype=np.float32)


@add_continuous_shift(
    _normal, family="noise", unit="sigma", levels=(0.08, 0.12, 0.18, 0.26, 0.38), stage="sensor"
)
def gaussian_noise(image: ImageF32, severity: float, field: ImageF32) -> ImageF32:
    """Add normal noise of standard deviation ``severity`` (white = 1), independent per pixel and channel."""
    noisy = field * np.float32(severity)
    noisy += image
    return clip(noisy)


def _relative(image: ImageF32, rng: np.random.Generator) -> ImageF32:
    field = _normal(image, rng)
    field *= image
    return field


@add_continuous_shift(
    _relative, family="noise", unit="sigma/signal", levels=(0.15, 0.2, 0.35, 0.45, 0.6), stage="sensor"
)
def speckle_noise(image: ImageF32, severity: float, field: ImageF32) -> ImageF32:
    """Add normal noise proportional to the signal: x + x * n, with n of standard deviation ``severity``."""
    noisy = field * np.float32(severity)
    noisy += image
    return clip(noisy)


def _impulses(image: ImageF32, rng: np.random.Generator) -> tuple[ImageF32, ImageF32]:
    """Draw, per value, the severity at which it is replaced, and its replacement: 0 or 1."""
    signed = rng.random(image.shape, dtype=np.float32) * np.float32(2) - np.float32(1)
    return np.abs(signed), (signed > 0).astype(np.float32)


@add_continuous_shift(
    _impulses,
    family="noise",
    unit="fraction lost",
    levels=(0.03, 0.06, 0.09, 0.17, 0.27),
    limit=1,
    stage="sensor",
)
def impulse_noise(image: ImageF32, severity: float, impulses: tuple[ImageF32, ImageF32]) -> ImageF32:
    """Add salt-and-pepper noise: each value is replaced with probability ``severity``, by 0 or 1 equally
    often.
    """
    threshold, replacement = impulses
    return np.where(threshold < np.float32(severity), replacement, image)


def _cells(image: ImageF32, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return, per value, its index in a table of 256 brightness levels by BINS bins, with a random bin."""
    u = rng.integers(0, BINS, image.shape, dtype=np.uint16)
    level = (image * np.float32(255) + np.float32(0.5)).astype(np.uint32)
    return (level * np.uint32(BINS) + u).astype(np.intp)


@add_continuous_shift(
    _cells,
    family="noise",
    unit="noise/signal at white",
    levels=tuple(c**-0.5 for c in (60, 25, 12, 5, 3)),
    stage="sensor",
)
def shot_noise(image: ImageF32, severity: float, cells: NDArray[np.intp]) -> ImageF32:
    """Add photon noise: Poisson(c * x) / c with c = severity**-2 photons at white; x is quantised to 8 bits.

    Each value keeps its quantile at all severities. The published levels are c = 60, 25, 12, 5, 3.
    """
    return np.take(poisson_table(max(severity, FAINTEST) ** -2), cells, mode="clip")


@functools.lru_cache(maxsize=16)
def poisson_table(c: float) -> NDArray[np.float32]:
    """Return min(k / c, 1) per brightness level (256, with rate c * level / 255) and bin, as a flat table."""
    rates = np.linspace(0, c, 256)
    counts = np.empty((256, BINS))
    few = int(np.searchsorted(rates, EXACT, side="right"))
    counts[:few] = _invert(rates[:few])
    counts[few:] = _expand(rates[few:])
    table = np.minimum(counts / c, 1).astype(np.float32).ravel()
    table.flags.writeable = False
    return table


def _invert(rates: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return exact Poisson quantiles: per rate and bin, the number of k with a CDF below the bin centre."""
    from scipy.special import pdtr

    top = int(rates[-1] + 8 * np.sqrt(rates[-1]) + 8)
    below = np.floor(pdtr(np.arange(top), rates[:, None]) * BINS + 0.5).astype(np.intp)
    below += np.arange(len(rates))[:, None] * (BINS + 1)
    passed = np.bincount(below.ravel(), minlength=len(rates) * (BINS + 1)).reshape(len(rates), BINS + 1)
    return np.cumsum(passed[:, :BINS], axis=1)


def _expand(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Poisson quantiles of large rates by the third-order Cornish-Fisher expansion with continuity
    correction.
    """
    from scipy.special import ndtri

    z = ndtri((np.arange(BINS) + 0.5) / BINS)
    root = np.sqrt(rates)[:, None]
    counts: NDArray[np.float64] = np.ceil(
        rates[:, None] - 0.5 + root * z + (z * z - 1) / 6 + (z - z**3) / (72 * root)
    )
    return counts
