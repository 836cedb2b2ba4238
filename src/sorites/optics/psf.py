"""Point spread functions: the light that one point leaves on the pixels, computed from a wavefront.

The pupil is a disk sampled on a square grid with a soft rim. Its Fraunhofer field is summed exactly at the wanted points
(a matrix Fourier transform), so that no pixel size and no sub-pixel offset needs interpolation. Lengths in the
image are in pixels, and diffraction enters through one number, ``spread`` = wavelength x F-number / pixel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError
from sorites.optics.zernike import checked, fringe, steepest, wavefront

Array = NDArray[np.float64]
CENTRED_PX = 0.01
"""The largest distance, in pixels, of a centred kernel's centre of mass from the middle of its array."""

MAX_SAMPLES = 4096
"""The most samples across the pupil; more would take longer than about a second."""


@dataclass(frozen=True)
class Psf:
    """A point spread function: ``taps`` (size x size, sum 1), the share of all light that the frame ``caught``, and the
    ``offset`` of the frame's middle from the ideal image point (x, y in pixels)."""

    taps: Array
    caught: float
    offset: tuple[float, float]


def spread_px(wavelength_um: float, f_number: float, pixel_um: float) -> float:
    """Return wavelength x F-number / pixel, the scale of diffraction in pixels (the Airy radius is 1.22 times this)."""
    spread = wavelength_um * f_number / pixel_um if pixel_um else math.nan
    if not (math.isfinite(spread) and min(wavelength_um, f_number, pixel_um) > 0):
        raise SoritesError(
            f"camera: wanted a positive wavelength, F-number and pixel size, got {wavelength_um} um, F/{f_number}, {pixel_um} um"
        )
    return spread


def psf(
    waves: Mapping[int, float],
    *,
    wavelength_um: float,
    f_number: float,
    pixel_um: float,
    aperture: float = 1.0,
    size: int = 25,
    centre: bool = True,
) -> Psf:
    """Return the kernel of a wavefront given by Fringe coefficients in waves, integrated over square pixels.

    ``pixel_um`` is the pitch; ``aperture`` is the side of its light-sensitive square as a share of the pitch.
    ``centre`` puts the centre of mass of the light inside the frame on the middle of the array, to within 0.01 px. Otherwise
    the middle is the pixel nearest to the centre of mass of all the light, inside the frame or not.
    """
    if size < 1 or not 0 < aperture <= 1:
        raise SoritesError(f"kernel: wanted a size from 1 px and a pixel aperture in 0..1, got {size} px and {aperture}")
    pupil = Pupil(tuple(sorted(checked(waves).items())), spread_px(wavelength_um, f_number, pixel_um), size, aperture)
    offset = pupil.centred() if centre else pupil.nearest()
    light = pupil.frame(*offset)
    return Psf(light / light.sum(), float(light.sum()), offset)


