from __future__ import annotations

import dataclasses
import html
import json
import re

import polars as pl
import pytest
from tests.reports.texts import share

from sorites import metrics
from sorites.reports.sections.confidence import abstain
from sorites.reports.view import RunView, merge


def test_a_chart_a_model_with_a_line_a_scorer_and_the_blind_one(ood_run: RunView) -> None:
    section = abstain(merge([ood_run]))
    assert section is not None
    figures = [
        json.loads(text)
        for text in re.findall(r'<script type="application/json">(.*?)</script>', section.body)
    ]
    assert [len(figure["data"]) for figure in figures] == [4, 4]
    curve = metrics.risk_coverage(ood_run.table).filter(model="lite0", scorer="msp")
    assert figures[0]["data"][0]["y"] == pytest.approx(curve["value"].to_list())
    assert figures[0]["data"][3]["y"] == pytest.approx([curve["value"][-1]] * 2)


def test_many_scorers_are_dots_and_a_shaded_table_the_lowest_area_first(crowded_run: RunView) -> None:
    section = abstain(merge([crowded_run]))
    assert section is not None
    assert "application/json" not in section.body
    card, heat = section.body.split("<article")[1:3]
    areas = metrics.aurc(crowded_run.table).filter(model="lite0").sort("value")
    names = [html.escape(name) for name in areas["scorer"]]
    assert re.findall(r"<b>(.*?)</b><div class=\"row\">", card) == names
    assert re.findall(r'<th scope="row">(.*?)</th>', heat) == names
    first = metrics.risk_coverage(crowded_run.table, points=10).filter(
        model="lite0", scorer=areas["scorer"][0]
    )
    row = re.search(r"<tbody><tr>(.*?)</tr>", heat)
    assert row is not None
    assert re.findall(r">(\d+)</td>", row.group()) == [f"{100 * value:.0f}" for value in first["value"]]
    assert all(f"<small>{n}</small>" in heat for n in first["n"])
    assert f"n = {areas['n'][0]}" in card


def test_the_table_has_the_areas(ood_run: RunView) -> None:
    section = abstain(merge([ood_run]))
    assert section is not None
    row = metrics.aurc(ood_run.table).filter(model="lite1", scorer="energy").row(0, named=True)
    assert share(row) in section.body


def test_models_without_scores_are_ranked_by_their_confidence(run: RunView) -> None:
    section = abstain(merge([run]))
    assert section is not None
    assert "ranked by their confidence" in str(section.lead)
    figures = [
        json.loads(text)
        for text in re.findall(r'<script type="application/json">(.*?)</script>', section.body)
    ]
    assert [[trace["name"] for trace in figure["data"]] for figure in figures] == [["conf", "random"]] * 3
    for row in metrics.aurc(run.table).to_dicts():
        assert row["scorer"] == "conf"
        assert share(row) in section.body


def test_models_with_scores_are_not_ranked_by_their_confidence(ood_run: RunView) -> None:
    section = abstain(merge([ood_run]))
    assert section is not None
    assert "ranked by their confidence" not in str(section.lead)


def test_a_model_without_mistakes_has_no_card(run: RunView) -> None:
    table = run.table.with_columns(correct=pl.col("correct") | (pl.col("model") == "lite1"))
    section = abstain(merge([dataclasses.replace(run, table=table)]))
    assert section is not None
    assert re.findall(r"<h3>(.*?)</h3>", section.body) == ["lite0", "lite2"]


def test_without_mistakes_or_without_scores_and_confidence_there_is_no_section(
    ood_run: RunView, run: RunView
) -> None:
    for whole in (ood_run, run):
        perfect = whole.table.with_columns(correct=pl.lit(True))
        assert abstain(merge([dataclasses.replace(whole, table=perfect)])) is None
    unsure = run.table.with_columns(conf=pl.lit(None, pl.Float32))
    assert abstain(merge([dataclasses.replace(run, table=unsure)])) is None
