"""The dials of a camera one at a time, in stops: more light, less light, more ISO, a wider aperture.

A picture is assumed to be well exposed: 0 stops is the picture as given, and each dial adds only what turning it adds. All act
on light (sRGB undone), and their results are sRGB again. Together the two exposure dials run from -8 to +6 stops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from sorites.core import Image
from sorites.optics.bodies import EOS_RP
from sorites.optics.camera import Light
from sorites.optics.srgb import linear, to_display
from sorites.shifts._dial import add_dial

FURTHEST = 16.0
"""The stops at which any picture is white or black to the last bit."""


def _light(image: Image, rng: np.random.Generator) -> Light:
    return linear(image)


@add_dial(_light, family="camera", unit="stops", levels=(1, 2, 3, 4, 5, 6), limit=FURTHEST)
def exposure_stops(image: Image, severity: float, light: Light) -> Image:
    """Over-expose: double the light ``severity`` times and clip it at white."""
    return to_display(light * np.float32(2**severity))


@add_dial(_light, family="camera", unit="stops", levels=(1, 2, 3, 4, 5, 6, 7, 8), limit=FURTHEST)
def exposure_stops_down(image: Image, severity: float, light: Light) -> Image:
    """Under-expose: halve the light ``severity`` times; what 8 bits cannot tell from black is lost."""
    return to_display(light * np.float32(2**-severity))


@dataclass(frozen=True)
class _Noise:
    light: Light
    field: Light
    """One normal deviate per value."""


def _noise(image: Image, rng: np.random.Generator) -> _Noise:
    return _Noise(linear(image), rng.standard_normal(image.shape, dtype=np.float32))


@add_dial(_noise, family="camera", unit="stops", levels=(2, 4, 6, 8, 10, 12), limit=FURTHEST)
def iso_noise(image: Image, severity: float, noise: _Noise) -> Image:
    """Make up for less light by ISO: add the photon and read noise that ISO 100 x 2^``severity`` has beyond ISO 100."""
    slope, floor = (np.subtract(*pair).astype(np.float32) for pair in zip(_variance(severity), _variance(0), strict=True))
    noisy = noise.light * slope + floor
    np.sqrt(noisy, out=noisy)
    noisy *= noise.field
    noisy += noise.light
    return to_display(noisy)


def _variance(stops: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the photon-transfer line: noise variance per unit of light and at black, per channel, as shares of saturation."""
    iso = EOS_RP.base_iso * 2**stops
    gain = np.array(EOS_RP.balance) / EOS_RP.saturation_e(iso)
    return gain, (gain * EOS_RP.noise_e(iso)) ** 2


DEEP = 8.0
"""The stops from f/22 to f/1.4."""
SHARPEST = 1 / 224
"""The circle of confusion at f/22 of things off the plane of focus, as a share of the picture's shorter side."""


@dataclass(frozen=True)
class _Spectrum:
    values: NDArray[np.complex64]
    frequency: Light
    """The spatial frequency of each value, in cycles per pixel."""
    padded: tuple[int, int]
    margin: int


def _spectrum(image: Image, rng: np.random.Generator) -> _Spectrum:
    margin = min(math.ceil(2 ** (DEEP / 2) * SHARPEST * min(image.shape[:2])) + 2, min(image.shape[:2]) - 1)
    wide = np.pad(linear(image), ((margin, margin), (margin, margin), (0, 0)), mode="reflect")
    padded = fft.next_fast_len(wide.shape[0]), fft.next_fast_len(wide.shape[1], real=True)
    frequency = np.hypot(fft.fftfreq(padded[0])[:, None], fft.rfftfreq(padded[1])).astype(np.float32)
    return _Spectrum(fft.rfft2(wide, s=padded, axes=(0, 1)), frequency, padded, margin)


@add_dial(_spectrum, family="camera", unit="stops", levels=(2, 3, 4, 5, 6, 7, 8), limit=DEEP)
def aperture(image: Image, severity: float, spectrum: _Spectrum) -> Image:
    """Open the lens by ``severity`` stops from f/22, at equal light, on something out of focus: depth of field is lost.

    The circle of confusion grows as 1 / N; what it adds to the one at f/22 is d sqrt(2^severity - 1), a disk.
    """
    diameter = SHARPEST * min(image.shape[:2]) * math.sqrt(2**severity - 1)
    blurred = spectrum.values * disk_transfer(diameter, spectrum.frequency)[..., None]
    light = fft.irfft2(blurred, s=spectrum.padded, axes=(0, 1))
    inside = slice(spectrum.margin, spectrum.margin + image.shape[0]), slice(spectrum.margin, spectrum.margin + image.shape[1])
    return to_display(np.ascontiguousarray(light[inside]))


def disk_transfer(diameter: float, frequency: Light) -> Light:
    """Return the share of each frequency (cycles per pixel) that a uniform disk leaves: 2 J1(x) / x with x = pi d f."""
    from scipy.special import j1

    x = np.maximum(frequency * np.float32(math.pi * diameter), np.float32(1e-6))
    return np.asarray(2 * j1(x) / x, np.float32)
