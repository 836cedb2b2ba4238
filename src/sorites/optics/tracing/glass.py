"""Refractive indices of the glasses that a prescription names or describes by (nd, vd).

A described glass follows Conrady's formula n = A + B / w + C / w^3.5 (w in um), whose three coefficients are
solved for the index at d, the dispersion nF - nC and the partial dispersion (ng - nF) / (nF - nC). The last
one is Schott's normal line plus the deviation that the prescription states. nd, nF and nC are therefore
exact. Named glasses come from the catalogues; a few that makers no longer sell are kept here by their
indices, and others are replaced by their successor, which is reported.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from sorites.optics.tracing.lens import tracer
from sorites.optics.tracing.prescription import Glass, Refused

# Wavelengths in um at which (nd, vd, deviation) of a described glass are defined: d, F, C, g.
D_UM, F_UM, C_UM, G_UM = 0.5876, 0.4861, 0.6563, 0.4358
# The same lines as spectral lamps have them, at which makers measure.
MEASURED_UM = (0.4861327, 0.5875618, 0.6562725)
# (ng - nF) / (nF - nC) of normal glasses: the line through K7 and F2 in Schott's diagram, by vd.
NORMAL_LINE = (0.6438, -0.001682)
# No optical glass or plastic deviates further from the normal line.
LARGEST_DEVIATION = 0.2
POWERS = (1.0, 3.5)

# nF, nd and nC in air at 20 degrees Celsius of glasses that are no longer in the catalogues, by name, as
# printed in the prescription reports of the lenses that use them.
RETIRED: dict[str, tuple[float, float, float]] = {
    "BK1": (1.5156636409, 1.5100909531, 1.5076262556),
    "CAF2": (1.4370250504, 1.4338492788, 1.4324580165),
    "FDS9": (1.8720438101, 1.8466577150, 1.8365092902),
    "FK51": (1.4905574408, 1.4865610802, 1.4847971397),
    "FK54": (1.4403373452, 1.4370000012, 1.4355193893),
    "KZFS4": (1.6231993257, 1.6133999429, 1.6091959557),
    "LAC7": (1.6593631919, 1.6515987832, 1.6482064248),
    "LAFN21": (1.7999198414, 1.7883089381, 1.7833135149),
    "LAK14": (1.7055125716, 1.6968029648, 1.6929930534),
    "NBFD5": (1.7753428211, 1.7620012248, 1.7564173262),
    "SF53": (1.7463473341, 1.7283008787, 1.7209592054),
    "SK14": (1.6100283152, 1.6031104337, 1.6000754753),
}


@dataclass(frozen=True)
class Dispersion:
    """Conrady's coefficients: n = a + b / w + c / w^3.5 with the wavelength w in um."""

    a: float
    b: float
    c: float

    def index(self, line_um: float) -> float:
        """Return the refractive index at a wavelength."""
        return float(self.a + self.b / line_um + self.c / line_um**3.5)


def described(nd: float, vd: float, deviation: float = 0.0) -> Dispersion:
    """Return the dispersion of a glass given by numbers.

    Args:
        nd: Index at d.
        vd: Abbe number (nd - 1) / (nF - nC); 0 for a medium without dispersion.
        deviation: Deviation of (ng - nF) / (nF - nC) from the normal line.

    Raises:
        Refused: The deviation is not that of a glass.

    Examples:
        >>> round(described(1.5168, 64.17).index(0.4861), 6)
        1.52238
    """
    if vd == 0:
        return Dispersion(nd, 0.0, 0.0)
    if abs(deviation) > LARGEST_DEVIATION:
        raise Refused(
            f"its glass ({nd:g}, {vd:g}) deviates by {deviation:g} from normal partial dispersion; expected"
            f" at most {LARGEST_DEVIATION}"
        )
    d, f, c, g = (np.array([line**-power for power in POWERS]) for line in (D_UM, F_UM, C_UM, G_UM))
    main = (nd - 1) / vd
    partial = NORMAL_LINE[0] + NORMAL_LINE[1] * vd + deviation
    slopes = np.linalg.solve(np.array([f - c, g - f]), np.array([main, partial * main]))
    return Dispersion(float(nd - slopes @ d), float(slopes[0]), float(slopes[1]))


