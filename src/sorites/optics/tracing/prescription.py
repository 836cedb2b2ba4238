"""Read Zemax prescriptions (.zmx) as plain numbers in millimetres; ``codev`` and ``oslo`` read other files.

Files may be UTF-16 or 8-bit. The reader supports surfaces (sphere, conic, even asphere), glasses by name or
by (nd, vd, deviation), the aperture stop, the aperture, the fields with their vignetting, and hard rims. A
file with anything else that changes the light is refused, and the message names it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sorites.core.errors import SoritesError

UNITS_MM = {"MM": 1.0, "CM": 10.0, "IN": 25.4, "METER": 1000.0, "M": 1000.0}
SHAPES = ("STANDARD", "EVENASPH")
FIELDS = {0: "angle", 1: "object height", 2: "paraxial image height", 3: "real image height"}
PER_FIELD = ("XFLN", "YFLN", "VDXN", "VDYN", "VCXN", "VCYN", "VANN")
APERTURES = {"ENPD": "entrance pupil", "FNUM": "F-number", "FLOA": "stop"}
# Vignetting below this, in pupil radii, is ignored.
NEGLIGIBLE = 1e-3
# Largest half angle; a distant point beyond it is behind the first surface.
WIDEST_DEG = 89.0


class Refused(SoritesError):
    """The prescription cannot be traced as a photographic lens; the message is the reason."""


@dataclass(frozen=True)
class Glass:
    """A glass, by its catalogue name or by refractive index and Abbe number at the d line.

    Attributes:
        vd: Abbe number; 0 means no dispersion.
        deviation: Deviation of (ng - nF) / (nF - nC) from Schott's normal line.
    """

    name: str = ""
    nd: float | None = None
    vd: float | None = None
    deviation: float = 0.0


@dataclass
class Surface:
    """A surface of a lens.

    Attributes:
        even: Coefficients of r^2, r^4, ... by term.
        semi_mm: Stated semi-diameter, which blocks no rays.
        rim_mm: Radius beyond which rays are blocked.
    """

    curvature: float = 0.0
    thickness: float = 0.0
    conic: float = 0.0
    even: dict[int, float] = field(default_factory=dict)
    glass: Glass | None = None
    semi_mm: float = 0.0
    rim_mm: float | None = None
    shape: str = "STANDARD"


@dataclass(frozen=True)
class Vignetting:
    """Part of the pupil that stays open at one field, an ellipse; all but ``part`` are in pupil radii.

    Attributes:
        part: Fraction of the largest field.
        along: Offset of the ellipse's centre along the field.
        narrower: Reduction of the half axis across the field.
        shorter: Reduction of the half axis along the field.
    """

    part: float
    along: float = 0.0
    narrower: float = 0.0
    shorter: float = 0.0


@dataclass
class Prescription:
    """A lens as its file states it.

    Attributes:
        stop: Number of the surface that is the aperture stop.
        aperture: (``entrance pupil``, ``F-number`` or ``stop``, value).
    """

    name: str
    surfaces: list[Surface]
    stop: int
    aperture: tuple[str, float]
    field_kind: str
    field: float
    catalogues: tuple[str, ...] = ()
    vignetting: tuple[Vignetting, ...] = ()


def read(path: Path, parse_with: Callable[[str, str], Prescription] | None = None) -> Prescription:
    """Read and check the prescription of a file.

    Args:
        path: The file.
        parse_with: Parses text and name of a file of another program; default: that of a .zmx file.

    Raises:
        Refused: Light from a distant object cannot be traced through it.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SoritesError(f"cannot read the lens {path}: {error.strerror}") from error
    return check_traceable((parse_with or parse)(decode(raw), path.stem))


