"""A camera at one field point: its pixels, its F-number, and the chromatic wavefront error that no focusing removes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError
from sorites.optics.psf import Psf, psf

Array = NDArray[np.float64]

LINES_UM = (0.6563, 0.5876, 0.4861)
"""Wavelengths that stand for red, green and blue: the hydrogen C, helium d and hydrogen F lines, in micrometres."""

RESIDUAL: tuple[Mapping[int, float], ...] = (
    {4: 0.32671, 9: 0.088223, 16: -0.061867, 17: -4.7631e-06},
    {4: 0.11273, 9: 0.095923, 16: -0.069497, 17: -5.3967e-06},
    {4: -0.41772, 9: 0.10825, 16: -0.085119, 17: -6.7436e-06},
)
"""The wavefront error, in waves by Fringe number, that a real lens leaves on axis in red, green and blue. It is Table XVII of the
OpticsBench paper, with its four columns read by their caption (defocus, spherical, secondary spherical, quadrafoil)."""


@dataclass(frozen=True)
class Imager:
    """A lens in front of pixels. Colours are in the order of the picture's channels; ``residual`` is subtracted from the
    wavefront that a caller asks for.

    The defaults are F/5 on 4.17 um pixels that are light-sensitive over 0.8 of their side. Wavelength x F-number / pixel is then
    1.2 px per um, which together with that aperture fits the published OpticsBench kernels.
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
                f"camera: wanted a residual wavefront for each of {len(self.wavelengths_um)} colours, got {len(self.residual)}"
            )

    def wavefront(self, colour: int, waves: Mapping[int, float], residual: float = 1.0) -> dict[int, float]:
        """Return ``waves`` minus ``residual`` times this colour's residual, by Fringe number."""
        left = {index: -residual * value for index, value in self.residual[colour].items()}
        return {index: waves.get(index, 0.0) + left.get(index, 0.0) for index in left.keys() | waves.keys()}

    def psf(self, colour: int, waves: Mapping[int, float], residual: float = 1.0, centre: bool = True) -> Psf:
        """Return the PSF of one colour; the arguments are those of ``kernel``."""
        return psf(
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
