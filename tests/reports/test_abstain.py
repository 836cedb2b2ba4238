from __future__ import annotations

import dataclasses
import json
import re

import polars as pl
import pytest

from sorites import metrics
from sorites.reports.abstain import abstain
from sorites.reports.view import RunView, merge


def test_a_chart_a_model_with_a_line_a_scorer_and_the_blind_one(strange_run: RunView) -> None:
    section = abstain(merge([strange_run]))
    assert section is not None
    figures = [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', section.body)]
    assert [len(figure["data"]) for figure in figures] == [4, 4]
    curve = metrics.risk_coverage(strange_run.table).filter(model="lite0", scorer="msp")
    assert figures[0]["data"][0]["y"] == pytest.approx(curve["value"].to_list())
    assert figures[0]["data"][3]["y"] == pytest.approx([curve["value"][-1]] * 2)


def test_the_table_has_the_areas(strange_run: RunView) -> None:
    section = abstain(merge([strange_run]))
    assert section is not None
    row = metrics.aurc(strange_run.table).filter(model="lite1", scorer="energy").row(0, named=True)
    assert (
        f"{100 * row['value']:.1f}\u202f%<small>{100 * row['low']:.1f} to {100 * row['high']:.1f}\u202f%</small>" in section.body
    )


def test_a_model_without_mistakes_or_scores_has_no_section(strange_run: RunView, run: RunView) -> None:
    assert abstain(merge([run])) is None
    perfect = strange_run.table.with_columns(correct=pl.lit(True))
    assert abstain(merge([dataclasses.replace(strange_run, table=perfect)])) is None
