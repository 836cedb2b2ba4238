"""Intervals may be null where there are too few images; pages then show the numbers without them."""

from __future__ import annotations

import dataclasses
from typing import Any

import polars as pl
import pytest

from sorites.reports.page import render
from sorites.reports.view import RunView, View, merge


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "ood_run", "es_run"])
def test_a_page_without_any_bound_is_drawn(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = View.compute

    def without_bounds(view: View, *given: Any, **options: Any) -> pl.DataFrame:
        answer = compute(view, *given, **options)
        ends = [column for column in answer.columns if column.split("_")[-1] in ("low", "high")]
        return answer.with_columns(pl.lit(None, answer.schema[end]).alias(end) for end in ends)

    monkeypatch.setattr(View, "compute", without_bounds)
    run: RunView = request.getfixturevalue(name)
    text = render(merge([dataclasses.replace(run, image=None)]))
    assert "no interval" in text
    assert "None to" not in text
    assert "– to –" not in text.partition("<footer>")[0]