def decode(raw: bytes) -> str:
    """Decode a .zmx file: UTF-16 if it has a byte order mark or zero bytes, else UTF-8, else Latin-1."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", errors="replace")
    if raw[1:2] == b"\0":
        return raw.decode("utf-16-le", errors="replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def parse(text: str, name: str) -> Prescription:
    """Parse the text of a .zmx file and scale it to millimetres."""
    parsed = _Parsed(Prescription(name, [], -1, ("", 0.0), "angle", 0.0))
    for line in text.splitlines():
        word, *rest = line.split() or [""]
        try:
            if not _parse_header(parsed, word, rest) and parsed.prescription.surfaces:
                _parse_surface(parsed.prescription, word, rest)
        except (ValueError, IndexError) as error:
            raise Refused(f"its line {line.strip()[:60]!r} cannot be read: {error}") from error
    prescription = parsed.prescription
    prescription.field, prescription.vignetting = _fields(parsed.columns, parsed.field_count)
    return to_millimetres(prescription, parsed.scale)


@dataclass
class _Parsed:
    prescription: Prescription
    columns: dict[str, list[float]] = field(default_factory=dict)
    """Values per field, by keyword."""
    field_count: int | None = None
    scale: float = 1.0


def _parse_header(parsed: _Parsed, word: str, rest: list[str]) -> bool:
    """Apply a line that concerns the whole lens or starts a surface; return whether it was one."""
    prescription = parsed.prescription
    if word == "UNIT":
        parsed.scale = _unit(rest)
    elif word == "MODE" and rest and rest[0] != "SEQ":
        raise Refused(f"its rays are not sequential (mode {rest[0]})")
    elif word == "GCAT":
        prescription.catalogues = tuple(rest)
    elif word in APERTURES:
        prescription.aperture = (APERTURES[word], float(rest[0]) if rest else 0.0)
    elif word == "OBNA":
        raise Refused("its aperture is stated at the object (OBNA): the object is near")
    elif word == "FTYP":
        prescription.field_kind = FIELDS.get(int(rest[0]), f"type {rest[0]}")
        parsed.field_count = int(rest[2]) if len(rest) > 2 else None
    elif word in PER_FIELD:
        parsed.columns[word] = [float(value) for value in rest]
    elif word == "SURF":
        prescription.surfaces.append(Surface())
    else:
        return False
    return True


def _unit(rest: list[str]) -> float:
    if rest[0] not in UNITS_MM:
        raise Refused(f"its unit {rest[0]} is not one of {', '.join(UNITS_MM)}")
    return UNITS_MM[rest[0]]


# Words of a surface whose value is one number, and the field that it sets.
NUMBERS = {"CURV": "curvature", "CONI": "conic", "DIAM": "semi_mm"}


def _parse_surface(prescription: Prescription, word: str, rest: list[str]) -> None:
    """Apply a line to the last surface."""
    last = prescription.surfaces[-1]
    if word == "TYPE":
        last.shape = rest[0]
    elif word == "STOP":
        prescription.stop = len(prescription.surfaces) - 1
    elif word in NUMBERS:
        setattr(last, NUMBERS[word], float(rest[0]))
    elif word == "DISZ":
        last.thickness = math.inf if rest[0].upper().startswith("INF") else float(rest[0])
    elif word == "PARM":
        if not -99 <= int(rest[0]) <= 99:
            raise ValueError("parameter out of range")
        last.even[int(rest[0])] = float(rest[1])
    elif word == "GLAS":
        last.glass = _glass(rest)
    elif word == "CLAP" and float(rest[1]) > 0:
        last.rim_mm = float(rest[1])
    elif word == "FLAP":
        last.rim_mm = math.nan  # the rim is the semi-diameter, which may follow on a later line


def _glass(rest: list[str]) -> Glass:
    nd, vd, deviation = (float(rest[i]) if len(rest) > i else math.nan for i in (3, 4, 5))
    return Glass(
        "" if rest[0] == "___BLANK" else rest[0],
        nd if nd > 0 else None,
        vd if vd >= 0 else None,
        0.0 if math.isnan(deviation) else deviation,
    )


def _fields(columns: dict[str, list[float]], count: int | None) -> tuple[float, tuple[Vignetting, ...]]:
    """Return the largest field, and the vignetting by rising field (empty if the file states none)."""
    size = min(count or 99, max((len(values) for values in columns.values()), default=0))
    rows = [
        [columns[word][i] if i < len(columns.get(word, ())) else 0.0 for word in PER_FIELD]
        for i in range(size)
    ]
    largest = max((math.hypot(x, y) for x, y, *_ in rows), default=0.0)
    if not largest or not any(any(row[2:6]) for row in rows):
        return largest, ()
    by_part: dict[float, Vignetting] = {}
    for row in rows:
        vignetting = _vignetting(row, largest)
        opposite = by_part.setdefault(vignetting.part, vignetting)
        pairs = zip(vars(vignetting).values(), vars(opposite).values(), strict=True)
        if max(abs(a - b) for a, b in pairs) > NEGLIGIBLE:
            raise Refused("its vignetting differs at opposite fields")
    return largest, tuple(by_part[part] for part in sorted(by_part))


def _vignetting(row: list[float], largest: float) -> Vignetting:
    """Return the vignetting of one field from its values in the order of ``PER_FIELD``."""
    x, y, right, up, narrow, low, turn = row
    if x and y and any(row[2:6]):
        raise Refused("its vignetting is stated at a field that is neither along x nor along y")
    if turn and any(row[2:6]):
        raise Refused(f"its vignetting is turned by {turn:g} degrees")
    aside, along, sides = (up, right, (low, narrow)) if x and not y else (right, up, (narrow, low))
    if abs(aside) > NEGLIGIBLE:
        raise Refused("its vignetting moves the pupil across the field")
    return Vignetting(math.hypot(x, y) / largest, math.copysign(1.0, x + y) * along, *sides)


def to_millimetres(prescription: Prescription, scale: float) -> Prescription:
    """Convert a prescription to millimetres in place, and resolve rims that equal the semi-diameter."""
    for surface in prescription.surfaces:
        surface.curvature, surface.thickness, surface.semi_mm = (
            surface.curvature / scale,
            surface.thickness * scale,
            surface.semi_mm * scale,
        )
        surface.even = {term: value * scale ** (1 - 2 * term) for term, value in surface.even.items()}
        if surface.rim_mm is not None:
            surface.rim_mm = (
                (surface.semi_mm or None) if math.isnan(surface.rim_mm) else surface.rim_mm * scale
            )
    if prescription.aperture[0] == "entrance pupil":
        prescription.aperture = (prescription.aperture[0], prescription.aperture[1] * scale)
    if prescription.field_kind != "angle":
        prescription.field *= scale
    return prescription


def check_traceable(prescription: Prescription) -> Prescription:
    """Return the prescription if it is a refracting lens with a distant object and a field.

    Raises:
        Refused: It is not.
    """
    if not prescription.surfaces:
        raise Refused("it is not a .zmx file: it has no surfaces")
    if len(prescription.surfaces) < 4:
        raise Refused(
            f"it has {len(prescription.surfaces)} surfaces; expected an object, a lens and an image"
        )
    for i, surface in enumerate(prescription.surfaces):
        _check_surface(i, surface)
    if math.isfinite(prescription.surfaces[0].thickness):
        raise Refused(f"its object is {prescription.surfaces[0].thickness:g} mm away; expected a distant one")
    if any(not math.isfinite(surface.thickness) for surface in prescription.surfaces[1:]):
        raise Refused("it is afocal: a distance behind the first surface is infinite")
    if prescription.surfaces[-1].curvature:
        raise Refused("its image surface is curved; a sensor is flat")
    if not 0 < prescription.stop < len(prescription.surfaces) - 1:
        raise Refused("it does not state which surface is the aperture stop")
    return _check_frame(prescription)


def _check_surface(i: int, surface: Surface) -> None:
    if surface.shape not in SHAPES:
        raise Refused(f"surface {i} is of type {surface.shape}; only {' and '.join(SHAPES)} can be traced")
    if surface.glass is not None and surface.glass.name == "MIRROR":
        raise Refused(f"surface {i} is a mirror; only refracting lenses can be traced")
    beyond = any(value and not 1 <= term <= 8 for term, value in surface.even.items())
    if surface.shape == "EVENASPH" and beyond:
        raise Refused(f"surface {i} is an even asphere with a term beyond r^16")


def _check_frame(prescription: Prescription) -> Prescription:
    """Check aperture and field, and resolve an aperture that is the stop's size to a number."""
    if not prescription.aperture[0] or (prescription.aperture[1] <= 0 and prescription.aperture[0] != "stop"):
        raise Refused("it states no aperture (ENPD, FNUM or FLOA)")
    if prescription.aperture[0] == "stop":
        prescription.aperture = ("stop", prescription.surfaces[prescription.stop].semi_mm)
        if prescription.aperture[1] <= 0:
            raise Refused("its aperture is the stop's size, which it does not state")
    if prescription.field_kind not in ("angle", "paraxial image height", "real image height"):
        raise Refused(
            f"its field is given as {prescription.field_kind}, which a distant object does not have"
        )
    if prescription.field <= 0:
        raise Refused("its field is zero: it shows nothing away from the axis")
    if prescription.field_kind == "angle" and prescription.field > WIDEST_DEG / 0.9:
        raise Refused(f"its field is {prescription.field:g} degrees: nine tenths of it are behind the lens")
    return prescription
