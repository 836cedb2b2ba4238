"""The suite ``isp`` from images to its page: every stage alone and all of them as one camera."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from tests.conftest import CLASSES

from sorites import core
from sorites.core.errors import SoritesError
from sorites.evaluation.run import run
from sorites.reports.report import report
from sorites.suites.suite import load

STAGES = ("coma", "iso_noise", "mosaic", "denoise", "sharpen", "tone_curve", "jpeg")


@pytest.mark.slow
def test_a_run_has_every_stage_and_the_whole_camera(
    photos: Path, tmp_path: Path, tiny: Callable[..., core.Model]
) -> None:
    result = run(
        load("isp"),
        source=f"folder:{photos}",
        labels=list(CLASSES),
        models=[tiny()],
        limit=3,
        out=tmp_path / "run",
    )
    rows = result.table.collect()
    assert rows["error"].null_count() == rows.height
    counted = dict(rows.group_by("shift").len().iter_rows())
    assert set(counted) == {"clean", "phone", *STAGES}
    levels = {name: len(core.shift(name).levels) for name in STAGES}
    assert counted == {"clean": 3, "phone": 15, **{name: 3 * count for name, count in levels.items()}}
    camera = rows.filter(pl.col("shift") == "phone")
    assert set(camera["severity"]) == {1.0, 2.0, 3.0, 4.0, 5.0}
    page = report(tmp_path / "run", tmp_path / "isp.html").read_text(encoding="utf-8")
    body = page[page.index("<body>") : page.index("<script>")]
    for name in ("phone", *STAGES):
        assert name in body


def test_a_grid_has_the_options_that_its_shifts_have_in_the_suite() -> None:
    suite = load("isp").override(grid=["coma=1 x iso_noise=6"])
    assert [dial.options for dial in suite.grid[0].shifts] == [{"linear": True}, {}]
    assert suite.grid[0].shift().options == {"coma.linear": True}
    own = load("optics_bench").override(grid=["coma=1 x iso_noise=6"])
    assert own.grid[0].shift().options == {}


def test_an_option_reaches_the_shifts_of_grids_and_cameras() -> None:
    suite = load("isp")
    changed = suite.override(options={"padding": "reflect"})
    reflected = {"linear": True, "padding": "reflect"}
    assert changed.shifts[0].options == changed.compose[0].shifts[0].options == reflected
    assert [dial.options for dial in changed.compose[0].shifts[1:]] == [{}] * 6
    assert suite.override(shifts=["phone"], options={"padding": "reflect"}).compose == changed.compose
    grid = suite.override(grid=["coma=1 x iso_noise=6"], options={"padding": "reflect"}).grid[0]
    assert [dial.options for dial in grid.shifts] == [reflected, {}]
    with pytest.raises(SoritesError, match="'size': coma has"):
        suite.override(shifts=["phone"], options={"size": 3})
    assert suite.override() == suite
