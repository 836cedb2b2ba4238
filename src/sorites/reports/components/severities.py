"""Human-readable severities: stops, micrometres, ISO, JPEG quality, millimetres of rain per hour."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sorites.core import SHIFTS, Shift
from sorites.core.compositions import LEVEL
from sorites.reports.components.markup import DASH, number
from sorites.reports.view import View

# Rain by its rate in mm per hour, as defined by the American Meteorological Society.
RAIN = ((2.5, "light"), (7.6, "moderate"), (50.0, "heavy"), (math.inf, "violent"))


def _rounded(value: float, digits: int = 2) -> str:
    """Round a large number to significant digits, without an exponent: 6400."""
    return f"{float(f'{value:.{digits}g}'):.0f}"


def _one_decimal(severity: float) -> str:
    """Return a whole severity as it was set, and a measured one with one decimal."""
    return f"{severity:.0f}" if severity % 1 == 0 else f"{severity:.1f}"


def _two_digits(severity: float) -> str:
    return number(severity, 2)


def _percent(severity: float) -> str:
    return number(float(f"{100 * severity:.1f}"))


def _whole_percent(severity: float) -> str:
    return f"{100 * severity:.0f}"


def _percent_left(severity: float) -> str:
    return f"{100 * (1 - severity):.0f}"


def _transmission(depth: float) -> str:
    """Return the percentage of light transmitted at an optical depth."""
    return f"{100 * math.exp(-depth):.0f}"


def _rain(severity: float) -> str:
    rate = 20 * severity
    return f"{next(word for most, word in RAIN if rate <= most)} rain, {{}} mm/h"


@dataclass(frozen=True)
class Reading:
    """How the severities of a shift are written."""

    value: Callable[[float], str]
    """Formats a severity as a number."""
    words: str
    """The words around that number (``{}``)."""
    detailed: Callable[[float], str] | None = None
    """Returns the words at a severity, where they depend on it."""

    def text(self, severity: float | None) -> str:
        """Return a severity in words, such as "JPEG quality 18"."""
        if severity is None:
            return DASH
        words = self.detailed(severity) if self.detailed else self.words
        return _singular(words.format(self.value(severity)))

    @property
    def axis(self) -> str:
        """What the numbers of an axis count: "JPEG quality", "px out of focus", "level … of 5"."""
        return self.words.removeprefix("{} ").removesuffix(" {}").replace("{}", "…")


# How to write the severities of a shift whose unit alone is not clear.
READINGS: Mapping[str, Reading] = {
    "defocus_disk": Reading(_one_decimal, "{} px out of focus"),
    "gaussian_blur": Reading(_one_decimal, "{} px of blur"),
    "decentre": Reading(_two_digits, "{} µm of decentre"),
    "tilt": Reading(_two_digits, "{} arcmin of tilt"),
    "spacing": Reading(_two_digits, "{} µm of spacing"),
    "exposure_stops": Reading(_one_decimal, "{} stops over-exposed"),
    "exposure_stops_down": Reading(_one_decimal, "{} stops under-exposed"),
    "iso_noise": Reading(lambda s: _rounded(100 * 2**s), "ISO {}"),
    "aperture": Reading(lambda s: number(22 / 2 ** (s / 2), 2), "f/{}, out of focus"),
    "gaussian_noise": Reading(_whole_percent, "noise of {} % of white"),
    "shot_noise": Reading(lambda s: _rounded(s**-2) if s else "∞", "{} photons at white"),
    "impulse_noise": Reading(_whole_percent, "{} % of values lost"),
    "speckle_noise": Reading(_whole_percent, "speckle of {} %"),
    "haze": Reading(_transmission, "fog, {} % of light left"),
    "smog": Reading(_transmission, "smog, {} % of light left"),
    "dust": Reading(_transmission, "dust, {} % of light left"),
    "sandstorm": Reading(_transmission, "sand, {} % of light left"),
    "rain": Reading(lambda s: number(20 * s, 2), "rain, {} mm/h", _rain),
    "snowfall": Reading(_two_digits, "{} cm of snow per hour"),
    "jpeg": Reading(lambda s: f"{100 - s:.0f}", "JPEG quality {}"),
    "pixelate": Reading(_percent_left, "{} % of the pixels per side"),
    "contrast": Reading(_percent_left, "{} % of the contrast"),
    "brightness": Reading(_whole_percent, "{} % brighter"),
    "elastic_transform": Reading(_one_decimal, "elastic gain of {}"),
    "scale": Reading(lambda s: number(2**s, 2), "{} times smaller"),
    "laion_luminance_checkerboard": Reading(number, "{} of 255 lighter or darker"),
    "context": Reading(_two_digits, "{} uncommon traits"),
}

NAMES = {
    "exposure_stops": "over-exposure",
    "exposure_stops_down": "under-exposure",
    "iso_noise": "ISO noise",
    "haze": "fog",
    "defocus_disk": "defocus",
    "defocus_spherical": "defocus, spherical",
    "jpeg": "JPEG",
    "context": "uncommon context",
    "aperture": "open aperture",
    "pixelate": "few pixels",
    "contrast": "low contrast",
    "fog": "fog (ImageNet-C)",
    "snow": "snow (ImageNet-C)",
}

_COUNTS_DOWN = re.compile(r"(?P<top>\d+) - (?P<name>\w+)")
_SCALED = re.compile(r"(?P<factor>\d+) (?P<unit>.+)")
_FRACTION = re.compile(r"(fraction|share)( (?P<of>.+))?")
# Units that follow a number: short ones, plurals, rates, and those that begin with a length.
_FOLLOWS = re.compile(r".{1,3}|(px|um|µm|mm|cm|m|arcmin)\b.*|\w+s\b.*")
_ONE = re.compile(r"\b1(\.0)? (stop|level|degree|octave|shape|sticker|photon|trait|step|uncommon trait)s\b")


def title(shift: str) -> str:
    """Return the human-readable name of a shift."""
    return NAMES.get(shift, shift.replace("_", " "))


def reading_in(unit: str, levels: int = 0) -> Reading:
    """Return how severities in a unit are written.

    Args:
        unit: The unit, such as ``px``, ``100 - quality``, ``fraction of the side`` or ``sigma``.
        levels: The number of levels of a shift whose unit is ``level``.
    """
    unit = re.sub(r"\bum\b", "µm", unit)
    if unit in ("level", "levels"):
        return Reading(_one_decimal, f"level {{}} of {levels}") if levels else Reading(number, "level {}")
    if found := _COUNTS_DOWN.fullmatch(unit):
        top = float(found["top"])
        return Reading(lambda s: number(top - s), f"{found['name']} {{}}")
    if found := _FRACTION.fullmatch(unit):
        return Reading(_percent, f"{{}} % {found['of'] or ''}".strip())
    if found := _SCALED.fullmatch(unit):
        factor = float(found["factor"])
        return Reading(lambda s: number(factor * s), f"{{}} {found['unit']}")
    after = _FOLLOWS.fullmatch(unit)
    return Reading(number, f"{{}} {unit}" if after else f"{unit or 'severity'} {{}}")


def reading(shift: str) -> Reading:
    """Return how severities of a registered shift are written; of another one, as severities."""
    if shift in READINGS:
        return READINGS[shift]
    registered = SHIFTS.get(shift) if shift in SHIFTS else None
    return reading_in("") if registered is None else reading_in(registered.unit, len(registered.levels))


def reading_of_shift(shift: Shift) -> Reading:
    """Return how severities of a shift are written, also of one that is not registered."""
    return reading(shift.name) if shift.name in SHIFTS else reading_in(shift.unit, len(shift.levels))


def in_words(shift: str, severity: float) -> str:
    """Return a human-readable severity of a registered shift, such as "JPEG quality 18"."""
    return reading(shift).text(severity)


def reading_of(view: View, shift: str) -> Reading:
    """Return how severities of a shift of a page are written, also of one that only its source defines."""
    if shift in view.cameras:
        return reading_in(LEVEL, len(view.cameras[shift].shift().levels))
    if shift in view.own_dials:
        return reading_in(view.own_dials[shift].unit)
    return reading(view.registered.get(shift, shift))


def severity_text(view: View, shift: str, severity: float | None) -> str:
    """Return a severity of a shift of a page in words, such as "JPEG quality 18"."""
    return reading_of(view, shift).text(severity)


def _singular(text: str) -> str:
    """Write one of a unit in the singular: "1 stop"."""
    return _ONE.sub(lambda found: f"1{found[1] or ''} {found[2]}", text)
