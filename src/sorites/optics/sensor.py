"""From electrons to raw numbers: photons are counted (Poisson), read noise is added, the converter rounds and clips.

Part of the read noise comes before the ISO gain and part after, which is why a dark picture is cleaner at high ISO than pushed
later. A picture smaller than its patch of the sensor is the mean of ``area`` pixels, and its noise variance falls by that number.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.optics.camera import Body, Light

FEW = 30.0
"""Electrons below which counts follow Poisson's law itself, above a normal law of the same mean and variance."""


@dataclass(frozen=True)
class Draw:
    """The chance in one shot, drawn before the camera is set: where each value stands among its possible photon counts, and its
    read noise. The same draw under two settings is the same luck, so that only the setting differs."""

    photons: NDArray[np.uint16]
    read: Light

    @functools.cached_property
    def normal(self) -> Light:
        """The photons' place as a normal deviate, for counts large enough."""
        return _normal()[self.photons]

    @functools.cached_property
    def quantile(self) -> NDArray[np.int32]:
        """The photons' place among 4096."""
        return (self.photons >> 4).astype(np.int32)

    @functools.cached_property
    def dither(self) -> Light:
        """What is left of the place, 0..1."""
        return ((self.photons & 15) + np.float32(0.5)) * np.float32(1 / 16)

    def at(self, where: NDArray[np.bool_]) -> Draw:
        """The chance of some values alone."""
        return Draw(self.photons[where], self.read[where])

    @classmethod
    def of(cls, shape: tuple[int, ...], rng: np.random.Generator) -> Draw:
        photons = rng.integers(0, 1 << 16, shape, dtype=np.uint16)
        return cls(photons, rng.standard_normal(shape, dtype=np.float32))

    def again(self, shot: int) -> Draw:
        """The chance in another shot of the same scene."""
        step = 7919 * shot
        return Draw(np.roll(self.photons, step), np.roll(self.read, step)) if shot else self


def raw(electrons: Light, iso: float, draw: Draw, body: Body, area: float = 1.0) -> Light:
    """Digital numbers from the mean electrons a pixel, each the mean of ``area`` pixels; a single pixel gives a whole number.

    Never above ``white_dn``, never below 0; no light is ``black_dn`` plus read noise.
    """
    counts = electrons * np.float32(area)
    rounding = 0.0 if area == 1 else 1 / (12 * body.dn_per_e(iso) ** 2)
    read = np.float32(math.sqrt((body.noise_e(iso) ** 2 + rounding) * area))
    few = counts < FEW
    if not few.any():
        noisy = _many(counts, draw.normal, read)
    elif few.all():
        noisy = _poisson(counts, draw) + draw.read * read
    else:
        noisy = _many(counts, draw.normal, read)
        some = draw.at(few)
        noisy[few] = _poisson(counts[few], some) + some.read * read
    noisy *= np.float32(body.dn_per_e(iso) / area)
    noisy += np.float32(body.black_dn)
    if area == 1:
        np.rint(noisy, out=noisy)
    return np.clip(noisy, 0, body.white_dn, out=noisy)


def _many(counts: Light, normal: Light, read: np.float32) -> Light:
    noisy: Light = np.sqrt(counts + read * read)
    noisy *= normal
    noisy += counts
    return noisy


@functools.cache
def _normal() -> Light:
    """Normal quantiles of the 65536 places a draw can take."""
    from scipy.special import ndtri

    return np.asarray(ndtri((np.arange(1 << 16) + 0.5) / (1 << 16)), np.float32)


STEPS = 48
"""Rows of the Poisson table per unit of the square root of the rate."""


def _poisson(rates: Light, draw: Draw) -> Light:
    """Poisson counts by inversion. Twelve bits of the place are the quantile; the other four choose between the two nearest rates
    of the table, so often that the mean is right."""
    scaled = rates * np.float32(STEPS**2)
    row = np.sqrt(scaled).astype(np.int32)
    below = row.astype(np.float32)
    scaled -= below * below
    below *= np.float32(2)
    below += np.float32(1)
    below *= draw.dither
    row += below < scaled
    row <<= 12
    row += draw.quantile
    counts: Light = np.take(_poisson_table(), row, mode="clip").astype(np.float32)
    return counts


@functools.cache
def _poisson_table() -> NDArray[np.uint8]:
    """Quantiles of 4096 slices of probability for each rate (k / STEPS)^2 up to ``FEW``, flat."""
    from scipy.special import pdtr

    rates = (np.arange(int(math.sqrt(FEW) * STEPS) + 2) / STEPS) ** 2
    slices = (np.arange(4096) + 0.5) / 4096
    below = pdtr(np.arange(80)[:, None], rates).T
    return np.concatenate([np.searchsorted(row, slices) for row in below]).astype(np.uint8)
