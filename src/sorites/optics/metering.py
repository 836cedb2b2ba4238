"""Automatic exposure: a program turns the reading of a reflected-light meter into ISO, shutter and aperture."""

from __future__ import annotations

import math

from sorites.errors import SoritesError
from sorites.optics.camera import Body, Exposure

K = 12.5
"""The reflected-light constant in cd s / m2 (ISO 2720): a correct exposure has N^2 / t = L S / K."""
HANDHELD_S = 1 / 60
"""The slowest shutter time that the program uses before it raises ISO."""
THIRD = 1 / 3
"""Cameras are set in thirds of a stop (a factor of two in light)."""


def program(luminance: float, body: Body, widest: float | None = None) -> Exposure:
    """Return ISO, shutter and aperture for a metered luminance in cd/m2, as a camera's program mode does.

    In bright light the stops are shared between shutter and aperture at the base ISO. In dim light the lens is wide open at
    1/60 s and ISO rises; at the highest ISO the shutter slows. ``widest`` is the lens's smallest f-number at its focal length.
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
    """Return the exposure when 1/60 s wide open gives ``spare`` stops too much light: the aperture takes half of them as far as
    it closes, the shutter the rest."""
    closed = min(spare / 2, 2 * math.log2(body.aperture[1] / open_))
    stops = round(closed / THIRD) * THIRD
    aperture = min(open_ * 2 ** (stops / 2), body.aperture[1])
    return Exposure(body.iso[0], max(_step(HANDHELD_S, stops - spare), body.shutter[0]), aperture)


def _step(start: float, stops: float) -> float:
    """Return ``start`` changed by ``stops``, rounded to whole thirds of a stop."""
    return float(start * 2 ** (round(stops / THIRD) * THIRD))
