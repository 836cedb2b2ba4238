from __future__ import annotations

import math
from pathlib import Path

import pytest

from sorites.core.errors import SoritesError
from sorites.optics.tracing.prescription import Refused, Vignetting, check_traceable, parse, read

SINGLET = """MODE SEQ
UNIT {unit} X W X CM MR CPMM
{aperture}
GCAT SCHOTT
FTYP {kind} 0 2 1 0 0 0
XFLN 0 3 9
YFLN 0 4 9
SURF 0
  TYPE STANDARD
  CURV 0.0 0 0 0 0 ""
  DISZ {object}
SURF 1
  STOP
  TYPE {type}
  CURV 0.02 0 0 0 0 ""
  CONI -0.5
  PARM 2 1.0E-6
  DISZ 4
  GLAS {glass}
  DIAM 6 0 0 0 1 ""
  FLAP 0 6 0
SURF 2
  TYPE STANDARD
  CURV -0.02 0 0 0 0 ""
  DISZ {back}
  CLAP 0 7 0
SURF 3
  TYPE STANDARD
  CURV {sensor} 0 0 0 0 ""
  DISZ 0
"""
PLAIN = {
    "unit": "MM",
    "aperture": "ENPD 10",
    "kind": "0",
    "object": "INFINITY",
    "type": "EVENASPH",
    "back": "47.5",
    "sensor": "0",
    "glass": "N-BK7 0 0 1.5168 64.17 0 0 0 0 0 0",
}


def text(**changed: str) -> str:
    return SINGLET.format(**{**PLAIN, **changed})


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8", "latin-1"])
def test_every_encoding_gives_the_same_lens(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "one.zmx"
    path.write_bytes(text().replace("\n", "\r\n").encode(encoding))
    made = read(path)
    assert made.name == "one"
    assert (made.stop, made.aperture, made.field_kind) == (1, ("entrance pupil", 10.0), "angle")
    assert made.field == 5  # hypot(3, 4); the third field is not counted by FTYP
    first, second = made.surfaces[1:3]
    assert (first.curvature, first.conic, first.even, first.rim_mm, second.rim_mm) == (
        0.02,
        -0.5,
        {2: 1e-6},
        6.0,
        7.0,
    )
    assert first.glass is not None
    assert first.glass.name == "N-BK7"


def test_inches_become_millimetres() -> None:
    made = check_traceable(parse(text(unit="IN"), "x"))
    assert made.surfaces[1].thickness == pytest.approx(4 * 25.4)
    assert made.surfaces[1].curvature == pytest.approx(0.02 / 25.4)
    assert made.surfaces[1].even[2] == pytest.approx(1e-6 / 25.4**3)  # sag = A r^4
    assert made.aperture[1] == pytest.approx(254)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"type": "DGRATING"}, "surface 1 is of type DGRATING"),
        ({"glass": "MIRROR 0 0 1.5 40 0 0 0 0 0 0"}, "surface 1 is a mirror"),
        ({"object": "250"}, "its object is 250 mm away"),
        ({"aperture": "OBNA 0.1 0"}, "the object is near"),
        ({"back": "INFINITY"}, "afocal"),
        ({"sensor": "0.01"}, "image surface is curved"),
        ({"kind": "1"}, "object height"),
        ({"unit": "FURLONG"}, "unit FURLONG"),
        ({"aperture": "ENVD 20 1 0"}, "no aperture"),
    ],
)
def test_what_is_no_photographic_lens_is_refused_by_name(changed: dict[str, str], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        check_traceable(parse(text(**changed), "x"))


def test_a_zero_field_is_refused() -> None:
    with pytest.raises(Refused, match="field is zero"):
        check_traceable(parse(text().replace("XFLN 0 3", "XFLN 0 0").replace("YFLN 0 4", "YFLN 0 0"), "x"))


def test_a_missing_file_is_an_error_and_not_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="cannot read the lens"):
        read(tmp_path / "none.zmx")


def test_the_object_is_infinitely_far() -> None:
    assert math.isinf(parse(text(), "x").surfaces[0].thickness)


def fields(text: str) -> tuple[Vignetting, ...]:
    return parse("MODE SEQ\nFTYP 0 0 3 3 0 0 0\n" + text, "a").vignetting


def test_vignetting_is_read_along_the_field_whichever_way_it_points() -> None:
    up = "XFLN 0 0 0\nYFLN 0 7 14\nVDYN 0 0 0.1\nVCXN 0 0 0.2\nVCYN 0 0 0.4\n"
    down = "XFLN 0 0 0\nYFLN 0 -7 -14\nVDYN 0 0 -0.1\nVCXN 0 0 0.2\nVCYN 0 0 0.4\n"
    right = "XFLN 0 7 14\nYFLN 0 0 0\nVDXN 0 0 0.1\nVCYN 0 0 0.2\nVCXN 0 0 0.4\n"
    wanted = (Vignetting(0.0), Vignetting(0.5), Vignetting(1.0, 0.1, 0.2, 0.4))
    assert fields(up) == fields(down) == fields(right) == wanted
    assert fields("XFLN 0 0 0\nYFLN 0 7 14\n") == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("YFLN 0 7 14\nVDXN 0 0 0.1\n", "moves the pupil across the field"),
        ("YFLN 0 7 14\nVCXN 0 0 0.1\nVANN 0 0 30\n", "is turned by 30 degrees"),
        ("XFLN 0 7 7\nYFLN 0 7 14\nVCXN 0 0.1 0\n", "neither along x nor along y"),
        ("YFLN 0 -14 14\nVCYN 0 0.5 0\n", "differs at opposite fields"),
    ],
)
def test_vignetting_that_is_not_understood_is_refused(text: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        fields(text)
