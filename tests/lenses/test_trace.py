from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sorites.core.errors import Notice, SoritesError
from sorites.lenses import store as lenses
from sorites.lenses.trace import lens_digest, read_glasses, trace_all

GRATING = "MODE SEQ\nUNIT MM X\nENPD 5\nSURF 0\n DISZ INFINITY\nSURF 1\n TYPE DGRATING\nSURF 2\nSURF 3\n"
TRIPLET = (
    (0.0454265, 3.25896, "N-SK16"),
    (-0.0022948, 6.00755, ""),
    (-0.0450181, 0.99997, "F2"),
    (0.0492807, 4.75041, ""),
    (0.0125496, 2.95208, "N-SK16"),
    (-0.0543616, 42.20778, ""),
)
"""Curvature, distance to the next surface, glass behind it."""


def zmx(
    f_number: float = 5.0, crown: str = "N-SK16", factors: str = "", unit: str = "MM", scale: float = 1.0
) -> str:
    """A triplet of fifty millimetres as a lens designer's file has it."""
    head = (
        f"VERS 140124 258\nMODE SEQ\nUNIT {unit} X W X CM MR CPMM\nFNUM {f_number} 0\nGCAT SCHOTT\nWAVM 1"
        " 0.5875618 1\nPWAV 1\n"
    )
    head += (
        f"FTYP 0 0 3 3 0 0 0\nXFLN 0 0 0\nYFLN 0 14 20\n{factors}SURF 0\n TYPE STANDARD\n CURV 0.0\n DISZ"
        " INFINITY\n"
    )
    for i, (bent, thick, glass) in enumerate(TRIPLET, start=1):
        stop = " STOP\n" if i == 4 else ""
        named = f" GLAS {glass.replace('N-SK16', crown)} 0 0 1.5 40 0 0 0 0 0 0\n" if glass else ""
        head += (
            f"SURF {i}\n{stop} TYPE STANDARD\n CURV {bent * scale} 0 0 0 0\n DISZ {thick / scale}\n{named}"
        )
    return head + "SURF 7\n TYPE STANDARD\n CURV 0.0\n DISZ 0\n"


def test_a_batch_goes_on_past_what_is_refused_without_the_tracer(tmp_path: Path) -> None:
    bad = tmp_path / "grating.zmx"
    bad.write_text(GRATING)
    (tmp_path / "note.zmx").write_text("nothing of a lens")
    table = trace_all([str(tmp_path)], tmp_path / "out")
    assert table.row(0) == (
        "grating",
        False,
        "surface 1 is of type DGRATING; only STANDARD and EVENASPH can be traced",
    )
    assert table.row(1) == ("note", False, "it is not a .zmx file: it has no surfaces")
    with pytest.raises(SoritesError, match="grating was .* DGRATING"):
        lenses.load(tmp_path / "out", "grating")


def test_what_is_not_there_is_an_error_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="'CookeTripple'.*CookeTriplet"):
        trace_all(["CookeTripple"], tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SoritesError, match="no .zmx, .seq, .len files in"):
        trace_all([str(tmp_path / "empty")], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SoritesError, match="cannot create the folder"):
        trace_all(["CookeTriplet"], tmp_path / "file")


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.zmx").write_text(GRATING)
    with pytest.raises(SoritesError, match="the lens a;"):
        trace_all([str(tmp_path)], tmp_path / "out")


