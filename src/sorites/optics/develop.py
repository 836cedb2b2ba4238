"""Development turns raw numbers into an 8-bit image: subtract black, balance white, apply the
tone curve, store as JPEG.
"""

from __future__ import annotations

import functools
import io
import math

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.optics.camera import Body, Exposure
from sorites.optics.camera import Light as Light_of

# The sRGB curve between light and display values, both 0..1 (IEC 61966-2-1): in single precision for
# images, in double for tables. The two are kept apart on purpose: their last bits differ, and pixels
# and measures follow from each.


Light = NDArray[np.float32]


def linear(display: Light) -> Light:
    """Turn display values into light, in single precision."""
    low = display * np.float32(1 / 12.92)
    return np.where(
        display <= 0.04045, low, ((display + np.float32(0.055)) * np.float32(1 / 1.055)) ** np.float32(2.4)
    )


def to_display(light: Light) -> Light:
    """Turn light, clipped to 0..1, into display values, in single precision."""
    clipped = np.clip(light, 0, 1)
    high = np.float32(1.055) * clipped ** np.float32(1 / 2.4) - np.float32(0.055)
    return np.where(clipped <= 0.0031308, clipped * np.float32(12.92), high)


def encoded(light: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn light into display values, in double precision."""
    return np.where(light <= 0.0031308, 12.92 * light, 1.055 * np.maximum(light, 0) ** (1 / 2.4) - 0.055)


@functools.cache
def light_of_bytes() -> NDArray[np.float64]:
    """Return the light of each of the 256 values of an 8-bit image, in double precision; not to
    be written to.
    """
    values = np.arange(256) / 255
    light = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    light.setflags(write=False)
    return light


# Number of steps of the developing table per digital number.
FINE = 4


def tone(share: NDArray[np.float64], body: Body) -> NDArray[np.float64]:
    """Apply the camera's tone curve, from a share of saturation 0..1 to a display value 0..1.

    It rises and keeps 0 and 1.
    """
    display = encoded(1 - (1 - np.clip(share, 0, 1)) ** body.shoulder)
    return display - body.contrast * np.sin(2 * np.pi * display) / (2 * np.pi)


@functools.lru_cache(maxsize=64)
def curves(body: Body, iso: float, area: float) -> Light_of:
    """Return, flat and channel by channel, the display value of every raw number in steps of 1 / ``FINE`` DN.

    A camera develops its full-size image and scales it down afterwards. The display value at a
    raw mean is therefore the mean of the curve over the noise of single pixels (when ``area`` is 1,
    no noise is left to average).
    """
    numbers = np.arange(body.white_dn * FINE + 1) / FINE
    knots = np.unique(
        np.concatenate([body.black_dn + np.linspace(-1, 1, 129) * 32, np.linspace(0, body.white_dn, 513)])
    )
    return np.concatenate(
        [np.interp(numbers, knots, _averaged(knots, body, iso, area, k)) for k in range(3)]
    ).astype(np.float32)


def _averaged(
    dn: NDArray[np.float64], body: Body, iso: float, area: float, channel: int
) -> NDArray[np.float64]:
    """Return the tone curve of one channel at raw numbers ``dn``, averaged over the noise that is left."""
    gain, range_ = body.balance[channel], body.white_dn - body.black_dn
    electrons = (dn - body.black_dn) / body.dn_per_e(iso)
    remaining = 1 - 1 / area
    sigma = np.sqrt(remaining * (np.maximum(electrons, 0) + body.noise_e(iso) ** 2)) * body.dn_per_e(iso)
    room = np.maximum(body.white_dn / gain + body.black_dn * (1 - 1 / gain) - dn, 0) / 3
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    spread = dn[:, None] + np.minimum(sigma, room)[:, None] * np.clip(nodes, -3, 3)
    seen: NDArray[np.float64] = tone((spread - body.black_dn) * gain / range_, body) @ (
        weights / weights.sum()
    )
    return seen


def develop(raw: Light_of, body: Body, iso: float, area: float = 1.0) -> Light_of:
    """Convert raw numbers, H x W x 3, to display values 0..1."""
    table = curves(body, iso, area).reshape(3, -1)
    places = (raw * np.float32(FINE) + np.float32(0.5)).astype(np.int32)
    display = np.empty_like(raw)
    for channel in range(3):
        np.take(table[channel], places[..., channel], out=display[..., channel], mode="clip")
    return display


def jpeg(display: Light_of, quality: int) -> Light_of:
    """Encode display values as an 8-bit JPEG file and decode it again."""
    from PIL import Image

    file = io.BytesIO()
    eight = (display * np.float32(255) + np.float32(0.5)).astype(np.uint8)
    Image.fromarray(eight).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file), np.float32) * np.float32(1 / 255)


# Automatic exposure: a program turns the reading of a reflected-light meter into ISO, shutter and
# aperture.


# The reflected-light constant in cd s / m2 (ISO 2720): a correct exposure has N^2 / t = L S / K.
K = 12.5
# The slowest shutter time that the program uses before it raises ISO.
HANDHELD_S = 1 / 60
# Cameras are set in thirds of a stop (a factor of two in light).
THIRD = 1 / 3


def program(luminance: float, body: Body, widest: float | None = None) -> Exposure:
    """Return ISO, shutter and aperture for a metered luminance in cd/m2, as a camera's program mode does.

    In bright light the stops are shared between shutter and aperture at the base ISO. In dim light
    the lens is wide open at 1/60 s and ISO rises; at the highest ISO the shutter slows. ``widest``
    is the lens's smallest f-number at its focal length.
    """
    if not (math.isfinite(luminance) and luminance > 0):
        raise SoritesError(f"metering: wanted a luminance above 0 cd/m2, got {luminance}")
    open_ = body.aperture[0] if widest is None else widest
    wanted = math.log2(K / luminance)
    at_base = math.log2(body.iso[0] * HANDHELD_S / open_**2)
    if wanted <= at_base:
        return _bright(at_base - wanted, body, open_)
    iso = _step(body.iso[0], min(wanted - at_base, math.log2(body.iso[1] / body.iso[0])))
    missing = wanted - math.log2(iso * HANDHELD_S / open_**2)
    slower = 0.0 if abs(missing) < THIRD / 2 + 1e-9 else missing
    return Exposure(min(iso, body.iso[1]), min(_step(HANDHELD_S, slower), body.shutter[1]), open_)


def _bright(spare: float, body: Body, open_: float) -> Exposure:
    """Return the exposure when 1/60 s wide open gives ``spare`` stops too much light: the aperture
    takes half of them as far as it closes, the shutter the rest.
    """
    closed = min(spare / 2, 2 * math.log2(body.aperture[1] / open_))
    stops = round(closed / THIRD) * THIRD
    aperture = min(open_ * 2 ** (stops / 2), body.aperture[1])
    return Exposure(body.iso[0], max(_step(HANDHELD_S, stops - spare), body.shutter[0]), aperture)


def _step(start: float, stops: float) -> float:
    """Return ``start`` changed by ``stops``, rounded to whole thirds of a stop."""
    return float(start * 2 ** (round(stops / THIRD) * THIRD))
