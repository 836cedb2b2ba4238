"""Point spread functions (PSFs) computed from a wavefront.

The pupil is a disk with a soft rim, sampled on a square grid. A matrix Fourier transform evaluates its
Fraunhofer field at any point, so that pixel sizes and sub-pixel offsets need no interpolation. Lengths in the
image are in pixels; diffraction enters as ``spread`` = wavelength x F-number / pixel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.optics.zernike import check_coefficients, fringe, max_slope, wavefront

Array = NDArray[np.float64]
# Largest distance in px of a centred kernel's centre of mass from the middle of its array.
CENTRED_PX = 0.01

# Maximum samples across the pupil; more would take over a second.
MAX_SAMPLES = 4096


@dataclass(frozen=True)
class Psf:
    """A point spread function.

    Attributes:
        taps: size x size, sum 1.
        caught: Share of all light that falls inside the frame.
        offset: Position (x, y) in px of the frame's middle relative to the ideal image point.
    """

    taps: Array
    caught: float
    offset: tuple[float, float]


def spread_px(wavelength_um: float, f_number: float, pixel_um: float) -> float:
    """Return wavelength x F-number / pixel, the scale of diffraction in pixels (1 / 1.22 of the Airy
    radius).
    """
    spread = wavelength_um * f_number / pixel_um if pixel_um else math.nan
    if not (math.isfinite(spread) and min(wavelength_um, f_number, pixel_um) > 0):
        raise SoritesError(
            f"camera: expected a positive wavelength, F-number and pixel size, got {wavelength_um} um,"
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
    """Compute the kernel of a wavefront, integrated over square pixels.

    Args:
        waves: Fringe coefficients in waves.
        wavelength_um: Wavelength.
        f_number: F-number.
        pixel_um: Pixel pitch.
        aperture: Side of the light-sensitive square as a share of the pitch.
        size: Side of the kernel in pixels.
        centre: Centre the light inside the frame to within 0.01 px. Otherwise the middle is the pixel nearest
            to the centre of mass of all light, inside the frame or not.
    """
    if size < 1 or not 0 < aperture <= 1:
        raise SoritesError(
            f"kernel: expected a size above 0 px and a pixel aperture in 0..1, got {size} px and {aperture}"
        )
    pupil = Pupil(
        tuple(sorted(check_coefficients(waves).items())),
        spread_px(wavelength_um, f_number, pixel_um),
        size,
        aperture,
    )
    offset = pupil.centred() if centre else pupil.nearest()
    light = pupil.frame(*offset)
    return Psf(light / light.sum(), float(light.sum()), offset)


@dataclass(frozen=True)
class Pupil:
    """A pupil with a wavefront error, imaged on ``size`` x ``size`` pixels; ``waves`` are (Fringe number,
    waves) pairs.
    """

    waves: tuple[tuple[int, float], ...]
    spread: float
    size: int = 25
    aperture: float = 1.0

    @functools.cached_property
    def samples(self) -> int:
        """Number of samples across the pupil that resolves the wavefront and avoids wrap-around of light."""
        slope = max_slope(dict(self.waves))
        reach = 2.5 * self.spread * slope + self.size + 16
        needed = 2 * math.ceil(max(128, 4 * slope, reach / self.spread) / 2)
        if needed > MAX_SAMPLES:
            raise SoritesError(
                f"this wavefront needs {needed} samples across the pupil, the limit is {MAX_SAMPLES};"
                " use smaller pixels or coefficients"
            )
        return needed

    @functools.cached_property
    def grid(self) -> Array:
        """Sample positions along one axis, in pupil radii."""
        return (np.arange(self.samples) + 0.5) * 2 / self.samples - 1

    @functools.cached_property
    def amplitude(self) -> NDArray[np.complex128]:
        """Complex amplitude in the pupil (rows y, columns x), scaled so that the light in the image sums to
        1.
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
        """Samples per pixel and axis: above twice the cut-off frequency 1 / spread, and at least five per
        pixel.
        """
        return max(5, math.ceil(2.5 / self.spread))

    def intensity(self, x: Array, y: Array) -> Array:
        """Return the light per square pixel at rows ``y`` and columns ``x``, in pixels from the ideal image
        point.
        """
        phase = -1j * np.pi / self.spread
        across = np.exp(phase * np.outer(self.grid, x))
        down = np.exp(phase * np.outer(y, self.grid))
        return np.asarray(np.abs(down @ self.amplitude @ across) ** 2)

    def frame(self, x: float, y: float) -> Array:
        """Return the light on each pixel of a frame centred at (x, y).

        It is the mean over the pixel's aperture, scaled to the pitch.
        """
        within = ((np.arange(self.steps) + 0.5) / self.steps - 0.5) * self.aperture
        fine = np.add.outer(np.arange(self.size) - (self.size - 1) / 2, within).ravel()
        light = self.intensity(x + fine, y + fine)
        return np.asarray(light.reshape(self.size, self.steps, self.size, self.steps).mean((1, 3)))

    def centre_of_mass(self) -> tuple[float, float]:
        """Return the centre of mass (x, y) of all light; only terms in cos t and sin t move it (divergence
        theorem).
        """
        moved = [2 * self.spread * sum(a for i, a in self.waves if fringe(i)[1] == m) for m in (1, -1)]
        return -moved[0], -moved[1]

    def nearest(self) -> tuple[float, float]:
        """Return the pixel nearest to the centre of mass of all the light."""
        x, y = self.centre_of_mass()
        return float(round(x)), float(round(y))

    def centred(self) -> tuple[float, float]:
        """Return the frame position (x, y) at which the light inside the frame is centred."""
        (x, y), step, last = self.centre_of_mass(), 1.0, (0.0, 0.0)
        for _ in range(100):
            right, down = centroid(self.frame(x, y))
            if math.hypot(right, down) < CENTRED_PX / 100:
                return x, y
            overshot = right * last[0] + down * last[1] < 0
            step, last = step / 2 if overshot else min(1.0, 1.5 * step), (right, down)
            x, y = x + step * right, y + step * down
        raise SoritesError(
            f"the light cannot be centred in a frame of {self.size} px; use a larger kernel size"
        )


