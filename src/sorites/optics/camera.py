"""A camera in units: luminance in cd/m2, time in s, lengths in um, electrons a pixel, digital numbers (DN).

Exposure follows ISO 12232: H = 0.65 L t / N^2 lux seconds reach the sensor, and raw saturates at H = 78 / ISO.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError
from sorites.optics.convolve import Kernel
from sorites.optics.psf import psf

Light = NDArray[np.float32]
WAVELENGTHS_UM = (0.60, 0.54, 0.46)
"""Where the red, green and blue filters of a sensor pass most."""


@dataclass(frozen=True)
class Exposure:
    """What is set on the camera: ISO speed, shutter time in s, f-number."""

    iso: float
    shutter: float
    aperture: float

    @property
    def index(self) -> float:
        """ISO t / N^2: what the picture's brightness depends on."""
        return self.iso * self.shutter / self.aperture**2


@dataclass(frozen=True)
class Body:
    """A camera in numbers. Electrons are at ``base_iso``; ``iso``, ``shutter`` (s) and ``aperture`` are ranges."""

    name: str
    pixel_um: float
    full_well_e: float
    """Electrons a pixel at which raw saturates at the base ISO."""
    read_e: float
    """Read noise before the gain, rms electrons."""
    late_e: float
    """Read noise after the gain, rms, as electrons at the base ISO; it shrinks as ISO grows."""
    balance: tuple[float, float, float]
    """White-balance gains of red, green and blue: how much less light their filters pass."""
    bits: int
    black_dn: int
    iso: tuple[float, float]
    shutter: tuple[float, float]
    aperture: tuple[float, float]
    shoulder: float
    """Slope of the developing curve at black: 1 is straight, more lifts the shadows and rolls the highlights off."""
    contrast: float
    """Depth of the S laid over the display gamma, 0..1."""
    denoise_iso: float
    """The ISO at which the camera's own noise reduction averages two pixels' worth of noise; more as ISO grows."""
    base_iso: float = 100.0

    @property
    def white_dn(self) -> int:
        return int(2**self.bits - 1)

    def saturation_e(self, iso: float) -> float:
        """Electrons that fill the range of the converter at an ISO."""
        return self.full_well_e * self.base_iso / iso

    def dn_per_e(self, iso: float) -> float:
        return (self.white_dn - self.black_dn) / self.saturation_e(iso)

    def noise_e(self, iso: float) -> float:
        """Read noise of one pixel, rms electrons."""
        return math.hypot(self.read_e, self.late_e * self.base_iso / iso)

    def averaged(self, iso: float) -> float:
        """How many pixels' noise the camera's noise reduction averages before the picture is kept."""
        return 1 + iso / self.denoise_iso

    def electrons(self, exposure: Exposure) -> float:
        """Electrons a green pixel collects for each cd/m2."""
        lux_seconds = 0.65 * exposure.shutter / exposure.aperture**2
        return lux_seconds * self.base_iso / 78 * self.full_well_e

    def check(self, exposure: Exposure) -> Exposure:
        """The exposure, if this camera can be set so."""
        for name, unit in (("iso", ""), ("shutter", " s"), ("aperture", "")):
            value, (low, high) = getattr(exposure, name), getattr(self, name)
            if not (isinstance(value, int | float) and low <= value <= high):
                raise SoritesError(f"camera {self.name}: {name} goes from {low:g} to {high:g}{unit}, got {value!r}")
        return exposure


def blur_size(f_number: float, pitch_um: float, confusion_um: float = 0.0) -> int:
    """Side in pixels of a kernel that holds the circle of confusion and the diffraction rings that matter."""
    reach = confusion_um / 2 + 4 * max(WAVELENGTHS_UM) * f_number
    return 2 * math.ceil(1 + reach / pitch_um) + 1


@functools.lru_cache(maxsize=64)
def blur(f_number: float, pitch_um: float, confusion_um: float = 0.0, size: int | None = None) -> Kernel:
    """What the lens leaves of a point on pixels of ``pitch_um``: diffraction and a focus error, light conserved.

    ``confusion_um`` is the diameter of the circle of confusion on the sensor, which is a defocus of W20 = d / 8N. ``size``
    is the side of the kernel in pixels; by default ``blur_size``.
    """
    size = blur_size(f_number, pitch_um, confusion_um) if size is None else size
    planes = [
        psf({4: confusion_um / (16 * f_number * um)}, wavelength_um=um, f_number=f_number, pixel_um=pitch_um, size=size).taps
        for um in WAVELENGTHS_UM
    ]
    return Kernel(np.stack(planes))
