"""Calls in text, columns to group by, and options held against the types that functions state."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pytest

from sorites.core.errors import SoritesError
from sorites.core.specs import check_values, parse_call, unique_groups


def takes(
    name: str,
    *,
    path: str | None = None,
    share: float = 0.5,
    count: int = 1,
    on: bool = True,
    kind: Literal["a"] = "a",
) -> None:
    """State some types."""


@pytest.mark.parametrize(
    "given",
    [
        {"path": "x"},
        {"path": Path("x")},
        {"path": None},
        {"share": 1},
        {"count": 3},
        {"on": False},
        {"kind": "other"},
        {"more": 1},
    ],
)
def test_values_of_the_stated_type_pass(given: dict[str, Any]) -> None:
    check_values(functools.partial(takes, "x"), given, "it")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": 5.5}, r"text as path, got '5\.5'"),
        ({"share": "1"}, "a number as share"),
        ({"share": float("nan")}, "a number as share"),
        ({"share": 10**400}, "a number as share"),
        ({"count": 1.5}, "a whole number as count"),
        ({"count": True}, "a whole number as count"),
        ({"count": 10**30}, "a whole number as count"),
        ({"on": 1}, "true or false as on"),
    ],
)
def test_values_of_another_type_are_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SoritesError, match=said):
        check_values(takes, given, "it")


def test_a_call_in_text_is_a_name_and_its_parameters() -> None:
    assert parse_call("knn", "scorer") == ("knn", {})
    assert parse_call("knn(k=10, x='a')", "scorer") == ("knn", {"k": 10, "x": "a"})


@pytest.mark.parametrize(
    "text",
    [
        "knn(",
        "knn(1)",
        "knn(k=",
        "knn(k=x)",
        "knn(k=1)(2)",
        "(" * 5000,
        "f(" + "-" * 5000 + "1)",
        "f(k=" + "[" * 5000,
        "a\0(",
    ],
)
def test_what_is_no_call_is_named(text: str) -> None:
    with pytest.raises(SoritesError, match="or a name with parameters"):
        parse_call(text, "scorer")


def test_columns_are_taken_once() -> None:
    seen: list[list[str]] = []

    @unique_groups
    def count(table: pl.DataFrame, by: Any = ("model",)) -> pl.DataFrame:
        seen.append(list(by))
        return table.group_by(by).agg(n=pl.len())

    frame = pl.DataFrame({"model": ["a"], "n": [1]})
    for by in ("model", ["model"], ["model", "model"]):
        assert count(frame, by).height == 1
    assert count(frame, by=("model",)).height == count(frame).height == 1
    assert seen == [["model"]] * 5
    with pytest.raises(SoritesError, match="count cannot be grouped by n:"):
        count(frame, by="n")
