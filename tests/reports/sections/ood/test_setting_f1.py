"""Figure 8 of ImageNet-ES, first half: F1 at each camera setting, per scorer."""

from __future__ import annotations

import dataclasses
import json
import re

import polars as pl
import pytest
from tests.reports import worlds
from tests.reports.texts import share

from sorites.reports.page import render
from sorites.reports.sections.ood.scores import f1_by_setting, setting_f1
from sorites.reports.view import RunView, merge


def test_a_point_per_setting_and_scorer_with_its_interval(es_run: RunView) -> None:
    section = setting_f1(merge([es_run]))
    assert section is not None
    charts = [
        json.loads(text)
        for text in re.findall(r'<script type="application/json">(.*?)</script>', section.body)
    ]
    assert [[trace["name"] for trace in chart["data"]] for chart in charts] == [list(worlds.SCORERS)] * 2
    rows = f1_by_setting(es_run.table).filter(pl.col("exposure") == "manual", pl.col("value").is_not_null())
    mine = rows.filter(model="lite0", scorer="odin").sort("id")
    trace = charts[0]["data"][1]
    assert sorted(zip(trace["x"], trace["y"], strict=True)) == sorted(
        zip(mine["id"] / mine["n"], mine["value"], strict=True)
    )
    assert len(trace["error_y"]["array"]) == len(trace["y"]) == mine.height > 40
    assert "correct, " in trace["customdata"][0][1]


@pytest.mark.slow
def test_a_map_per_aperture_and_light_of_every_scorer_with_interval_and_n(es_run: RunView) -> None:
    section = setting_f1(merge([es_run]))
    assert section is not None
    assert re.findall(r'data-pick="(\w+)"', section.body) == list(worlds.SCORERS)
    assert len(re.findall(r"<h3>f/\S+ · lamp \w+</h3>", section.body)) == 3 * 2 * 2 * 3
    cells = f1_by_setting(es_run.table).filter(
        model="lite0", scorer="msp", light="on", exposure="manual", aperture=5.0
    )
    first = re.search(r"<table.*?</table>", section.body)
    assert first is not None
    assert re.findall(r">(\d+)</td>", first.group()) == [
        f"{100 * v:.0f}" for v in cells.sort("iso", "shutter")["value"]
    ]
    right = cells.sort("iso", "shutter").row(0, named=True)
    assert f"{right['id']} correct, {right['ood']} misclassified" in first.group()


@pytest.mark.slow
def test_the_ends_have_interval_and_n(es_run: RunView) -> None:
    section = setting_f1(merge([es_run]))
    assert section is not None
    rows = f1_by_setting(es_run.table).filter(model="lite0", scorer="vim").drop_nulls("value")
    lowest = rows.filter(exposure="manual").sort("value").row(0, named=True)
    counted = f", n = {lowest['id']} + {lowest['ood']}</small>"
    assert share(lowest).replace("</small>", counted) in section.body
    auto = rows.filter(exposure="auto", light="on").row(0, named=True)
    assert share(auto).removesuffix("</small>") in section.body


@pytest.mark.slow
def test_f1_comes_before_the_fpr_of_ood_sets(es_run: RunView) -> None:
    """A run of ImageNet-ES with OOD sets shows both halves of figure 8, for every scorer."""
    html = render(merge([es_run]))
    assert re.findall(r'<section id="(\w+)"', html)[-6:-3] == ["setting_f1", "ood", "histograms"]
    assert "FPR95, OOD positive" in html
    assert all(f">{name}<small>" in html for name in worlds.OOD)


def test_absent_without_scores_or_without_a_grid(es_run: RunView, ood_run: RunView) -> None:
    labels = dataclasses.replace(es_run, table=es_run.table.filter(pl.col("output") == "label"))
    assert setting_f1(merge([labels])) is None
    assert setting_f1(merge([ood_run])) is None