def through_lines(indices: tuple[float, float, float]) -> Dispersion:
    """Return the dispersion through the indices measured at F, d and C."""
    rows = np.array([[1.0, *(line**-power for power in POWERS)] for line in MEASURED_UM])
    return Dispersion(*np.linalg.solve(rows, np.array(indices)).tolist())


def successor(glass: Glass, catalogues: tuple[str, ...]) -> str | None:
    """Return the name of the glass that replaced one missing from the catalogues, None if there is none.

    Schott's glasses without lead and arsenic have the prefix N- and no N at the end of their letters:
    SK16 became N-SK16 and LAFN21 became N-LAF21.
    """
    if "schott" not in _makers(catalogues):
        return None
    plain = re.sub(r"(?<=[A-Z])N(?=\d)", "", glass.name.upper())
    names = (f"N-{glass.name.upper()}", f"N-{plain}")
    return next((name for name in names if ("schott", name.lower()) in _catalogue_files()), None)


def with_hyphen(name: str) -> str:
    """Return the name of a glass with the hyphen behind its first letter that CODE V leaves out (NBK7)."""
    return f"{name[:1]}-{name[1:]}"


def used_name(glass: Glass, catalogues: tuple[str, ...]) -> str:
    """Return the name under which a named glass is found: its own, or that of its successor.

    Raises:
        Refused: It is in none of the catalogues, not among the retired glasses, and has no successor.
    """
    if _file_of(glass.name, catalogues) or glass.name.upper() in RETIRED:
        return glass.name
    if _file_of(with_hyphen(glass.name), catalogues):
        return with_hyphen(glass.name)
    if (later := successor(glass, catalogues)) is not None:
        return later
    stated = ", ".join(catalogues) or "none"
    raise Refused(
        f"its glass {glass.name} is in none of its catalogues ({stated}); define it by index and Abbe number,"
        f" as the glass {glass.name}=ND,VD"
    )


def material(glass: Glass, catalogues: tuple[str, ...]) -> Any:
    """Return the optiland material of a glass: from the first stated catalogue that has its name, from its
    line indices, from its successor, or from its numbers.
    """
    if not glass.name:
        if glass.nd is None or glass.vd is None:
            raise Refused("a glass has neither a name nor (nd, vd)")
        return _formula(described(glass.nd, glass.vd, glass.deviation))
    name = used_name(glass, catalogues)
    path = _file_of(name, catalogues)
    return tracer().materials.MaterialFile(path) if path else _formula(through_lines(RETIRED[name.upper()]))


def _formula(dispersion: Dispersion) -> Any:
    """Return a dispersion as a material of optiland (its formula 5 is a sum of powers)."""
    terms = [dispersion.a]
    for slope, power in zip((dispersion.b, dispersion.c), POWERS, strict=True):
        terms += [slope, -power]
    return tracer().materials.DataMaterial.from_coefficients("formula 5", terms)


def _file_of(name: str, catalogues: tuple[str, ...]) -> str | None:
    found = _catalogue_files()
    paths = (found.get((maker, name.lower())) for maker in _makers(catalogues))
    return next((path for path in paths if path), None)


def _makers(catalogues: tuple[str, ...]) -> tuple[str, ...]:
    """Return the makers of catalogues in lower case; an edition such as SUMITA_AUG2011 is its maker's."""
    return tuple(dict.fromkeys(name.lower().partition("_")[0] for name in catalogues))


@functools.cache
def _catalogue_files() -> dict[tuple[str, str], str]:
    """Return the data files of all glasses by (catalogue, name) in lower case."""
    root = Path(str(files("optiland.database").joinpath("data-nk", "glass")))
    return {(path.parent.name.lower(), path.stem.lower()): str(path) for path in sorted(root.glob("*/*.yml"))}
