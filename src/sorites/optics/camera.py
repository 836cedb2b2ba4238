"""Camera model in physical units: luminance in cd/m2, time in s, lengths in um, electrons per pixel and
digital numbers (DN).

Exposure follows ISO 12232: the sensor receives H = 0.65 L t / N^2 lux seconds, and raw values saturate at
H = 78 / ISO.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.optics.convolve import Kernel
from sorites.optics.psf import compute_psf

Light = NDArray[np.float32]
# Peak wavelengths of a sensor's red, green and blue filters.
WAVELENGTHS_UM = (0.60, 0.54, 0.46)


@dataclass(frozen=True)
class Exposure:
    """Camera settings: ISO speed, shutter time in s, f-number."""

    iso: float
    shutter: float
    aperture: float

    @property
    def index(self) -> float:
        """ISO t / N^2, which determines the brightness of the image."""
        return self.iso * self.shutter / self.aperture**2


@dataclass(frozen=True)
class Body:
    """Parameters of a camera body.

    Electron counts refer to ``base_iso``; ``iso``, ``shutter`` (s) and ``aperture`` are (low, high) ranges.
    """

    name: str
    pixel_um: float
    full_well_e: float
    """Electrons per pixel at which raw values saturate at the base ISO."""
    read_e: float
    """Read noise before the gain, rms electrons."""
    late_e: float
    """Read noise after the gain, rms, expressed in electrons at the base ISO; it shrinks as ISO grows."""
    balance: tuple[float, float, float]
    """White-balance gains of red, green and blue, which compensate for the absorption of the filters."""
    bits: int
    black_dn: int
    iso: tuple[float, float]
    shutter: tuple[float, float]
    aperture: tuple[float, float]
    shoulder: float
    """Slope of the tone curve at black: 1 is linear; larger values lift the shadows and roll off the
    highlights.
    """
    contrast: float
    """Depth of the S-curve on top of the display gamma, 0..1."""
    denoise_iso: float
    """ISO at which the built-in noise reduction averages over two pixels; it averages more at higher ISO."""
    base_iso: float = 100.0

    @property
    def white_dn(self) -> int:
        """The largest digital number of the analogue-digital converter."""
        return int(2**self.bits - 1)

    def saturation_e(self, iso: float) -> float:
        """Return the number of electrons that fills the converter's range at an ISO."""
        return self.full_well_e * self.base_iso / iso

    def dn_per_e(self, iso: float) -> float:
        """Return the gain in digital numbers per electron at an ISO."""
        return (self.white_dn - self.black_dn) / self.saturation_e(iso)

    def noise_e(self, iso: float) -> float:
        """Return the read noise of one pixel in rms electrons."""
        return math.hypot(self.read_e, self.late_e * self.base_iso / iso)

    def averaged(self, iso: float) -> float:
        """Return the number of pixels that the camera's noise reduction averages over."""
        return 1 + iso / self.denoise_iso

    def electrons(self, exposure: Exposure) -> float:
        """Return the number of electrons that a green pixel collects per cd/m2."""
        lux_seconds = 0.65 * exposure.shutter / exposure.aperture**2
        return lux_seconds * self.base_iso / 78 * self.full_well_e

    def check(self, exposure: Exposure) -> Exposure:
        """Return the exposure if it is within the ranges of this camera.

        Raises:
            SoritesError: A value is outside its range.
        """
        for name, unit in (("iso", ""), ("shutter", " s"), ("aperture", "")):
            value, (low, high) = getattr(exposure, name), getattr(self, name)
            if not (isinstance(value, int | float) and low <= value <= high):
                raise SoritesError(
                    f"camera {self.name}: {name} goes from {low:g} to {high:g}{unit}, got {value!r}"
                )
        return exposure


def blur_size(f_number: float, pitch_um: float, confusion_um: float = 0.0) -> int:
    """Return the kernel size in pixels that covers the circle of confusion and the main diffraction rings."""
    reach = confusion_um / 2 + 4 * max(WAVELENGTHS_UM) * f_number
    return 2 * math.ceil(1 + reach / pitch_um) + 1


@functools.lru_cache(maxsize=64)
def blur(f_number: float, pitch_um: float, confusion_um: float = 0.0, size: int | None = None) -> Kernel:
    """Return the point spread function of diffraction and defocus on square pixels, normalised to sum 1.

    Args:
        f_number: F-number of the lens.
        pitch_um: Pixel pitch.
        confusion_um: Diameter d of the circle of confusion on the sensor, a defocus of W20 = d / 8N.
        size: Side of the kernel in pixels; ``blur_size`` by default.
    """
    size = blur_size(f_number, pitch_um, confusion_um) if size is None else size
    planes = [
        compute_psf(
            {4: confusion_um / (16 * f_number * um)},
            wavelength_um=um,
            f_number=f_number,
            pixel_um=pitch_um,
            size=size,
        ).taps
        for um in WAVELENGTHS_UM
    ]
    return Kernel(np.stack(planes))


# A full-frame body in the class of the Canon EOS RP with its 24-105 mm f/4-7.1 lens. Ranges and pixel pitch
# are from the data sheet; full well, read noise and white balance are typical values for such a sensor. To
# add a camera, define a Body here or derive one with ``dataclasses.replace``.
EOS_RP = Body(
    name="eos_rp",
    pixel_um=5.75,
    full_well_e=50_000,
    read_e=2.2,
    late_e=26.0,
    balance=(2.0, 1.0, 1.5),
    bits=14,
    black_dn=512,
    iso=(100, 40_000),
    shutter=(1 / 4000, 30),
    aperture=(4.0, 22),
    shoulder=1.5,
    contrast=0.62,
    denoise_iso=6000,
)

BODIES = {body.name: body for body in (EOS_RP,)}
