from __future__ import annotations

from sorites.lenses import store as lenses
from sorites.lenses.store import builtin, load
from sorites.reports.figures.lenses import sheet, summary_line


def test_the_line_of_a_lens() -> None:
    lens = load(builtin(), "CookeTriplet").about.model_copy(
        update={
            "efl_mm": 50.0,
            "f_number": 5.0,
            "fov_deg": 40.0,
            "pitch_um": 6.25,
            "pixels": 5749,
            "quality": 0.2,
        }
    )
    assert summary_line(lens) == (
        "EFL 50.00 mm   F/5.00   field 40 deg   pixel 6.25 um   5,749 pixels across   quality 0.200 cycles/px"
    )


def test_every_lens_of_ours_can_be_drawn() -> None:
    for name in lenses.names(lenses.builtin())[:3]:
        assert sheet(lenses.load(lenses.builtin(), name)).size == (920, 1000)
