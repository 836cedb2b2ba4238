"""Point spread functions: the light that one point leaves on the pixels, computed from a wavefront.

The pupil is a disk sampled on a square grid with a soft rim. Its Fraunhofer field is summed exactly
at the wanted points (a matrix Fourier transform), so that no pixel size and no sub-pixel offset
needs interpolation. Lengths in the image are in pixels, and diffraction enters through one number,
``spread`` = wavelength x F-number / pixel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.optics.zernike import checked, fringe, steepest, wavefront

Array = NDArray[np.float64]
# The largest distance, in pixels, of a centred kernel's centre of mass from the middle of its
# array.
CENTRED_PX = 0.01

# The most samples across the pupil; more would take longer than about a second.
MAX_SAMPLES = 4096


@dataclass(frozen=True)
class Psf:
    """A point spread function: ``taps`` (size x size, sum 1), the share of all light that the frame
    ``caught``, and the ``offset`` of the frame's middle from the ideal image point (x, y in
    pixels).
    """

    taps: Array
    caught: float
    offset: tuple[float, float]


def spread_px(wavelength_um: float, f_number: float, pixel_um: float) -> float:
    """Return wavelength x F-number / pixel, the scale of diffraction in pixels (the Airy radius is
    1.22 times this).
    """
    spread = wavelength_um * f_number / pixel_um if pixel_um else math.nan
    if not (math.isfinite(spread) and min(wavelength_um, f_number, pixel_um) > 0):
        raise SoritesError(
            f"camera: wanted a positive wavelength, F-number and pixel size, got {wavelength_um} um,"
            f" F/{f_number}, {pixel_um} um"
        )
    return spread


def compute_psf(
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

    ``pixel_um`` is the pitch; ``aperture`` is the side of its light-sensitive square as a share of
    the pitch. ``centre`` puts the centre of mass of the light inside the frame on the middle of the
    array, to within 0.01 px. Otherwise the middle is the pixel nearest to the centre of mass of all
    the light, inside the frame or not.
    """
    if size < 1 or not 0 < aperture <= 1:
        raise SoritesError(
            f"kernel: wanted a size from 1 px and a pixel aperture in 0..1, got {size} px and {aperture}"
        )
    pupil = Pupil(
        tuple(sorted(checked(waves).items())), spread_px(wavelength_um, f_number, pixel_um), size, aperture
    )
    offset = pupil.centred() if centre else pupil.nearest()
    light = pupil.frame(*offset)
    return Psf(light / light.sum(), float(light.sum()), offset)


@dataclass(frozen=True)
class Pupil:
    """A pupil with a wavefront error, imaged on ``size`` x ``size`` pixels; ``waves`` are (Fringe
    number, waves) pairs.
    """

    waves: tuple[tuple[int, float], ...]
    spread: float
    size: int = 25
    aperture: float = 1.0

    @functools.cached_property
    def samples(self) -> int:
        """The number of pupil samples across: enough to resolve the wavefront and to keep light
        from wrapping around.
        """
        slope = steepest(dict(self.waves))
        reach = 2.5 * self.spread * slope + self.size + 16
        needed = 2 * math.ceil(max(128, 4 * slope, reach / self.spread) / 2)
        if needed > MAX_SAMPLES:
            raise SoritesError(
                f"this wavefront needs {needed} pupil samples across, over {MAX_SAMPLES}; give smaller pixels"
                " or coefficients"
            )
        return needed

    @functools.cached_property
    def grid(self) -> Array:
        """The sample positions along one axis, in pupil radii."""
        return (np.arange(self.samples) + 0.5) * 2 / self.samples - 1

    @functools.cached_property
    def amplitude(self) -> NDArray[np.complex128]:
        """The complex amplitude in the pupil, rows y, columns x, scaled so that all the light in
        the image sums to one.
        """
        x, y = np.meshgrid(self.grid, self.grid)
        rho = np.hypot(x, y)
        clear = np.clip((1 - rho) * self.samples / 2 + 0.5, 0, 1)
        field = clear * np.exp(
            -2j * np.pi * wavefront(dict(self.waves), np.minimum(rho, 1), np.arctan2(y, x))
        )
        return np.asarray(field / (self.spread * self.samples * math.sqrt(clear.sum())))

    @property
    def steps(self) -> int:
        """Points per pixel and axis: more than twice the cut-off frequency 1 / spread, at least
        five for the pixel's area.
        """
        return max(5, math.ceil(2.5 / self.spread))

    def intensity(self, x: Array, y: Array) -> Array:
        """Return the light per square pixel at rows ``y`` and columns ``x``, in pixels from the
        ideal image point.
        """
        phase = -1j * np.pi / self.spread
        across = np.exp(phase * np.outer(self.grid, x))
        down = np.exp(phase * np.outer(y, self.grid))
        return np.asarray(np.abs(down @ self.amplitude @ across) ** 2)

    def frame(self, x: float, y: float) -> Array:
        """Return the light on each pixel of a frame whose middle is at (x, y): the mean over the
        pixel's aperture, scaled as if that filled the pitch.
        """
        within = ((np.arange(self.steps) + 0.5) / self.steps - 0.5) * self.aperture
        fine = np.add.outer(np.arange(self.size) - (self.size - 1) / 2, within).ravel()
        light = self.intensity(x + fine, y + fine)
        return np.asarray(light.reshape(self.size, self.steps, self.size, self.steps).mean((1, 3)))

    def mass(self) -> tuple[float, float]:
        """Return the centre of mass (x, y) of all the light.

        Only the terms in cos t and sin t move it (divergence theorem).
        """
        moved = [2 * self.spread * sum(a for i, a in self.waves if fringe(i)[1] == m) for m in (1, -1)]
        return -moved[0], -moved[1]

    def nearest(self) -> tuple[float, float]:
        """Return the pixel nearest to the centre of mass of all the light."""
        x, y = self.mass()
        return float(round(x)), float(round(y))

    def centred(self) -> tuple[float, float]:
        """Return the frame position (x, y) at which the light inside the frame has its centre of
        mass in the frame's middle; light that the frame cuts off does not count.
        """
        (x, y), step, last = self.mass(), 1.0, (0.0, 0.0)
        for _ in range(100):
            right, down = centroid(self.frame(x, y))
            if math.hypot(right, down) < CENTRED_PX / 100:
                return x, y
            overshot = right * last[0] + down * last[1] < 0
            step, last = step / 2 if overshot else min(1.0, 1.5 * step), (right, down)
            x, y = x + step * right, y + step * down
        raise SoritesError(
            f"no frame of {self.size} px has this light's centre of mass in its middle; give a larger kernel"
            " size"
        )


