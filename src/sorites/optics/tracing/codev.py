"""Read CODE V sequence files (.seq) as prescriptions.

A surface is ``S radius-or-curvature thickness [glass]``; ``SO`` is the object, ``SI`` the image. Commands are
separated by lines or semicolons, in any case, and ``!`` starts a comment. Every command that is not known
here is refused, because it may change the light. A file must say with ``RDM`` whether its numbers are radii
or curvatures: public files without it exist in both meanings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from sorites.optics.tracing.prescription import (
    Glass,
    Prescription,
    Refused,
    Surface,
    Vignetting,
    to_millimetres,
)

UNITS_MM = {"M": 1.0, "C": 10.0, "I": 25.4}
# An object at least this far away, in the file's units, is distant.
DISTANT = 1e9
FIELDS = {
    "XAN": "angle",
    "YAN": "angle",
    "XIM": "paraxial image height",
    "YIM": "paraxial image height",
    "XRI": "real image height",
    "YRI": "real image height",
}
APERTURES = {"EPD": "entrance pupil", "FNO": "F-number"}
VIGNETTING = ("VUX", "VLX", "VUY", "VLY")
# Terms of an asphere: A is r^4, B is r^6, ...; the numbers are those of ``Surface.even``.
TERMS = {letter: number for number, letter in enumerate("ABCDEFG", start=2)}
# Commands that describe, weigh, optimise or name and change no ray; so do wavelengths, which are ours.
IGNORED = frozenset(
    (
        "TIT", "TITLE", "WL", "REF", "WTW", "WTF", "INI", "TEM", "LEN", "GO", "CCY", "THC", "KC", "AC", "BC",
        "CC", "DC", "EC", "FC", "GC", "SLB", "DER", "PIM", "PIK", "CUY", "THI", "PUY", "AIR",
    )
)  # fmt: skip
# A glass as a code of six or more digits, and as index and Abbe number.
CODE = re.compile(r"(\d{3,6})\.(\d{2,6})")
PAIR = re.compile(r"(\d\.\d+):(\d+(?:\.\d+)?)")


@dataclass
class _File:
    name: str
    surfaces: list[Surface] = field(default_factory=list)
    stop: int = -1
    radii: bool | None = None
    scale: float = 1.0
    aperture: tuple[str, float] = ("", 0.0)
    kind: str = ""
    fields: dict[str, list[float]] = field(default_factory=dict)
    vignetting: dict[str, list[float]] = field(default_factory=dict)
    makers: dict[str, None] = field(default_factory=dict)
    defocus: float = 0.0


def parse_seq(text: str, name: str) -> Prescription:
    """Parse the text of a .seq file and scale it to millimetres.

    Raises:
        Refused: A command is unknown or cannot be read.
    """
    file = _File(name)
    for command in _commands(text):
        word, *rest = command.split()
        try:
            _apply(file, word.upper(), rest)
        except (ValueError, IndexError, OverflowError) as error:
            raise Refused(f"its command {command[:60]!r} cannot be read: {error}") from error
    if not file.surfaces:
        raise Refused("it is not a .seq file: it has no surfaces")
    file.surfaces[-2 if len(file.surfaces) > 1 else -1].thickness += file.defocus
    largest, vignetting = _fields(file)
    prescription = Prescription(
        name,
        file.surfaces,
        file.stop,
        file.aperture,
        file.kind or "angle",
        largest,
        tuple(file.makers),
        vignetting,
    )
    return to_millimetres(prescription, file.scale)


def _commands(text: str) -> list[str]:
    """Return the commands of a file, without comments and texts in quotes."""
    lines = (re.sub(r"'[^']*'|\"[^\"]*\"", "", line).partition("!")[0] for line in text.splitlines())
    parts = (part.strip() for line in lines for part in line.split(";"))
    return [part for part in parts if part]


def _apply(file: _File, word: str, rest: list[str]) -> None:
    """Apply a command."""
    if word in ("SO", "S", "SI") or re.fullmatch(r"S\d+", word):
        _add_surface(file, word, rest)
    elif word == "RDM":
        file.radii = not rest or not rest[0].upper().startswith("N")
    elif word == "DIM":
        file.scale = UNITS_MM[rest[0].upper()[:1]]
    elif word in APERTURES:
        file.aperture = (APERTURES[word], float(rest[0]))
    elif word == "NA":
        file.aperture = ("F-number", 1 / (2 * float(rest[0])))
    elif word in FIELDS:
        _add_fields(file, word, rest)
    elif word in VIGNETTING:
        file.vignetting[word] = [float(value) for value in rest]
    elif not _of_surface(file, word, rest) and word not in IGNORED:
        raise Refused(f"its command {word} is not known and may change the light")


def _add_fields(file: _File, word: str, rest: list[str]) -> None:
    values = [float(value) for value in rest]
    if any(values) and file.kind not in ("", FIELDS[word]) and any(any(own) for own in file.fields.values()):
        raise Refused(f"its fields are given as {file.kind} and as {FIELDS[word]}")
    file.kind = FIELDS[word] if any(values) or not file.kind else file.kind
    file.fields[word[0]] = values


def _add_surface(file: _File, word: str, rest: list[str]) -> None:
    if file.radii is None:
        raise Refused("it does not say whether its numbers are radii (RDM) or curvatures (RDM N)")
    number, thickness = float(rest[0]), float(rest[1]) if len(rest) > 1 else 0.0
    curvature = (1 / number if number else 0.0) if file.radii else number
    if word == "SO":
        thickness = math.inf if thickness >= DISTANT else thickness
    if word == "SI":
        file.defocus, thickness = thickness, 0.0
    file.surfaces.append(
        Surface(curvature, thickness, glass=_glass(file, rest[2]) if len(rest) > 2 else None)
    )


def _glass(file: _File, text: str) -> Glass | None:
    """Return a glass by name and maker (NBK7_SCHOTT), by code (517.642) or by numbers (1.5168:64.17)."""
    upper = text.upper()
    if upper == "AIR":
        return None
    if upper in ("REFL", "REFR") or "MIRROR" in upper:
        return Glass("MIRROR")
    if code := CODE.fullmatch(upper):
        return Glass("", 1 + float(f"0.{code[1]}"), float(f"{code[2][:2]}.{code[2][2:] or 0}"))
    if pair := PAIR.fullmatch(upper):
        return Glass("", float(pair[1]), float(pair[2]))
    name, _, maker = upper.partition("_")
    file.makers[maker or "SCHOTT"] = None
    return Glass(name)


def _of_surface(file: _File, word: str, rest: list[str]) -> bool:
    """Apply a command to the last surface; return whether it was one."""
    if not file.surfaces:
        return False
    last = file.surfaces[-1]
    plain: dict[str, Callable[[], object]] = {
        "STO": lambda: setattr(file, "stop", len(file.surfaces) - 1),
        "ASP": lambda: setattr(last, "shape", "EVENASPH"),
        "CON": lambda: None,
        "SPH": lambda: None,
    }
    if word in plain:
        plain[word]()
    elif word == "K":
        last.conic = float(rest[0])
    elif word in TERMS:
        last.even[TERMS[word]] = float(rest[0])
        last.shape = "EVENASPH"
    elif word == "CIR":
        if any(part.upper() in ("OBS", "HOL") for part in rest[:-1]):
            raise Refused("it has a central obscuration or hole")
        last.semi_mm = float(rest[-1])
    else:
        return False
    return True


def _fields(file: _File) -> tuple[float, tuple[Vignetting, ...]]:
    """Return the largest field, and the vignetting by rising field."""
    x, y = file.fields.get("X", []), file.fields.get("Y", [])
    count = max(len(x), len(y))
    places = [(_at(x, i), _at(y, i)) for i in range(count)]
    largest = max((math.hypot(*place) for place in places), default=0.0)
    if not largest or not any(any(values) for values in file.vignetting.values()):
        return largest, ()
    by_part: dict[float, Vignetting] = {}
    for i, (across, along) in enumerate(places):
        stated = [_at(file.vignetting.get(word, []), i) for word in VIGNETTING]
        vignetting = _vignetting(across, along, stated, largest)
        if by_part.setdefault(vignetting.part, vignetting) != vignetting:
            raise Refused("its vignetting differs at opposite fields")
    return largest, tuple(by_part[part] for part in sorted(by_part))


def _at(values: list[float], index: int) -> float:
    return values[index] if index < len(values) else 0.0


def _vignetting(x: float, y: float, stated: list[float], largest: float) -> Vignetting:
    """Return the open part of the pupil; CODE V states what is cut off at its four sides."""
    if x and y and any(stated):
        raise Refused("its vignetting is stated at a field that is neither along x nor along y")
    right, left, up, down = stated
    (first, second), (aside, other) = ((right, left), (up, down)) if x else ((up, down), (right, left))
    if abs(aside - other) > 1e-3:
        raise Refused("its vignetting moves the pupil across the field")
    offset = (second - first) / 2 * (-1 if x + y < 0 else 1)
    return Vignetting(math.hypot(x, y) / largest, offset, (aside + other) / 2, (first + second) / 2)