def test_refusals_of_earlier_batches_are_kept(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.zmx").write_text(GRATING)
        trace_all([str(tmp_path / f"{name}.zmx")], tmp_path / "out")
    trace_all([str(tmp_path / "a.zmx")], tmp_path / "out")
    assert pl.read_csv(tmp_path / "out" / "refused.csv")["lens"].sort().to_list() == ["a", "b"]


def test_a_lens_that_is_refused_now_is_taken_out(tmp_path: Path) -> None:
    (tmp_path / "a.zmx").write_text(GRATING)
    shutil.copy(lenses.builtin() / "TessarLens.safetensors", tmp_path / "a.safetensors")
    trace_all([str(tmp_path / "a.zmx")], tmp_path)
    assert lenses.existing_names(tmp_path) == []


def test_a_glass_is_given_as_numbers() -> None:
    assert read_glasses(["BK1=1.51009,63.46", "FK51=1.48656,84.47,0.0342"]) == {
        "BK1": (1.51009, 63.46, 0.0),
        "FK51": (1.48656, 84.47, 0.0342),
    }
    for wrong in (
        "BK1=1.5",
        "BK1=1.5,60,9",
        "BK1=1.5,60,0,0",
        "=1.9,30",
        "BK1=1.5,-60",
        "BK1=0.9,60",
        "BK1=inf,60",
        "BK1",
    ):
        with pytest.raises(SoritesError, match=f"got '{wrong}'"):
            read_glasses([wrong])


def test_what_the_ray_tracer_chokes_on_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def choke(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    (tmp_path / "a.zmx").write_text(zmx())
    monkeypatch.setattr("sorites.optics.tracing.assembly.build", choke)
    assert trace_all([str(tmp_path / "a.zmx")], tmp_path / "out").row(0) == (
        "a",
        False,
        "it cannot be traced: division by zero",
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("tracer")
class TestTraced:
    def test_two_processes_give_what_one_gives_and_twins_are_set_aside(self, tmp_path: Path) -> None:
        (tmp_path / "wide.zmx").write_text(zmx(), encoding="utf-16")
        (tmp_path / "slow.zmx").write_text(zmx(8.0), encoding="latin-1")
        (tmp_path / "twin.zmx").write_text(zmx(unit="CM", scale=10.0), encoding="utf-8")
        files = [str(tmp_path / f"{name}.zmx") for name in ("wide", "slow", "twin")]
        alone, together = tmp_path / "alone", tmp_path / "together"
        first, second = trace_all(files, alone), trace_all(files, together, workers=2)
        assert first.equals(second)
        assert first["reason"].to_list() == ["", "", "it is the same lens as wide"]
        for name in ("wide", "slow"):
            assert (alone / f"{name}.safetensors").read_bytes() == (
                together / f"{name}.safetensors"
            ).read_bytes()

    def test_a_traced_lens_is_not_traced_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a.zmx").write_text(zmx())
        trace_all([str(tmp_path / "a.zmx")], tmp_path / "out")
        monkeypatch.setattr("sorites.lenses.trace.trace_lens", None)
        assert trace_all([str(tmp_path / "a.zmx")], tmp_path / "out")["accepted"].all()

    def test_an_unknown_glass_may_be_given(self, tmp_path: Path) -> None:
        from sorites.optics.tracing.assembly import build
        from sorites.optics.tracing.prescription import Glass, Refused, check_traceable, parse

        made = check_traceable(parse(zmx(crown="OLD1"), "a"))
        with pytest.raises(
            Refused,
            match="OLD1=ND,VD",
        ):
            build(made)
        known, given = (
            build(check_traceable(parse(zmx(), "a"))),
            build(made, {"OLD1": Glass("", 1.62041, 60.32)}),
        )
        assert given.paraxial.efl_mm == pytest.approx(known.paraxial.efl_mm, rel=1e-4)

    def test_first_order_data_agree_with_optilands_reading_of_the_file(self, tmp_path: Path) -> None:
        """EFL and back focus by our matrices to 1e-6, the stated F-number to 1 %, from files in
        three encodings.
        """
        from optiland.fileio import load_zemax_file

        from sorites.optics.tracing.assembly import build
        from sorites.optics.tracing.lens import paraxial
        from sorites.optics.tracing.prescription import read

        for coded in ("utf-16", "utf-8", "latin-1"):
            path = tmp_path / f"{coded}.zmx"
            path.write_text(zmx() + ("NOTE \u00b5m\n" if coded != "utf-8" else ""), encoding=coded)
            lens, theirs = build(read(path)), load_zemax_file(str(path))
            ours = paraxial(lens.optic, lens.stop, float(theirs.primary_wavelength))
            assert ours.efl_mm == pytest.approx(float(np.squeeze(theirs.paraxial.f2())), rel=1e-6)
            image = float(np.squeeze(theirs.surfaces[-1].geometry.cs.z)) - float(
                np.squeeze(theirs.surfaces[-2].geometry.cs.z)
            )
            assert ours.bfl_mm == pytest.approx(float(np.squeeze(theirs.paraxial.F2())) + image, rel=1e-6)
            assert float(np.squeeze(theirs.paraxial.FNO())) == pytest.approx(lens.f_number, rel=0.01)

    def test_a_lens_differs_by_its_glass_its_rims_and_its_vignetting(self) -> None:
        from sorites.optics.tracing.assembly import build
        from sorites.optics.tracing.prescription import check_traceable, parse

        rimmed = zmx().replace("SURF 7", " CLAP 0 3.0 0\nSURF 7")
        texts = [zmx(), zmx(crown="N-SK4"), zmx(factors="VCYN 0 0 0.4\n"), rimmed]
        assert len({lens_digest(build(check_traceable(parse(text, "a")))) for text in texts}) == 4
        assert lens_digest(build(check_traceable(parse(zmx(), "a")))) == lens_digest(
            build(check_traceable(parse(zmx(), "b")))
        )

    def test_a_successor_is_reported_and_recorded(self, tmp_path: Path) -> None:
        (tmp_path / "a.zmx").write_text(zmx(crown="SK16"))
        for _ in range(2):
            with pytest.warns(Notice) as told:
                assert trace_all([str(tmp_path / "a.zmx")], tmp_path / "out")["accepted"].all()
            assert [notice.message.code for notice in told] == ["successor"]
        assert lenses.load(tmp_path / "out", "a").about.substitutes == {"SK16": "N-SK16"}

    def test_of_twins_the_one_that_was_there_stays(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            (tmp_path / f"{name}.zmx").write_text(zmx())
        first, second = (str(tmp_path / f"{name}.zmx") for name in ("a", "b"))
        trace_all([second], tmp_path / "out")
        table = trace_all([first, second], tmp_path / "out")
        assert table["reason"].to_list() == ["it is the same lens as b", ""]
        assert lenses.existing_names(tmp_path / "out") == ["b"]
        (tmp_path / "out" / "b.safetensors").write_bytes(b"damaged")
        (tmp_path / "out" / "other.safetensors").write_bytes(b"damaged")
        assert trace_all([second], tmp_path / "out")["accepted"].all()
        assert lenses.load(tmp_path / "out", "b").quality > 0

    def test_vignetting_stated_at_heights_is_that_of_their_angles(self) -> None:
        from sorites.optics.tracing.assembly import build
        from sorites.optics.tracing.prescription import check_traceable, parse

        angles = build(check_traceable(parse(zmx(factors="VCYN 0 0.1 0.4\n"), "a")))
        heights = " ".join(str(angles.paraxial.efl_mm * np.tan(np.radians(angle))) for angle in (0, 14, 20))
        text = (
            zmx(factors="VCYN 0 0.1 0.4\n")
            .replace("YFLN 0 14 20", f"YFLN {heights}")
            .replace("FTYP 0", "FTYP 2")
        )
        stated = build(check_traceable(parse(text, "a")))
        assert [one.part for one in stated.vignetting] == pytest.approx(
            [one.part for one in angles.vignetting]
        )

    def test_vignetting_leaves_an_ellipse_of_the_pupil(self) -> None:
        """Area (1 - VCX)(1 - VCY) of the circle at the largest field, half as much cut off half way
        (in area: to first order).
        """
        from sorites.optics.tracing.assembly import build
        from sorites.optics.tracing.lens import D_LINE_UM
        from sorites.optics.tracing.prescription import check_traceable, parse
        from sorites.optics.tracing.rays import beams, trace

        cut = "VDXN 0 0 0\nVDYN 0 0 0.1\nVCXN 0 0 0.2\nVCYN 0 0 0.4\n"
        plain, less = (build(check_traceable(parse(zmx(8.0, factors=text), "a"))) for text in ("", cut))
        angles = [14.0, 20.0]
        boxes = beams(plain, angles, 90.0, D_LINE_UM)
        whole, left = (
            [trace(one, a, D_LINE_UM, 200, box) for a, box in zip(angles, boxes, strict=True)]
            for one in (plain, less)
        )
        assert len(left[1].x) / len(whole[1].x) == pytest.approx(0.8 * 0.6, abs=0.01)
        assert left[1].sy.mean() == pytest.approx(0.1, abs=0.02)
        assert len(left[0].x) == len(whole[0].x)
        tight = beams(less, angles, 90.0, D_LINE_UM)[1]
        assert tight.tall < boxes[1].tall
