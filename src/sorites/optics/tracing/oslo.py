"""Read OSLO lens files (.len) as prescriptions.

A file is ``LEN NEW "name" focal-length surfaces``, lines about the whole lens, and blocks of surfaces that
end with ``NXT``; ``//`` starts a comment. Radii and distances are in millimetres (``UNI 1.0``). Every command
that is not known here is refused, because it may change the light.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from sorites.optics.tracing.prescription import Glass, Prescription, Refused, Surface

DISTANT = 1e9
# Terms of an asphere: AD is r^4, AE is r^6, ...; the numbers are those of ``Surface.even``.
TERMS = {f"A{letter}": number for number, letter in enumerate("DEFG", start=2)}
# Commands that describe or weigh and change no ray; so do wavelength weights.
IGNORED = frozenset(["LEN", "DES", "WW", "NOT", "NOTE", "LID", "SNO", "END", "ASP", "TCE"])
NEAR = frozenset(["NAO", "OBH"])
# Lines at which the indices of a model glass are read, in um, and how near a stated wavelength must be.
LINES_UM, TOLERANCE_UM = {"d": 0.58756, "F": 0.48613, "C": 0.65627}, 2e-4


@dataclass
class _File:
    surfaces: list[Surface] = field(default_factory=lambda: [Surface()])
    stop: int = -1
    aperture: tuple[str, float] = ("", 0.0)
    angle: float = 0.0
    waves_um: tuple[float, ...] = ()
    # (surface, indices) of model glasses; the wavelengths may follow them.
    models: list[tuple[int, list[float]]] = field(default_factory=list)


def parse_len(text: str, name: str) -> Prescription:
    """Parse the text of a .len file.

    Raises:
        Refused: A command is unknown or cannot be read, or the object is near.
    """
    file = _File()
    for command in _commands(text):
        word, *rest = command.split()
        try:
            _apply(file, word.upper(), rest)
        except (ValueError, IndexError, OverflowError) as error:
            raise Refused(f"its command {command[:60]!r} cannot be read: {error}") from error
    for number, indices in file.models:
        file.surfaces[number].glass = _model(indices, file.waves_um)
    return Prescription(name, file.surfaces, file.stop, file.aperture, "angle", file.angle, MAKERS)


# Catalogues in which a glass is looked up by its name alone, in this order.
MAKERS = ("SCHOTT", "OHARA", "HOYA", "SUMITA", "HIKARI", "CDGM")


def _commands(text: str) -> list[str]:
    """Return the commands of a file, without comments and texts in quotes."""
    lines = (re.sub(r'"[^"]*"', "", line).partition("//")[0] for line in text.splitlines())
    parts = (part.strip() for line in lines for part in line.split(";"))
    return [part for part in parts if part]


def _apply(file: _File, word: str, rest: list[str]) -> None:
    """Apply a command."""
    if word == "NXT":
        file.surfaces.append(Surface())
    elif word == "EBR":
        file.aperture = ("entrance pupil", 2 * float(rest[0]))
    elif word == "ANG":
        file.angle = abs(float(rest[0]))
    elif word in NEAR:
        raise Refused(f"its aperture or field is stated at the object ({word}): the object is near")
    elif word == "UNI":
        if float(rest[0]) != 1:
            raise Refused(f"its unit is UNI {rest[0]}; only UNI 1.0 (millimetres) is known")
    elif word in ("WV", "WAV"):
        file.waves_um = tuple(float(value) for value in rest)
    elif not _of_surface(file, word, rest) and word not in IGNORED:
        raise Refused(f"its command {word} is not known and may change the light")


def _of_surface(file: _File, word: str, rest: list[str]) -> bool:
    """Apply a command to the last surface; return whether it was one."""
    last = file.surfaces[-1]
    if word == "RD":
        last.curvature = 1 / float(rest[0]) if float(rest[0]) else 0.0
    elif word == "CV":
        last.curvature = float(rest[0])
    elif word == "TH":
        last.thickness = math.inf if abs(float(rest[0])) >= DISTANT else float(rest[0])
    elif word == "CC":
        last.conic = float(rest[0])
    elif word in TERMS:
        last.even[TERMS[word]] = float(rest[0])
        last.shape = "EVENASPH"
    elif word == "AP":
        _set_aperture(last, rest)
    elif word == "AST":
        file.stop = len(file.surfaces) - 1
    elif word in ("AIR", "RFL", "RFH"):
        last.glass = None if word == "AIR" else Glass("MIRROR")
    elif word == "GLA":
        _set_glass(file, rest)
    else:
        return False
    return True


def _set_aperture(surface: Surface, rest: list[str]) -> None:
    """Set the semi-diameter; a checked aperture blocks rays."""
    radius = float(rest[-1])
    surface.semi_mm = radius
    if any(part.upper() in ("CHK", "CHKON") for part in rest[:-1]) and radius > 0:
        surface.rim_mm = radius


def _set_glass(file: _File, rest: list[str]) -> None:
    """Set a glass by name, by one index without dispersion, or by its indices at the wavelengths (MOD)."""
    surface = file.surfaces[-1]
    if rest[0].upper() in ("MOD", "FIX"):
        file.models.append((len(file.surfaces) - 1, [float(value) for value in rest[2:]]))
        return
    try:
        surface.glass = Glass("", float(rest[0]), 0.0)
    except ValueError:
        surface.glass = Glass(rest[0].upper())


def _model(indices: list[float], waves_um: tuple[float, ...]) -> Glass:
    """Return a glass given by its indices at d, F and C among the wavelengths of the file."""
    at = {}
    for line, wave in LINES_UM.items():
        near = [i for i, other in enumerate(waves_um) if abs(other - wave) < TOLERANCE_UM]
        if not near or near[0] >= len(indices):
            raise Refused(
                f"a glass of its own has no index at the {line} line; its wavelengths are {waves_um}"
            )
        at[line] = indices[near[0]]
    if at["F"] == at["C"]:
        return Glass("", at["d"], 0.0)
    return Glass("", at["d"], (at["d"] - 1) / (at["F"] - at["C"]))
