"""CODE V and OSLO files against the same lens in a Zemax file, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from sorites.optics.tracing.codev import parse_seq
from sorites.optics.tracing.oslo import parse_len
from sorites.optics.tracing.prescription import Glass, Prescription, Refused, check_traceable, parse

# (radius, thickness, glass) of a Cooke triplet of 50 mm; the aperture stop is the fourth surface.
TRIPLET = [
    (22.01359, 3.25896, "N-SK16"),
    (-435.76044, 6.00755, ""),
    (-22.21328, 0.99997, "F2"),
    (20.29192, 4.75041, ""),
    (79.6836, 2.95208, "N-SK16"),
    (-18.39533, 42.20778, ""),
]
STOP = 4


def zmx() -> str:
    lines = ["UNIT MM", "ENPD 10", "GCAT SCHOTT", "FTYP 0 0 3 1 0 0 0", "YFLN 0 14 20", "VDYN 0 0 0.05"]
    lines += ["VCYN 0 0 0.15", "SURF 0", "DISZ INFINITY"]
    for number, (radius, thickness, glass) in enumerate(TRIPLET, start=1):
        lines += [f"SURF {number}", f"CURV {1 / radius!r}", f"DISZ {thickness}"]
        lines += [f"GLAS {glass} 0 0"] * bool(glass) + ["STOP"] * (number == STOP)
    return "\n".join([*lines, f"SURF {len(TRIPLET) + 1}", "CURV 0", "DISZ 0"])


def seq(curvatures: bool = False, scale: float = 1.0, extra: str = "") -> str:
    lines = [
        f"RDM{' N' * curvatures};LEN 'a triplet; of three'",
        f"EPD {10 / scale}",
        f"DIM {'M' if scale == 1 else 'I'}",
        "YAN 0 14 20   ! fields",
        "vuy 0 0 0.1",
        "VLY 0 0 0.2",
        "so 0.0 1.0e+13",
    ]
    for number, (radius, thickness, glass) in enumerate(TRIPLET, start=1):
        size = scale / radius if curvatures else radius / scale
        name = f"{glass.replace('-', '')}_SCHOTT" if glass else ""
        lines += [f"S {size!r} {thickness / scale!r} {name}", "  CCY 0; THC 0"] + ["  STO"] * (number == STOP)
    return "\n".join([*lines, extra, "SI 0 0", "GO"])


def osl(extra: str = "") -> str:
    lines = [
        'LEN NEW "triplet" 50 7',
        "EBR 5.0",
        "ANG 20.0",
        "UNI 1.0",
        "// SRF 0",
        "AIR",
        "TH 1.0e+20",
        "NXT",
    ]
    for number, (radius, thickness, glass) in enumerate(TRIPLET, start=1):
        lines += [f"GLA {glass}" if glass else "AIR", f"RD {radius}", f"TH {thickness}", "AP 6.0"]
        lines += ["AST"] * (number == STOP) + [f"NXT  // SRF {number + 1}"]
    return "\n".join([*lines, "AIR", "WV 0.58756 0.48613 0.65627", "WW 1 1 1", extra, "END 7"])


def shapes(prescription: Prescription) -> list[tuple[float, float, str]]:
    return [
        (
            round(surface.curvature, 9),
            round(surface.thickness, 6) if math.isfinite(surface.thickness) else math.inf,
            surface.glass.name.replace("-", "") if surface.glass else "",
        )
        for surface in prescription.surfaces
    ]


@pytest.mark.parametrize(
    "made",
    [
        parse_seq(seq(), "triplet"),
        parse_seq(seq(curvatures=True), "triplet"),
        parse_seq(seq(scale=25.4), "triplet"),
        parse_len(osl(), "triplet"),
    ],
    ids=["radii", "curvatures", "inches", "oslo"],
)
def test_a_lens_is_the_same_in_every_format(made: Prescription) -> None:
    wanted = check_traceable(parse(zmx(), "triplet"))
    made = check_traceable(made)
    assert shapes(made) == shapes(wanted)
    assert made.stop == wanted.stop
    assert made.aperture == (wanted.aperture[0], pytest.approx(wanted.aperture[1]))
    assert (made.field_kind, made.field) == (wanted.field_kind, wanted.field)


def test_vignetting_of_code_v_is_that_of_zemax() -> None:
    """CODE V cuts a tenth off the top and a fifth off the bottom: an ellipse 0.15 shorter, 0.05 higher."""
    made, wanted = parse_seq(seq(), "triplet").vignetting, parse(zmx(), "triplet").vignetting
    assert [vars(one) for one in made] == [pytest.approx(vars(one)) for one in wanted]


def test_glasses_of_code_v_by_code_and_by_numbers() -> None:
    text = seq().replace("F2_SCHOTT", "620.364")
    assert parse_seq(text, "x").surfaces[3].glass == Glass("", 1.62, 36.4)
    text = seq().replace("F2_SCHOTT", "1.62004:36.37")
    assert parse_seq(text, "x").surfaces[3].glass == Glass("", 1.62004, 36.37)


def test_aspheres_of_both() -> None:
    made = parse_seq(seq(extra="ASP; K -1.5; A 1e-5; B 2e-7"), "x").surfaces[6]
    assert (made.shape, made.conic, made.even) == ("EVENASPH", -1.5, {2: 1e-5, 3: 2e-7})
    made = parse_len(osl("CC -1.5\nAD 1e-5\nAE 2e-7"), "x").surfaces[7]
    assert (made.shape, made.conic, made.even) == ("EVENASPH", -1.5, {2: 1e-5, 3: 2e-7})


def test_the_defocus_of_the_image_moves_the_sensor() -> None:
    made = parse_seq(seq().replace("SI 0 0", "SI 0 -0.4"), "x")
    assert made.surfaces[-2].thickness == pytest.approx(42.20778 - 0.4)


def test_a_model_glass_of_oslo_has_the_indices_of_its_wavelengths() -> None:
    text = osl().replace("GLA F2", "GLA MOD OWN 1.62004 1.63208 1.61503")
    glass = parse_len(text, "x").surfaces[3].glass
    assert glass is not None
    assert glass.nd == 1.62004
    assert glass.vd == pytest.approx(0.62004 / (1.63208 - 1.61503))


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (parse_seq, seq().replace("RDM;", "")),
        (parse_seq, seq(extra="ADE 5.0")),
        (parse_seq, seq(extra="CIR OBS 2.0")),
        (parse_seq, seq().replace("YAN 0 14 20", "YAN 0 x")),
        (parse_seq, ""),
        (parse_len, osl("GRT 1.0")),
        (parse_len, osl().replace("EBR 5.0", "NAO 0.1")),
        (parse_len, osl().replace("UNI 1.0", "UNI 10.0")),
        (parse_len, osl().replace("GLA F2", "GLA MOD OWN 1.62")),
    ],
)
def test_what_may_change_the_light_is_refused(read, text: str) -> None:
    with pytest.raises(Refused):
        read(text, "x")


@pytest.mark.slow
def test_all_formats_become_the_same_lens(tmp_path: Path) -> None:
    from optiland.fileio import save_optiland_file

    from sorites.lenses.trace import lens_digest, read_lens

    texts = {"a.zmx": zmx(), "b.seq": seq(), "c.len": osl()}
    for name, text in texts.items():
        # OSLO states no vignetting.
        plain = "\n".join(line for line in text.splitlines() if line[:2].upper() != "VU" and line[:2] != "VL")
        plain = "\n".join(line for line in plain.splitlines() if line[:4] not in ("VDYN", "VCYN"))
        (tmp_path / name).write_text(plain)
    lenses = {name: read_lens(str(tmp_path / name)) for name in texts}
    assert len({lens_digest(lens) for lens in lenses.values()}) == 1
    from optiland.samples.objectives import CookeTriplet

    save_optiland_file(CookeTriplet(), str(tmp_path / "d.json"))
    saved, known = read_lens(str(tmp_path / "d.json")), read_lens("CookeTriplet")
    assert saved.paraxial.efl_mm == pytest.approx(known.paraxial.efl_mm, rel=1e-9)
    assert lens_digest(saved) == lens_digest(known)