def centroid(taps: Array) -> tuple[float, float]:
    """Return the centre of mass (x, y) in pixels from the middle of the array."""
    rows, cols = (np.arange(n) - (n - 1) / 2 for n in taps.shape)
    total = taps.sum()
    return float(taps.sum(0) @ cols / total), float(taps.sum(1) @ rows / total)


def strehl(waves: Mapping[int, float]) -> float:
    """Return the Strehl ratio, the light at the ideal image point over that of a perfect lens:
    |mean of exp(2 pi i W)|^2.
    """
    slope = math.ceil(steepest(waves))
    nodes, weights = np.polynomial.legendre.leggauss(32 + 2 * slope)
    rho = np.sqrt((nodes + 1) / 2)[:, None]
    theta = np.arange(64 + 8 * slope) * 2 * np.pi / (64 + 8 * slope)
    field = np.exp(2j * np.pi * wavefront(waves, rho, theta[None, :]))
    return float(np.abs(weights @ field.mean(1) / 2) ** 2)


# A camera at one field point: its pixels, its F-number, and the chromatic wavefront error that no
# focusing removes.


# Wavelengths that stand for red, green and blue: the hydrogen C, helium d and hydrogen F lines, in
# micrometres.
LINES_UM = (0.6563, 0.5876, 0.4861)

# The wavefront error, in waves by Fringe number, that a real lens leaves on axis in red, green and
# blue. It is Table XVII of the OpticsBench paper, with its four columns read by their caption
# (defocus, spherical, secondary spherical, quadrafoil).
RESIDUAL: tuple[Mapping[int, float], ...] = (
    {4: 0.32671, 9: 0.088223, 16: -0.061867, 17: -4.7631e-06},
    {4: 0.11273, 9: 0.095923, 16: -0.069497, 17: -5.3967e-06},
    {4: -0.41772, 9: 0.10825, 16: -0.085119, 17: -6.7436e-06},
)


@dataclass(frozen=True)
class Imager:
    """A lens in front of pixels.

    Colours are in the order of the image's channels; ``residual`` is subtracted from the
    wavefront that a caller asks for.

    The defaults are F/5 on 4.17 um pixels that are light-sensitive over 0.8 of their side.
    Wavelength x F-number / pixel is then 1.2 px per um, which together with that aperture fits the
    published OpticsBench kernels.
    """

    f_number: float = 5.0
    pixel_um: float = 25 / 6
    aperture: float = 0.8
    wavelengths_um: tuple[float, ...] = LINES_UM
    residual: tuple[Mapping[int, float], ...] = RESIDUAL
    size: int = 25

    def __post_init__(self) -> None:
        if len(self.wavelengths_um) != len(self.residual):
            raise SoritesError(
                f"camera: wanted a residual wavefront for each of {len(self.wavelengths_um)} colours, got"
                f" {len(self.residual)}"
            )

    def wavefront(self, colour: int, waves: Mapping[int, float], residual: float = 1.0) -> dict[int, float]:
        """Return ``waves`` minus ``residual`` times this colour's residual, by Fringe number."""
        left = {index: -residual * value for index, value in self.residual[colour].items()}
        return {index: waves.get(index, 0.0) + left.get(index, 0.0) for index in left.keys() | waves.keys()}

    def psf(self, colour: int, waves: Mapping[int, float], residual: float = 1.0, centre: bool = True) -> Psf:
        """Return the PSF of one colour; the arguments are those of ``kernel``."""
        return compute_psf(
            self.wavefront(colour, waves, residual),
            wavelength_um=self.wavelengths_um[colour],
            f_number=self.f_number,
            pixel_um=self.pixel_um,
            aperture=self.aperture,
            size=self.size,
            centre=centre,
        )

    def kernel(self, waves: Mapping[int, float], residual: float = 1.0, centre: bool = True) -> Array:
        """Return the PSFs of all colours, C x size x size, each summing to one."""
        return np.stack([self.psf(c, waves, residual, centre).taps for c in range(len(self.wavelengths_um))])

    def caught(self, waves: Mapping[int, float]) -> float:
        """Return the smallest share of the light, over the colours, that falls inside the kernel's frame."""
        return min(self.psf(c, waves).caught for c in range(len(self.wavelengths_um)))
