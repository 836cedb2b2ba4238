"""A Zemax prescription (.zmx) as plain numbers in millimetres, or a refusal that says why it is not a photographic lens.

UTF-16 and 8-bit files. What is read: surfaces (sphere, conic, even asphere), glasses by name or by (nd, vd), the stop, the
aperture, the fields with their vignetting and hard rims. What changes the light and is not understood is refused by its name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from sorites.errors import SoritesError

UNITS_MM = {"MM": 1.0, "CM": 10.0, "IN": 25.4, "METER": 1000.0, "M": 1000.0}
SHAPES = ("STANDARD", "EVENASPH")
FIELDS = {0: "angle", 1: "object height", 2: "paraxial image height", 3: "real image height"}
PER_FIELD = ("XFLN", "YFLN", "VDXN", "VDYN", "VCXN", "VCYN", "VANN")
APERTURES = {"ENPD": "entrance pupil", "FNUM": "F-number", "FLOA": "stop"}
SLIGHT = 1e-3
"""Vignetting, in pupil radii, that is not worth refusing a lens for."""
WIDEST_DEG = 89.0
"""A distant point beyond this half angle is behind the first surface."""


class Refused(SoritesError):
    """A prescription that cannot become a lens of the set, with the reason."""


@dataclass(frozen=True)
class Glass:
    """By name in a catalogue, or by refractive index and Abbe number at the d line where the file gives them."""

    name: str = ""
    nd: float | None = None
    vd: float | None = None


@dataclass
class Surface:
    """``even`` are the coefficients of r^2, r^4, ...; ``rim_mm`` stops rays beyond it; ``semi_mm`` is only stated."""

    curvature: float = 0.0
    thickness: float = 0.0
    conic: float = 0.0
    even: dict[int, float] = field(default_factory=dict)
    glass: Glass | None = None
    semi_mm: float = 0.0
    rim_mm: float | None = None
    shape: str = "STANDARD"


@dataclass(frozen=True)
class Cut:
    """What a file leaves of the pupil at a part of the largest field: an ellipse whose middle is moved ``along`` the field and
    whose half axes across and along it are ``narrower`` and ``shorter``, all in pupil radii (its vignetting factors)."""

    part: float
    along: float = 0.0
    narrower: float = 0.0
    shorter: float = 0.0


@dataclass
class Prescription:
    """A lens as its file states it. ``aperture`` is (entrance pupil | F-number | stop, value)."""

    name: str
    surfaces: list[Surface]
    stop: int
    aperture: tuple[str, float]
    field_kind: str
    field: float
    catalogues: tuple[str, ...] = ()
    cuts: tuple[Cut, ...] = ()


def read(path: Path) -> Prescription:
    """The prescription of a file; ``Refused`` where it is none that light can be traced through from afar."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SoritesError(f"cannot read the lens {path}: {error.strerror}") from error
    return checked(parse(decode(raw), path.stem))


