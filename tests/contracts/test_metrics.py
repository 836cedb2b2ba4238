"""What every metric owes, built in or plugged in, asked of the table of a real run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import sorites
from sorites.core import METRICS, Generated, Metric, Model, Sample, Source, source
from sorites.core.errors import SoritesError
from sorites.suites.suite import parse

every_metric = pytest.mark.parametrize("name", METRICS.names())


@pytest.fixture(scope="module")
def table(photos: Path, tiny: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """Two models, two dials refined, a score, an image that cannot be read and one of no known class."""

    def broken() -> np.ndarray:
        raise SoritesError("truncated")

    odd = [
        Sample("bad", Generated(broken), 0),
        Sample("far", Generated(lambda: np.full((40, 40, 3), 90, np.uint8)), 999),
    ]
    suite = parse(
        {"name": "s", "shifts": ["contrast", "gaussian_noise"], "scorers": ["msp"], "frame": {"resize": 40}},
        "test",
    )
    held = Source("mine", [*source(f"folder:{photos}"), *odd])
    other = tiny("other")
    other.prepare = lambda image, framed: image[::2, ::2]
    out = tmp_path_factory.mktemp("metrics") / "run"
    return sorites.run(suite, source=held, models=[tiny(), other], refine=0.05, out=out).collect()


def ask(name: str, table: pl.DataFrame | pl.LazyFrame, **more: Any) -> pl.DataFrame:
    """The metric's answer; the few options that have no sensible default are filled in by name."""
    metric: Metric = METRICS.get(name)
    known = {
        "reference": "tiny",
        "split": "",
        "facts": {"tiny": {"parameters": 1}, "other": {"parameters": 2}},
    }
    asked = {key: value for key, value in known.items() if key in inspect.signature(metric).parameters}
    return metric(table, **{**asked, **more})


def by_of(name: str) -> list[str]:
    return list(inspect.signature(METRICS.get(name)).parameters["by"].default)


@pytest.fixture(scope="module")
def answer_of(table: pl.DataFrame) -> Callable[[str], pl.DataFrame]:
    """Each metric's answer on the table, asked once; the table must be as it was."""

    @functools.cache
    def answer(name: str) -> pl.DataFrame:
        before = table.clone()
        found = ask(name, table)
        assert_frame_equal(table, before)
        return found

    return answer


@every_metric
def test_the_answer_is_by_then_value_and_n_and_the_table_is_not_changed(
    name: str, answer_of: Callable[[str], pl.DataFrame]
) -> None:
    answer = answer_of(name)
    assert answer.columns[: len(by_of(name))] == by_of(name)
    assert {"value", "n"} <= set(answer.columns)
    assert answer["n"].dtype.is_integer()
    assert ("low" in answer.columns) == ("high" in answer.columns)


@every_metric
def test_an_interval_holds_its_value(name: str, answer_of: Callable[[str], pl.DataFrame]) -> None:
    answer = answer_of(name)
    if "low" in answer.columns:
        sure = answer.drop_nulls(["low", "value", "high"])
        assert (sure["low"] <= sure["value"] + 1e-9).all()
        assert (sure["value"] <= sure["high"] + 1e-9).all()


@every_metric
def test_rows_in_any_order_and_lazily_give_the_same_answer(
    name: str, table: pl.DataFrame, answer_of: Callable[[str], pl.DataFrame]
) -> None:
    shuffled = table.sample(fraction=1.0, shuffle=True, seed=1)
    assert_frame_equal(ask(name, shuffled.lazy()), answer_of(name), rel_tol=1e-9, abs_tol=1e-12)


@every_metric
def test_an_empty_table_gives_an_empty_frame_with_the_columns(
    name: str, table: pl.DataFrame, answer_of: Callable[[str], pl.DataFrame]
) -> None:
    empty = ask(name, table.clear())
    assert empty.height == 0
    assert empty.columns == answer_of(name).columns


@every_metric
def test_an_unknown_column_is_named(name: str, table: pl.DataFrame) -> None:
    with pytest.raises(SoritesError, match="no column named 'modle'. Did you mean model"):
        ask(name, table, by=["modle"])


@every_metric
def test_an_error_is_missing_and_not_wrong(
    name: str, table: pl.DataFrame, answer_of: Callable[[str], pl.DataFrame]
) -> None:
    """Without the rows that are errors the values are the same; only the count of what is missing
    may differ.
    """
    sound = ask(name, table.filter(pl.col("error").is_null()))
    kept = [column for column in sound.columns if column != "missing"]
    assert_frame_equal(answer_of(name).select(kept), sound.select(kept), rel_tol=1e-9, abs_tol=1e-12)
