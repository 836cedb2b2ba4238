from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from sorites.core import CLEAN
from sorites.reports.components import charts
from sorites.reports.section import SECTIONS
from sorites.reports.view import RunView, merge
from sorites.suites.suite import load


def drawn(run: RunView, section: str) -> list[dict[str, Any]]:
    """Return the figures of a section as page.js reads them."""
    made = SECTIONS.get(section)[1](merge([run]))
    assert made is not None
    body = made.body
    return [
        json.loads(found) for found in re.findall(r'<script type="application/json">(.*?)</script>', body)
    ]


def lines(figure: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {trace["name"]: trace for trace in figure["data"] if "hovertemplate" in trace}


@pytest.mark.slow
def test_curves_are_the_counts_of_the_table(run: RunView, rows: pl.DataFrame) -> None:
    figure = drawn(run, "curves")[0]
    grid = [row for row in rows.to_dicts() if not row["probe"] and row["error"] is None]
    for model, trace in lines(figure).items():
        for x, y, told in zip(trace["x"], trace["y"], trace["customdata"], strict=True):
            shift = "defocus_disk" if x else CLEAN
            own = [r["correct"] for r in grid if (r["model"], r["shift"], r["severity"]) == (model, shift, x)]
            assert y == pytest.approx(sum(own) / len(own))
            assert told[2] == len(own) == 60


def test_errors_are_missing_from_n(run: RunView) -> None:
    figure = drawn(run, "curves")[2]
    assert [told[2] for told in lines(figure)["lite0"]["customdata"]] == [60, 58, 58, 58, 58, 58]


def test_survival_starts_from_clean_and_falls_in_more_steps_than_the_grid_has(run: RunView) -> None:
    figure = drawn(run, "failure")[0]
    for trace in lines(figure).values():
        assert trace["x"][0] == 0
        assert len(trace["x"]) > 12
        assert all(a >= b for a, b in zip(trace["y"], trace["y"][1:], strict=False))


def test_histograms_account_for_every_image(run: RunView) -> None:
    figure = drawn(run, "failure")[1]
    assert [sum(trace["y"]) for trace in figure["data"]] == pytest.approx([1, 1, 1])
    assert figure["data"][0]["x"] == ["clean", "3", "4", "6", "8", "10", "never"]


def test_models_that_share_a_rank_are_drawn_apart(run: RunView) -> None:
    for figure in drawn(run, "ranks"):
        places = [
            (x, round(y, 6)) for trace in figure["data"] for x, y in zip(trace["x"], trace["y"], strict=True)
        ]
        assert len(set(places)) == len(places)
        for trace in figure["data"]:
            assert all(
                abs(y - told[0]) < 0.5 for y, told in zip(trace["y"], trace["customdata"], strict=True)
            )


def test_axes_name_what_their_ticks_count(run: RunView) -> None:
    axes = {}
    for figure in drawn(run, "curves"):
        axis = figure["layout"]["xaxis"]
        axes[axis["title"]["text"]] = dict(zip(axis["tickvals"], axis["ticktext"], strict=True))
    assert axes["px out of focus"][10] == "10"
    assert axes["JPEG quality"][0] == "100"
    assert axes["JPEG quality"][80] == "20"
    assert charts.axis_name(merge([run]), "a captured one") == "severity"


@pytest.mark.parametrize("top", [0.000_3, 0.577, 0.95, 1, 4, 10, 93, 255, 1200])
def test_ticks_are_round_and_reach_the_end(run: RunView, top: float) -> None:
    axis = charts.along(merge([run]), "a captured one", pl.Series([0.0, top]))
    ticks = axis["tickvals"]
    assert ticks[0] == 0
    assert 3 <= len(ticks) <= charts.TICKS + 1
    step = ticks[1]
    assert top - ticks[-1] < step
    assert round(step / 10 ** math.floor(math.log10(step) + 1e-9), 6) in (1, 2, 2.5, 5)


def test_a_named_camera_is_described_by_its_stages(run: RunView) -> None:
    assert run.record is not None
    suite = run.record.suite.model_copy(update={"compose": load("isp").compose})
    record = run.record.model_copy(update={"suite": suite})
    view = merge([replace(run, record=record)])
    text = charts.about(view, "phone")
    stages = ["coma 0.5 to 3", "iso_noise 2 to 10", "mosaic 0.8 to 1", "denoise", "sharpen", "jpeg 15 to 80"]
    assert [text.find(stage) for stage in stages] == sorted(text.find(stage) for stage in stages)
    assert "coma 0.5 to 3" in text
    assert "level 1 to 5" in text
    assert charts.axis_name(view, "phone") == "level … of 5"


def test_a_model_has_one_pen_on_the_whole_page(run: RunView) -> None:
    view = merge([run])
    pens = {charts.pen(view, model) for model in view.models}
    assert len(pens) == 3
    for section in ("curves", "failure", "ranks", "calibration"):
        for figure in drawn(run, section):
            for name, trace in lines(figure).items():
                own = charts.pen(view, name).colour
                assert own in (trace.get("line", {}).get("color"), trace["marker"]["color"])
                assert trace["legendgroup"] == name


def test_many_models_share_one_legend(run: RunView) -> None:
    view = merge([run])
    assert charts.legend(view) == ""
    many = run.table.with_columns(model=pl.col("model") + pl.lit("-with-a-rather-long-name"))
    crowd = pl.concat([run.table, many, many.with_columns(model=pl.col("model") + "r")])
    view = merge([RunView(crowd, "crowd")])
    assert charts.legend(view).count("<button") == 9
    assert charts.figure(view, "x", "y").layout.showlegend is False
    assert len({charts.pen(view, model) for model in view.models}) == 9


def test_a_step_curve_is_constant_until_the_next_severity() -> None:
    assert charts._corners([0.0, 1.0, 3.0], [1.0, 0.5, 0.2]) == [[0, 1, 1, 3, 3], [1, 1, 0.5, 0.5, 0.2]]
