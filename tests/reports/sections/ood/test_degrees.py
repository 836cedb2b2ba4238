from __future__ import annotations

import dataclasses
import re

import polars as pl
import pytest

from sorites import metrics
from sorites.reports.sections.ood.levels import degrees
from sorites.reports.view import RunView, merge


@pytest.fixture(scope="module")
def body(ood_run: RunView) -> str:
    section = degrees(merge([ood_run]))
    assert section is not None
    return section.body


def test_a_map_has_n_in_each_cell_and_hatches_the_thin_ones(ood_run: RunView, body: str) -> None:
    first = re.search(r"<table.*?</table>", body)
    assert first is not None
    cells = metrics.level_map(ood_run.table).filter(model="lite0", scorer="msp")
    thin = cells.filter(pl.col("value").is_null())
    assert first.group().count('class="thin"') == thin.height > 0
    assert first.group().count('class="none"') == 64 - cells.height > 0
    fair = cells.filter(pl.col("value").is_not_null())
    shown = re.findall(r"<td class=\"(?:up|down)\"[^>]*>(\d+)<small>(\d+)</small>", first.group())
    assert shown == [
        (f"{100 * value:.0f}", str(n))
        for value, n in fair.sort("cov_level", "sem_level").select("value", "n").iter_rows()
    ]


def test_correlation_and_sensitivity_are_in_a_table(ood_run: RunView, body: str) -> None:
    table = body.split("<table")[-1]
    row = (
        metrics.sensitivity(ood_run.table)
        .filter(model="lite0", scorer="msp", axis="semantic")
        .row(0, named=True)
    )
    assert f"{row['value']:.3g}<small>{row['levels']} levels, n = {row['n']}</small>" in table


def test_without_levels_it_does_not_appear(ood_run: RunView) -> None:
    flat = ood_run.table.with_columns(sem_level=pl.lit(None, pl.Int32))
    assert degrees(merge([dataclasses.replace(ood_run, table=flat)])) is None


@pytest.mark.slow
def test_each_set_has_its_own_map_lines_and_numbers(graded_run: RunView) -> None:
    section = degrees(merge([graded_run]))
    assert section is not None
    heads = re.findall(r"<h3>(.*?)</h3>", section.body)
    assert [head for head in heads if "·" in head] == [
        *(
            "lite0 · msp · imagenet21k",
            "lite0 · msp · syn_is",
            "lite0 · knn · imagenet21k",
            "lite0 · knn · syn_is",
        ),
        *(
            f"lite0 · {axis} axis · {name}"
            for name in ("imagenet21k", "syn_is")
            for axis in ("semantic", "covariate")
        ),
    ]
    assert "level of syn_is, with n; 300 ID images" in section.body
    assert "pooled" not in section.body
    for name in ("imagenet21k", "syn_is"):
        row = (
            metrics.correlation(graded_run.table)
            .filter(scorer="knn", set=name, axis="covariate")
            .row(0, named=True)
        )
        line = re.search(rf"<td[^>]*>knn</td><td[^>]*>{name}</td>.*?</tr>", section.body)
        assert line is not None
        assert f"{row['value']:.2g}".replace("-", "−") in line.group()