@dataclass(frozen=True)
class Pupil:
    """A pupil with a wavefront error, imaged on ``size`` x ``size`` pixels; ``waves`` are (Fringe number, waves) pairs."""

    waves: tuple[tuple[int, float], ...]
    spread: float
    size: int = 25
    aperture: float = 1.0

    @functools.cached_property
    def samples(self) -> int:
        """The number of pupil samples across: enough to resolve the wavefront and to keep light from wrapping around."""
        slope = steepest(dict(self.waves))
        reach = 2.5 * self.spread * slope + self.size + 16
        needed = 2 * math.ceil(max(128, 4 * slope, reach / self.spread) / 2)
        if needed > MAX_SAMPLES:
            raise SoritesError(
                f"this wavefront needs {needed} pupil samples across, over {MAX_SAMPLES}; give smaller pixels or coefficients"
            )
        return needed

    @functools.cached_property
    def grid(self) -> Array:
        """The sample positions along one axis, in pupil radii."""
        return (np.arange(self.samples) + 0.5) * 2 / self.samples - 1

    @functools.cached_property
    def amplitude(self) -> NDArray[np.complex128]:
        """The complex amplitude in the pupil, rows y, columns x, scaled so that all the light in the image sums to one."""
        x, y = np.meshgrid(self.grid, self.grid)
        rho = np.hypot(x, y)
        clear = np.clip((1 - rho) * self.samples / 2 + 0.5, 0, 1)
        field = clear * np.exp(-2j * np.pi * wavefront(dict(self.waves), np.minimum(rho, 1), np.arctan2(y, x)))
        return np.asarray(field / (self.spread * self.samples * math.sqrt(clear.sum())))

    @property
    def steps(self) -> int:
        """Points per pixel and axis: more than twice the cut-off frequency 1 / spread, at least five for the pixel's area."""
        return max(5, math.ceil(2.5 / self.spread))

    def intensity(self, x: Array, y: Array) -> Array:
        """Return the light per square pixel at rows ``y`` and columns ``x``, in pixels from the ideal image point."""
        phase = -1j * np.pi / self.spread
        across = np.exp(phase * np.outer(self.grid, x))
        down = np.exp(phase * np.outer(y, self.grid))
        return np.asarray(np.abs(down @ self.amplitude @ across) ** 2)

    def frame(self, x: float, y: float) -> Array:
        """Return the light on each pixel of a frame whose middle is at (x, y): the mean over the pixel's aperture, scaled as if
        that filled the pitch."""
        within = ((np.arange(self.steps) + 0.5) / self.steps - 0.5) * self.aperture
        fine = np.add.outer(np.arange(self.size) - (self.size - 1) / 2, within).ravel()
        light = self.intensity(x + fine, y + fine)
        return np.asarray(light.reshape(self.size, self.steps, self.size, self.steps).mean((1, 3)))

    def mass(self) -> tuple[float, float]:
        """Return the centre of mass (x, y) of all the light. Only the terms in cos t and sin t move it (divergence theorem)."""
        moved = [2 * self.spread * sum(a for i, a in self.waves if fringe(i)[1] == m) for m in (1, -1)]
        return -moved[0], -moved[1]

    def nearest(self) -> tuple[float, float]:
        """Return the pixel nearest to the centre of mass of all the light."""
        x, y = self.mass()
        return float(round(x)), float(round(y))

    def centred(self) -> tuple[float, float]:
        """Return the frame position (x, y) at which the light inside the frame has its centre of mass in the frame's middle;
        light that the frame cuts off does not count."""
        (x, y), step, last = self.mass(), 1.0, (0.0, 0.0)
        for _ in range(100):
            right, down = centroid(self.frame(x, y))
            if math.hypot(right, down) < CENTRED_PX / 100:
                return x, y
            overshot = right * last[0] + down * last[1] < 0
            step, last = step / 2 if overshot else min(1.0, 1.5 * step), (right, down)
            x, y = x + step * right, y + step * down
        raise SoritesError(f"no frame of {self.size} px has this light's centre of mass in its middle; give a larger kernel size")


def centroid(taps: Array) -> tuple[float, float]:
    """Return the centre of mass (x, y) in pixels from the middle of the array."""
    rows, cols = (np.arange(n) - (n - 1) / 2 for n in taps.shape)
    total = taps.sum()
    return float(taps.sum(0) @ cols / total), float(taps.sum(1) @ rows / total)


def strehl(waves: Mapping[int, float]) -> float:
    """Return the Strehl ratio, the light at the ideal image point over that of a perfect lens: |mean of exp(2 pi i W)|^2."""
    slope = math.ceil(steepest(waves))
    nodes, weights = np.polynomial.legendre.leggauss(32 + 2 * slope)
    rho = np.sqrt((nodes + 1) / 2)[:, None]
    theta = np.arange(64 + 8 * slope) * 2 * np.pi / (64 + 8 * slope)
    field = np.exp(2j * np.pi * wavefront(waves, rho, theta[None, :]))
    return float(np.abs(weights @ field.mean(1) / 2) ** 2)
