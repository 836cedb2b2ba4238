from __future__ import annotations

import polars as pl
import pytest

from sorites.core import camera_grid
from sorites.reports.components.camera import dials, grids, shutter_text


def test_two_grids_at_one_aperture_are_drawn_apart() -> None:
    both = [
        (p["iso"], p["shutter"])
        for split in ("val", "test")
        for p in camera_grid.manual(split, "on")
        if p["aperture"] == 5.0
    ]
    parts = grids(pl.DataFrame(both, schema=["iso", "shutter"], orient="row"))
    assert sorted(part.height for part in parts) == [9, 16]


@pytest.mark.parametrize(
    ("seconds", "said"), [(1 / 60, "1/60"), (0.25, "1/4"), (0.4, "0.4 s"), (1 / 1250, "1/1250"), (2.0, "2 s")]
)
def test_shutters_are_written_as_on_a_camera(seconds: float, said: str) -> None:
    assert shutter_text(seconds) == said


def test_dials_are_written_in_one_line() -> None:
    assert dials({"iso": 3200, "shutter": 1 / 60, "aperture": 5.0}) == "ISO 3\u202f200, 1/60, f/5"
