"""Development of raw values into 8-bit images: black level, white balance, tone curve, JPEG; and metering."""

from __future__ import annotations

import functools
import io
import math

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.optics.camera import Body, Exposure
from sorites.optics.camera import Light as Light_of

Light = NDArray[np.float32]


# The sRGB curve (IEC 61966-2-1) in single precision for images and in double precision for tables. Both exist
# on purpose: their last bits differ, and published numbers depend on them.
def linear_from_srgb(display: Light) -> Light:
    """Convert sRGB display values to linear light, in single precision."""
    low = display * np.float32(1 / 12.92)
    return np.where(
        display <= 0.04045, low, ((display + np.float32(0.055)) * np.float32(1 / 1.055)) ** np.float32(2.4)
    )


def to_display(light: Light) -> Light:
    """Convert linear light, clipped to 0..1, to sRGB display values, in single precision."""
    clipped = np.clip(light, 0, 1)
    high = np.float32(1.055) * clipped ** np.float32(1 / 2.4) - np.float32(0.055)
    return np.where(clipped <= 0.0031308, clipped * np.float32(12.92), high)


def srgb_from_linear(light: NDArray[np.float64]) -> NDArray[np.float64]:
    """Convert linear light to sRGB display values, in double precision."""
    return np.where(light <= 0.0031308, 12.92 * light, 1.055 * np.maximum(light, 0) ** (1 / 2.4) - 0.055)


@functools.cache
def light_of_bytes() -> NDArray[np.float64]:
    """Return the linear light of the 256 values of an 8-bit image, in double precision (read-only)."""
    values = np.arange(256) / 255
    light = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    light.setflags(write=False)
    return light


# Entries of the development table per digital number.
STEPS_PER_DN = 4


def tone(share: NDArray[np.float64], body: Body) -> NDArray[np.float64]:
    """Apply the camera's tone curve, from a share of saturation 0..1 to a display value 0..1.

    The curve is monotonic and maps 0 to 0 and 1 to 1.
    """
    display = srgb_from_linear(1 - (1 - np.clip(share, 0, 1)) ** body.shoulder)
    return display - body.contrast * np.sin(2 * np.pi * display) / (2 * np.pi)


@functools.lru_cache(maxsize=64)
def curves(body: Body, iso: float, area: float) -> Light_of:
    """Return a flat table of display values per channel and raw value, in steps of 1 / ``STEPS_PER_DN`` DN.

    A camera develops at full size and scales down afterwards. The display value at a raw mean is therefore
    the mean of the curve over the noise of single pixels; with ``area`` 1 no noise is left to average.
    """
    numbers = np.arange(body.white_dn * STEPS_PER_DN + 1) / STEPS_PER_DN
    knots = np.unique(
        np.concatenate([body.black_dn + np.linspace(-1, 1, 129) * 32, np.linspace(0, body.white_dn, 513)])
    )
    return np.concatenate(
        [np.interp(numbers, knots, _noise_averaged_tone(knots, body, iso, area, k)) for k in range(3)]
    ).astype(np.float32)


def _noise_averaged_tone(
    dn: NDArray[np.float64], body: Body, iso: float, area: float, channel: int
) -> NDArray[np.float64]:
    """Return the tone curve of one channel at raw values ``dn``, averaged over the remaining noise."""
    gain, range_ = body.balance[channel], body.white_dn - body.black_dn
    electrons = (dn - body.black_dn) / body.dn_per_e(iso)
    remaining = 1 - 1 / area
    sigma = np.sqrt(remaining * (np.maximum(electrons, 0) + body.noise_e(iso) ** 2)) * body.dn_per_e(iso)
    room = np.maximum(body.white_dn / gain + body.black_dn * (1 - 1 / gain) - dn, 0) / 3
    # Gauss-Hermite quadrature over the noise, limited to the range below clipping.
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    spread = dn[:, None] + np.minimum(sigma, room)[:, None] * np.clip(nodes, -3, 3)
    mean: NDArray[np.float64] = tone((spread - body.black_dn) * gain / range_, body) @ (
        weights / weights.sum()
    )
    return mean


def develop(raw: Light_of, body: Body, iso: float, area: float = 1.0) -> Light_of:
    """Convert raw values, H x W x 3, to display values 0..1."""
    table = curves(body, iso, area).reshape(3, -1)
    indices = (raw * np.float32(STEPS_PER_DN) + np.float32(0.5)).astype(np.int32)
    display = np.empty_like(raw)
    for channel in range(3):
        np.take(table[channel], indices[..., channel], out=display[..., channel], mode="clip")
    return display


def jpeg(display: Light_of, quality: int) -> Light_of:
    """Encode display values as an 8-bit JPEG file and decode it again."""
    from PIL import Image

    file = io.BytesIO()
    eight = (display * np.float32(255) + np.float32(0.5)).astype(np.uint8)
    Image.fromarray(eight).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file), np.float32) * np.float32(1 / 255)


# Automatic exposure

# Reflected-light meter constant in cd s / m2 (ISO 2720): a correct exposure has N^2 / t = L S /
# METER_CONSTANT.
METER_CONSTANT = 12.5
# Slowest shutter time before ISO is raised.
HANDHELD_S = 1 / 60
# Step of camera settings, in stops (factors of two in light).
THIRD_STOP = 1 / 3


def program(luminance: float, body: Body, widest: float | None = None) -> Exposure:
    """Choose ISO, shutter and aperture for a metered luminance, like a camera's program mode.

    In bright light the stops are shared between shutter and aperture at the base ISO. In dim light the lens
    is wide open at 1/60 s and ISO rises; at the highest ISO the shutter slows.

    Args:
        luminance: Metered luminance in cd/m2.
        body: The camera.
        widest: Smallest f-number of the lens at its focal length; that of the body by default.
    """
    if not (math.isfinite(luminance) and luminance > 0):
        raise SoritesError(f"metering: expected a luminance above 0 cd/m2, got {luminance}")
    open_ = body.aperture[0] if widest is None else widest
    required = math.log2(METER_CONSTANT / luminance)
    at_base = math.log2(body.iso[0] * HANDHELD_S / open_**2)
    if required <= at_base:
        return _bright(at_base - required, body, open_)
    iso = _step(body.iso[0], min(required - at_base, math.log2(body.iso[1] / body.iso[0])))
    missing = required - math.log2(iso * HANDHELD_S / open_**2)
    slower = 0.0 if abs(missing) < THIRD_STOP / 2 + 1e-9 else missing
    return Exposure(min(iso, body.iso[1]), min(_step(HANDHELD_S, slower), body.shutter[1]), open_)


def _bright(spare: float, body: Body, open_: float) -> Exposure:
    """Reduce an exposure of 1/60 s wide open by ``spare`` stops, half by aperture where possible, the rest by
    shutter.
    """
    closed = min(spare / 2, 2 * math.log2(body.aperture[1] / open_))
    stops = round(closed / THIRD_STOP) * THIRD_STOP
    aperture = min(open_ * 2 ** (stops / 2), body.aperture[1])
    return Exposure(body.iso[0], max(_step(HANDHELD_S, stops - spare), body.shutter[0]), aperture)


def _step(start: float, stops: float) -> float:
    """Return ``start`` changed by ``stops``, rounded to thirds of a stop."""
    return float(start * 2 ** (round(stops / THIRD_STOP) * THIRD_STOP))
