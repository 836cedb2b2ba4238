"""The section on grids: surface, contour and interactions, and its absence."""

from __future__ import annotations

import json
import re

import numpy as np
import polars as pl
import pytest
from tests.metrics.test_box_grids import box_table
from tests.metrics.test_grids import A, B, grid_table
from tests.reports import worlds

from sorites import metrics
from sorites.reports.sections.grids import shift_grids
from sorites.reports.view import RunView, merge


@pytest.fixture(scope="module")
def grid_run() -> RunView:
    rows = grid_table(lambda i, a, b: i < 40 - 2 * (a + b) - 3 * a * b).with_columns(model=pl.lit("<b>m</b>"))
    record = worlds.record({"name": "grid", "models": ["<b>m</b>"], "grid": ["scale=1,2 x jpeg=2,4,8"]})
    return RunView(rows.lazy(), "grid", record, None, None)


def test_the_surface_and_the_contour_are_drawn_from_the_metrics(grid_run: RunView) -> None:
    section = shift_grids(merge([grid_run]))
    assert section is not None
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', section.body)
    surface, contour = json.loads(data)["data"]
    accuracy = metrics.grid_accuracy(grid_run.table)
    shown = [value for line in surface["z"] for value in line]
    assert shown == accuracy.sort("second", "first")["value"].to_list()
    reached = metrics.failure_contour(grid_run.table).filter(pl.col("value").is_not_null())
    assert reached.height == 2
    assert contour["x"] == [A.index(first) for first in reached["first"]]
    assert contour["y"] == pytest.approx(np.interp(reached["value"], B, range(len(B))).tolist())


def test_the_interactions_are_listed_and_names_are_escaped(grid_run: RunView) -> None:
    section = shift_grids(merge([grid_run]))
    assert section is not None
    most = metrics.interaction(grid_run.table).drop_nulls("first").sort("value")["value"][-1]
    assert f"{100 * most:+.1f}" in section.body
    assert "<b>m</b>" not in section.body
    assert "&lt;b&gt;m&lt;/b&gt;" in section.body


def test_detectors_have_kept_objects_with_their_contour_map_and_recall() -> None:
    table = box_table(lambda i, k, a, b: 2 * i + k < 40 - 3 * (a + b)).with_columns(model=pl.lit("<b>d</b>"))
    record = worlds.record({"name": "grid", "models": ["<b>d</b>"], "grid": ["scale=1,2 x jpeg=2,4,8"]})
    section = shift_grids(merge([RunView(table.lazy(), "grid", record, None, None)]))
    assert section is not None
    figures = [
        json.loads(data)["data"]
        for data in re.findall(r'<script type="application/json">(.*?)</script>', section.body)
    ]
    (kept, contour), (mean_ap,) = figures
    for drawn, found in ((kept, metrics.grid_kept(table)), (mean_ap, metrics.grid_map(table, resamples=0))):
        answer = found.sort("second", "first")
        assert [value for line in drawn["z"] for value in line] == pytest.approx(answer["value"].to_list())
    reached = metrics.box_failure_contour(table).filter(pl.col("value").is_not_null())
    assert contour["x"] == [A.index(first) for first in reached["first"]]
    assert "recall" in section.body
    assert "half of the objects" in section.lead
    assert "<b>d</b>" not in section.body


def test_a_run_without_a_grid_has_no_section(grid_run: RunView) -> None:
    plain = grid_run.table.filter(pl.col("shift") == "clean")
    assert shift_grids(merge([RunView(plain, "plain", grid_run.record, None, None)])) is None
