from __future__ import annotations

import dataclasses
import re

import polars as pl

from sorites.reports.components.markup import THIN
from sorites.reports.sections.comparison import agreement, optics, size
from sorites.reports.view import RunView, merge


def words(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).replace(THIN, "").split())


def test_an_order_of_three_models_says_nothing(run: RunView) -> None:
    assert agreement(merge([run])) is None


def test_the_matrix_of_more_models(run: RunView) -> None:
    twins = run.table.with_columns(
        model=pl.col("model") + "+", correct=pl.col("correct") & (pl.col("sample_id") < "object-30")
    )
    section = agreement(merge([dataclasses.replace(run, table=pl.concat([run.table, twins]))]))
    assert section is not None
    assert "6 models" in section.lead
    assert words(section.body).count("p = ") == 4 * 3


def test_averages_with_and_without_the_disk(run: RunView) -> None:
    assert optics(merge([run])) is None
    renamed = run.table.with_columns(shift=pl.col("shift").replace("jpeg", "coma")).filter(
        pl.col("error").is_null()
    )
    section = optics(merge([dataclasses.replace(run, table=renamed)]))
    assert section is not None
    only = renamed.filter(pl.col("shift") == "coma", pl.col("model") == "lite0", ~pl.col("probe")).collect()
    per_sample = only.group_by("sample_id").agg(pl.col("correct").mean())["correct"].mean()
    assert isinstance(per_sample, float)
    line = words(section.body.split("lite0")[1].split("lite1")[0])
    assert line.count(f"{100 * per_sample:.1f}%") >= 2


def test_size_is_drawn_where_models_know_theirs(run: RunView) -> None:
    assert size(merge([run])) is None
    told = {"lite0": 4_700_000, "lite1": 5_400_000, "lite2": 6_100_000}
    section = size(merge([dataclasses.replace(run, record=run.record.having(parameters=told))]))
    assert section is not None
    assert "4.7" in section.body
    two = size(
        merge([dataclasses.replace(run, record=run.record.having(parameters={**told, "lite2": None}))])
    )
    assert two is None, "two points make no trend"
