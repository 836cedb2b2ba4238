from __future__ import annotations

import dataclasses
import html
import json
import re

import polars as pl
import pytest

from sorites import metrics
from sorites.reports.sections.ood.levels import level_axes
from sorites.reports.view import RunView, merge


def test_few_scorers_are_lines_of_the_level_means(ood_run: RunView) -> None:
    drawn = level_axes(merge([ood_run]))
    figures = [
        json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', drawn)
    ]
    assert len(figures) == 4
    means = metrics.level_curve(ood_run.table).filter(model="lite0", scorer="energy", axis="semantic")
    trace = figures[0]["data"][1]
    assert trace["name"] == "energy"
    assert (trace["x"], trace["y"]) == (means["level"].to_list(), pytest.approx(means["value"].to_list()))
    assert figures[0]["data"][2]["name"] == "&lt;b&gt;knn&lt;/b&gt;"


@pytest.mark.slow
def test_many_scorers_are_a_shaded_table_the_best_mean_first(crowded_run: RunView) -> None:
    drawn = level_axes(merge([crowded_run]))
    assert "application/json" not in drawn
    tables = re.findall(r"<table.*?</table>", drawn)
    assert len(tables) == 4
    means = metrics.level_curve(crowded_run.table).filter(model="lite0", axis="covariate")
    best = (
        means.group_by("scorer")
        .agg(pl.col("value").mean())
        .sort("value", descending=True)["scorer"]
        .to_list()
    )
    assert re.findall(r'<th scope="row">(.*?)</th>', tables[1]) == [html.escape(name) for name in best]
    first = means.filter(scorer=best[0])
    row = re.search(r"<tbody><tr>(.*?)</tr>", tables[1])
    assert row is not None
    assert re.findall(r">(\d+)</td>", row.group()) == [f"{100 * value:.0f}" for value in first["value"]]
    assert f"n = {first['n'][0]}" in row.group()


@pytest.mark.slow
def test_a_level_of_thin_cells_alone_is_hatched_and_one_of_none_is_empty(crowded_run: RunView) -> None:
    kept = (pl.col("sem_level") != 3) & ((pl.col("sem_level") != 7) | (pl.col("cov_level") == 4))
    table = crowded_run.table.filter(pl.col("sem_level").is_null() | kept)
    drawn = level_axes(merge([dataclasses.replace(crowded_run, table=table)]))
    row = re.search(r"<tbody><tr>(.*?)</tr>", drawn)
    assert row is not None
    cells = re.sub("up|down", "fair", " ".join(re.findall(r'<td class="(\w+)"', row.group())))
    assert cells == "fair fair fair none fair fair fair thin"
