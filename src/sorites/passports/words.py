"""Severities in words of the world: stops, micrometres, ISO, millimetres of rain per hour."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from sorites.core import SHIFTS
from sorites.reports.parts.markup import number

RAIN = ((2.5, "light"), (7.6, "moderate"), (50.0, "heavy"), (math.inf, "violent"))
"""Rain by its rate in mm per hour, as the American Meteorological Society calls it."""

Words = tuple[Callable[[float], str], str]
"""The number that a severity stands for, and the words around it, in which the number is ``{}``."""


def _rounded(value: float, digits: int = 2) -> str:
    """Return a large number rounded to some digits, without an exponent: 6400."""
    return f"{float(f'{value:.{digits}g}'):.0f}"


def _plain(severity: float) -> str:
    return f"{severity:.1f}"


def _two(severity: float) -> str:
    return number(severity, 2)


def _percent(severity: float) -> str:
    return f"{100 * severity:.0f}"


def _left(severity: float) -> str:
    return f"{100 * (1 - severity):.0f}"


def _through(depth: float) -> str:
    """Return the percentage of light that air of an optical depth lets through."""
    return f"{100 * math.exp(-depth):.0f}"


SAID: Mapping[str, Words] = {
    "defocus_disk": (_plain, "{} px out of focus"),
    "gaussian_blur": (_plain, "{} px of blur"),
    "decentre": (_two, "{} µm of decentre"),
    "tilt": (_two, "{} arcmin of tilt"),
    "spacing": (_two, "{} µm of spacing"),
    "exposure_stops": (_plain, "{} stops over-exposed"),
    "exposure_stops_down": (_plain, "{} stops under-exposed"),
    "iso_noise": (lambda s: _rounded(100 * 2**s), "ISO {}"),
    "aperture": (lambda s: number(22 / 2 ** (s / 2), 2), "f/{}, out of focus"),
    "gaussian_noise": (_percent, "noise of {} % of white"),
    "shot_noise": (lambda s: _rounded(s**-2) if s else "∞", "{} photons at white"),
    "impulse_noise": (_percent, "{} % of values lost"),
    "speckle_noise": (_percent, "speckle of {} %"),
    "haze": (_through, "fog, {} % of light left"),
    "smog": (_through, "smog, {} % of light left"),
    "dust": (_through, "dust, {} % of light left"),
    "sandstorm": (_through, "sand, {} % of light left"),
    "rain": (lambda s: number(20 * s, 2), "rain, {} mm/h"),
    "snowfall": (_two, "{} cm of snow per hour"),
    "jpeg": (lambda s: f"{100 - s:.0f}", "JPEG quality {}"),
    "pixelate": (_left, "{} % of the pixels per side"),
    "contrast": (_left, "{} % of the contrast"),
    "brightness": (_percent, "{} % brighter"),
    "elastic_transform": (_plain, "elastic gain of {}"),
    "context": (_two, "{} uncommon traits"),
}
"""The words for a severity of a shift, where its unit does not say enough."""

NAMES = {
    "exposure_stops": "over-exposure", "exposure_stops_down": "under-exposure", "iso_noise": "ISO noise", "haze": "fog",
    "defocus_disk": "defocus", "defocus_spherical": "defocus, spherical", "jpeg": "JPEG", "context": "uncommon context",
    "aperture": "open aperture", "pixelate": "few pixels", "contrast": "low contrast",
    "fog": "fog (ImageNet-C)", "snow": "snow (ImageNet-C)",
}  # fmt: skip


def title(shift: str) -> str:
    """Return the name of a shift as a reader says it."""
    return NAMES.get(shift, shift.replace("_", " "))


def _said(shift: str) -> Words:
    if shift in SAID:
        return SAID[shift]
    held = SHIFTS.get(shift) if shift in SHIFTS.names() else None
    if held is not None and held.unit in ("level", "levels"):
        return _plain, f"level {{}} of {len(held.levels)}"
    return number, f"{{}} {held.unit if held else ''}".strip()


def in_words(shift: str, severity: float) -> str:
    """Return a severity of a shift in words."""
    value, words = _said(shift)
    found = words.format(value(severity))
    return f"{next(word for most, word in RAIN if 20 * severity <= most)} {found}" if shift == "rain" else found


def between_words(shift: str, low: float | None, high: float | None) -> str:
    """Return the numbers of an interval as the words have them; a missing end lies beyond the dial."""
    value, _ = _said(shift)
    if low is None:
        return "beyond the dial"
    return f"{value(low)} to {'beyond' if high is None else value(high)}"
