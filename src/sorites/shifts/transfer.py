"""Blur by a known transfer function in linear light: atmospheric turbulence, camera jitter and drift.

The transfer functions are those of pyBSM and NRTK. Fried, "Optical resolution through a randomly
inhomogeneous medium", J. Opt. Soc. Am. 56 (1966); Leachtenauer and Driggers, "Surveillance and Reconnaissance
Imaging Systems" (2001). Spatial frequencies are in cycles per pixel, and the border is mirrored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from sorites.core import ImageF32
from sorites.optics.develop import linear_from_srgb, to_display
from sorites.shifts.base import add_continuous_shift

# Mirrored pixels around the image, at most.
MARGIN = 64
Values = NDArray[np.float32]


@dataclass(frozen=True)
class _Spectrum:
    """The transform of the light, its frequencies along x and y, and the direction that the sample drew."""

    values: NDArray[np.complex64]
    x: Values
    y: Values
    padded: tuple[int, int]
    margin: int
    angle: float

    @property
    def frequency(self) -> Values:
        return np.hypot(self.x, self.y)

    def through(self, transfer: Values, size: tuple[int, int]) -> ImageF32:
        """Return the image after a transfer function."""
        light = fft.irfft2(self.values * transfer[..., None], s=self.padded, axes=(0, 1))
        rows, cols = (slice(self.margin, self.margin + side) for side in size)
        return to_display(np.ascontiguousarray(light[rows, cols], np.float32))


def _spectrum(image: ImageF32, rng: np.random.Generator) -> _Spectrum:
    angle = float(rng.uniform(0, math.pi))
    margin = min(MARGIN, min(image.shape[:2]) - 1)
    light = np.pad(linear_from_srgb(image), ((margin, margin), (margin, margin), (0, 0)), mode="reflect")
    padded = fft.next_fast_len(light.shape[0]), fft.next_fast_len(light.shape[1], real=True)
    x, y = (f.astype(np.float32) for f in (fft.rfftfreq(padded[1]), fft.fftfreq(padded[0])))
    return _Spectrum(fft.rfft2(light, s=padded, axes=(0, 1)), x[None], y[:, None], padded, margin, angle)


def turbulence_transfer(blur: float, frequency: Values) -> Values:
    """Return Fried's transfer function of a long exposure, exp(-3.44 (f lambda / r0)^(5/3)).

    Args:
        blur: The wavelength divided by the coherence diameter r0, in px.
        frequency: In cycles per px.
    """
    return np.asarray(np.exp(-3.44 * (blur * frequency) ** (5 / 3)), np.float32)


def jitter_transfer(sigma: float, frequency: Values) -> Values:
    """Return the transfer function of random motion with a standard deviation in px, exp(-2 (pi s f)^2)."""
    return np.asarray(np.exp(-2 * (math.pi * sigma * frequency) ** 2), np.float32)


def drift_transfer(length: float, along: Values) -> Values:
    """Return the transfer function of steady motion over a length in px, sin(pi a f) / (pi a f)."""
    return np.asarray(np.sinc(length * along), np.float32)


@add_continuous_shift(
    _spectrum, family="blur", unit="px (lambda / r0)", levels=(1, 2, 3, 4, 6), limit=MARGIN, stage="optics"
)
def turbulence(image: ImageF32, severity: float, spectrum: _Spectrum) -> ImageF32:
    """Look through turbulent air, long exposure: ``severity`` is the wavelength over Fried's r0, in px."""
    transfer = turbulence_transfer(severity, spectrum.frequency)
    return spectrum.through(transfer, (image.shape[0], image.shape[1]))


@add_continuous_shift(
    _spectrum, family="blur", unit="px (rms)", levels=(0.5, 1, 1.5, 2, 3), limit=MARGIN, stage="optics"
)
def camera_jitter(image: ImageF32, severity: float, spectrum: _Spectrum) -> ImageF32:
    """Shake the camera during the exposure: random motion with a standard deviation of ``severity`` px."""
    transfer = jitter_transfer(severity, spectrum.frequency)
    return spectrum.through(transfer, (image.shape[0], image.shape[1]))


@add_continuous_shift(
    _spectrum, family="blur", unit="px", levels=(2, 4, 8, 12, 16), limit=2 * MARGIN, stage="optics"
)
def camera_drift(image: ImageF32, severity: float, spectrum: _Spectrum) -> ImageF32:
    """Move the camera steadily by ``severity`` px during the exposure, in a direction drawn per sample."""
    along = spectrum.x * math.cos(spectrum.angle) + spectrum.y * math.sin(spectrum.angle)
    transfer = drift_transfer(severity, np.asarray(along, np.float32))
    return spectrum.through(transfer, (image.shape[0], image.shape[1]))
