"""Limits of imported numbers: refused, or rounded with a count."""

from __future__ import annotations

import warnings

import polars as pl
import pytest

from sorites.core.errors import Notice, SoritesError
from sorites.core.labels import imagenet
from sorites.evaluation.imports.read import ROW, Sheet, typed


def sheet(**columns: list[str]) -> Sheet:
    count = len(next(iter(columns.values())))
    return Sheet("p.csv", pl.DataFrame({ROW: range(1, count + 1), **columns}), {})


def test_confidences_above_1_by_rounding_are_set_to_1_and_counted() -> None:
    with pytest.warns(Notice) as told:
        rows = typed(sheet(conf=["0.5", "1.0000001", "1.0000002"]), imagenet())
    assert rows["conf"].to_list() == [0.5, 1.0, 1.0]
    [notice] = [one.message for one in told if isinstance(one.message, Notice)]
    assert notice.code == "rounded"
    assert notice.fields == {"column": "conf", "count": 2}


def test_a_confidence_of_1_is_no_rounding() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert typed(sheet(conf=["1", "0"]), imagenet())["conf"].to_list() == [1.0, 0.0]


@pytest.mark.parametrize(("column", "cell"), [("conf", "1.001"), ("conf", "-0.1"), ("severity", "inf")])
def test_numbers_beyond_their_limits_are_refused(column: str, cell: str) -> None:
    with pytest.raises(SoritesError, match=column):
        typed(sheet(**{column: ["0.5", cell]}), imagenet())


def test_infinite_scores_in_double_precision_are_kept() -> None:
    rows = typed(sheet(score=["inf", "1.000000002"]), imagenet())
    assert rows["score"].to_list() == [float("inf"), 1.000000002]
