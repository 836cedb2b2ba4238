"""How a camera sets itself: a reflected-light meter over the frame, and a program that turns its reading into three dials."""

from __future__ import annotations

import math

from sorites.errors import SoritesError
from sorites.optics.camera import Body, Exposure

K = 12.5
"""Reflected-light constant, cd s / m2 (ISO 2720): the meter wants N^2 / t = L S / K."""
HAND_S = 1 / 60
"""The slowest shutter the program takes before it raises ISO."""
THIRD = 1 / 3
"""Cameras are set in thirds of a stop."""


def program(luminance: float, body: Body, widest: float | None = None) -> Exposure:
    """ISO, shutter and aperture for a metered luminance in cd/m2, as in program mode.

    In bright light the stops are shared between shutter and aperture at the base ISO. In dim light the lens stands wide
    open at 1/60 s and ISO rises; when that ends, the shutter slows. ``widest`` is the lens's f-number at its focal length.
    """
    if not (math.isfinite(luminance) and luminance > 0):
        raise SoritesError(f"the meter wants a luminance above 0 cd/m2, got {luminance}")
    open_ = body.aperture[0] if widest is None else widest
    wanted = math.log2(K / luminance)
    at_base = math.log2(body.iso[0] * HAND_S / open_**2)
    if wanted <= at_base:
        return _bright(at_base - wanted, body, open_)
    iso = _step(body.iso[0], min(wanted - at_base, math.log2(body.iso[1] / body.iso[0])))
    missing = wanted - math.log2(iso * HAND_S / open_**2)
    slower = 0.0 if abs(missing) < THIRD / 2 + 1e-9 else missing
    return Exposure(min(iso, body.iso[1]), min(_step(HAND_S, slower), body.shutter[1]), open_)


def _bright(spare: float, body: Body, open_: float) -> Exposure:
    """``spare`` stops too many at 1/60 s wide open: half of them to the aperture while it closes, the rest to the shutter."""
    closed = min(spare / 2, 2 * math.log2(body.aperture[1] / open_))
    stops = round(closed / THIRD) * THIRD
    aperture = min(open_ * 2 ** (stops / 2), body.aperture[1])
    return Exposure(body.iso[0], max(_step(HAND_S, stops - spare), body.shutter[0]), aperture)


def _step(start: float, stops: float) -> float:
    """``start`` moved by the nearest whole number of thirds of a stop."""
    return float(start * 2 ** (round(stops / THIRD) * THIRD))