def centroid(taps: Array) -> tuple[float, float]:
    """Return the centre of mass (x, y) in pixels from the middle of the array."""
    rows, cols = (np.arange(n) - (n - 1) / 2 for n in taps.shape)
    total = taps.sum()
    return float(taps.sum(0) @ cols / total), float(taps.sum(1) @ rows / total)


def strehl(waves: Mapping[int, float]) -> float:
    """Return the Strehl ratio |mean of exp(2 pi i W)|^2: the light at the ideal image point over that of a
    perfect lens.
    """
    slope = math.ceil(max_slope(waves))
    nodes, weights = np.polynomial.legendre.leggauss(32 + 2 * slope)
    rho = np.sqrt((nodes + 1) / 2)[:, None]
    theta = np.arange(64 + 8 * slope) * 2 * np.pi / (64 + 8 * slope)
    field = np.exp(2j * np.pi * wavefront(waves, rho, theta[None, :]))
    return float(np.abs(weights @ field.mean(1) / 2) ** 2)


# Representative wavelengths of red, green and blue: the hydrogen C, helium d and hydrogen F lines.
LINES_UM = (0.6563, 0.5876, 0.4861)

# On-axis wavefront error of a real lens in red, green and blue, in waves by Fringe number: Table XVII of the
# OpticsBench paper, with the columns named by its caption (defocus, spherical, secondary spherical,
# quadrafoil).
RESIDUAL: tuple[Mapping[int, float], ...] = (
    {4: 0.32671, 9: 0.088223, 16: -0.061867, 17: -4.7631e-06},
    {4: 0.11273, 9: 0.095923, 16: -0.069497, 17: -5.3967e-06},
    {4: -0.41772, 9: 0.10825, 16: -0.085119, 17: -6.7436e-06},
)


@dataclass(frozen=True)
class Imager:
    """A lens in front of pixels, at one field point.

    The defaults are F/5 on 4.17 um pixels that are light-sensitive over 0.8 of their side. Wavelength x
    F-number / pixel is then 1.2 px per um, which together with that aperture fits the published OpticsBench
    kernels.

    Attributes:
        wavelengths_um: One wavelength per image channel.
        residual: Wavefront error per colour; it is subtracted from the requested wavefront.
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
                f"camera: expected a residual wavefront for each of {len(self.wavelengths_um)} colours, got"
                f" {len(self.residual)}"
            )

    def wavefront(self, colour: int, waves: Mapping[int, float], residual: float = 1.0) -> dict[int, float]:
        """Return ``waves`` minus ``residual`` times the residual of this colour, by Fringe number."""
        left = {index: -residual * value for index, value in self.residual[colour].items()}
        return {index: waves.get(index, 0.0) + left.get(index, 0.0) for index in left.keys() | waves.keys()}

    def psf(self, colour: int, waves: Mapping[int, float], residual: float = 1.0, centre: bool = True) -> Psf:
        """Return the PSF of one colour; see ``compute_psf`` for the arguments."""
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
        """Return the PSFs of all colours, C x size x size, each of sum 1."""
        return np.stack([self.psf(c, waves, residual, centre).taps for c in range(len(self.wavelengths_um))])

    def caught(self, waves: Mapping[int, float]) -> float:
        """Return the smallest share of light, over the colours, that falls inside the frame."""
        return min(self.psf(c, waves).caught for c in range(len(self.wavelengths_um)))