def decode(raw: bytes) -> str:
    """Text of a .zmx: UTF-16 by its mark or its zeros, else UTF-8, else Latin-1."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", errors="replace")
    if raw[1:2] == b"\0":
        return raw.decode("utf-16-le", errors="replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def parse(text: str, name: str) -> Prescription:
    """The numbers of a .zmx, scaled to millimetres."""
    made = Prescription(name, [], -1, ("", 0.0), "angle", 0.0)
    columns: dict[str, list[float]] = {}
    scale, count = 1.0, None
    for line in text.splitlines():
        word, *rest = line.split() or [""]
        try:
            if word == "UNIT":
                scale = _unit(rest)
            elif word == "MODE" and rest and rest[0] != "SEQ":
                raise Refused(f"its rays are not sequential (mode {rest[0]})")
            elif word == "GCAT":
                made.catalogues = tuple(rest)
            elif word in ("ENPD", "FNUM", "FLOA"):
                made.aperture = (APERTURES[word], float(rest[0]) if rest else 0.0)
            elif word == "OBNA":
                raise Refused("its aperture is stated at the object (OBNA): the object is near")
            elif word == "FTYP":
                made.field_kind, count = FIELDS.get(int(rest[0]), f"type {rest[0]}"), int(rest[2]) if len(rest) > 2 else None
            elif word in PER_FIELD:
                columns[word] = [float(value) for value in rest]
            elif word == "SURF":
                made.surfaces.append(Surface())
            elif made.surfaces:
                _surface(made, word, rest)
        except (ValueError, IndexError) as error:
            raise Refused(f"its line {line.strip()[:60]!r} cannot be read: {error}") from error
    made.field, made.cuts = _fields(columns, count)
    return scaled(made, scale)


def _unit(rest: list[str]) -> float:
    if rest[0] not in UNITS_MM:
        raise Refused(f"its unit {rest[0]} is not one of {', '.join(UNITS_MM)}")
    return UNITS_MM[rest[0]]


def _surface(made: Prescription, word: str, rest: list[str]) -> None:
    last = made.surfaces[-1]
    if word == "TYPE":
        last.shape = rest[0]
    elif word == "STOP":
        made.stop = len(made.surfaces) - 1
    elif word == "CURV":
        last.curvature = float(rest[0])
    elif word == "CONI":
        last.conic = float(rest[0])
    elif word == "DISZ":
        last.thickness = math.inf if rest[0].upper().startswith("INF") else float(rest[0])
    elif word == "PARM":
        last.even[int(rest[0])] = float(rest[1])
    elif word == "GLAS":
        last.glass = _glass(rest)
    elif word == "DIAM":
        last.semi_mm = float(rest[0])
    elif word == "CLAP" and float(rest[1]) > 0:
        last.rim_mm = float(rest[1])
    elif word == "FLAP":
        last.rim_mm = math.nan  # the stated semi-diameter, which may stand on a later line


def _glass(rest: list[str]) -> Glass:
    nd, vd = (float(rest[i]) if len(rest) > i and float(rest[i]) > 0 else None for i in (3, 4))
    return Glass("" if rest[0] == "___BLANK" else rest[0], nd, vd)


def _fields(columns: dict[str, list[float]], count: int | None) -> tuple[float, tuple[Cut, ...]]:
    """The largest field, and what is cut off the pupil at each field, by rising field; none where nothing is."""
    size = min(count or 99, max((len(values) for values in columns.values()), default=0))
    rows = [[columns[word][i] if i < len(columns.get(word, ())) else 0.0 for word in PER_FIELD] for i in range(size)]
    largest = max((math.hypot(x, y) for x, y, *_ in rows), default=0.0)
    if not largest or not any(any(row[2:6]) for row in rows):
        return largest, ()
    cuts: dict[float, Cut] = {}
    for cut in (_cut(row, largest) for row in rows):
        if (
            max(abs(a - b) for a, b in zip(vars(cut).values(), vars(cuts.setdefault(cut.part, cut)).values(), strict=True))
            > SLIGHT
        ):
            raise Refused("its vignetting differs at opposite fields")
    return largest, tuple(cuts[part] for part in sorted(cuts))


def _cut(row: list[float], largest: float) -> Cut:
    x, y, right, up, narrow, low, turn = row
    if x and y and any(row[2:6]):
        raise Refused("its vignetting is stated at a field that is neither along x nor along y")
    if turn and any(row[2:6]):
        raise Refused(f"its vignetting is turned by {turn:g} degrees")
    aside, along, sides = (up, right, (low, narrow)) if x and not y else (right, up, (narrow, low))
    if abs(aside) > SLIGHT:
        raise Refused("its vignetting moves the pupil aside of the field")
    return Cut(math.hypot(x, y) / largest, math.copysign(1.0, x + y) * along, *sides)


def scaled(made: Prescription, scale: float) -> Prescription:
    """In millimetres, with rims as numbers."""
    for one in made.surfaces:
        one.curvature, one.thickness, one.semi_mm = one.curvature / scale, one.thickness * scale, one.semi_mm * scale
        one.even = {term: value * scale ** (1 - 2 * term) for term, value in one.even.items()}
        if one.rim_mm is not None:
            one.rim_mm = (one.semi_mm or None) if math.isnan(one.rim_mm) else one.rim_mm * scale
    if made.aperture[0] == "entrance pupil":
        made.aperture = (made.aperture[0], made.aperture[1] * scale)
    if made.field_kind != "angle":
        made.field *= scale
    return made


def checked(made: Prescription) -> Prescription:
    """The prescription, if it is a refracting lens with a distant object and a field."""
    if not made.surfaces:
        raise Refused("it is no .zmx file: it has no surfaces")
    if len(made.surfaces) < 4:
        raise Refused(f"it has {len(made.surfaces)} surfaces; wanted an object, a lens and an image")
    for i, one in enumerate(made.surfaces):
        if one.shape not in SHAPES:
            raise Refused(f"surface {i} is of type {one.shape}; only {' and '.join(SHAPES)} can be traced")
        if one.glass is not None and one.glass.name == "MIRROR":
            raise Refused(f"surface {i} is a mirror; only refracting lenses are in the set")
        if one.shape == "EVENASPH" and any(value and not 1 <= term <= 8 for term, value in one.even.items()):
            raise Refused(f"surface {i} is an even asphere with a term beyond r^16")
    if math.isfinite(made.surfaces[0].thickness):
        raise Refused(f"its object is {made.surfaces[0].thickness:g} mm away; wanted a distant one")
    if any(not math.isfinite(one.thickness) for one in made.surfaces[1:]):
        raise Refused("it is afocal: a space behind the first surface is infinite")
    if made.surfaces[-1].curvature:
        raise Refused("its image surface is curved; a sensor is flat")
    if not 0 < made.stop < len(made.surfaces) - 1:
        raise Refused("it names no stop")
    return _framed(made)


def _framed(made: Prescription) -> Prescription:
    if not made.aperture[0] or (made.aperture[1] <= 0 and made.aperture[0] != "stop"):
        raise Refused("it states no aperture (ENPD, FNUM or FLOA)")
    if made.aperture[0] == "stop":
        made.aperture = ("stop", made.surfaces[made.stop].semi_mm)
        if made.aperture[1] <= 0:
            raise Refused("its aperture is the stop's size, which it does not state")
    if made.field_kind not in ("angle", "paraxial image height", "real image height"):
        raise Refused(f"its field is given as {made.field_kind}, which a distant object has not")
    if made.field <= 0:
        raise Refused("its field is zero: nothing to see away from the axis")
    if made.field_kind == "angle" and made.field > WIDEST_DEG / 0.9:
        raise Refused(f"its field is {made.field:g} degrees: nine tenths of it are behind the lens")
    return made
