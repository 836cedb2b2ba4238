from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import bootstrap

from sorites.core.errors import SoritesError
from sorites.metrics import half_accuracy_severity
from sorites.metrics.failure import crossing

Make = Callable[..., dict[str, Any]]
Frame = Callable[[Iterable[dict[str, Any]]], pl.DataFrame]


def verdicts(row: Make, frame: Frame, shares: dict[float, float], n: int = 40) -> pl.DataFrame:
    """Samples that fall one after the other: at each severity the first share of them is right."""
    return frame(
        row(f"p{i:03d}", "clean" if at == 0 else "blur", at, i < round(share * n))
        for at, share in shares.items()
        for i in range(n)
    )


def test_it_lies_on_the_straight_line_to_half_of_the_clean_accuracy(row: Make, frame: Frame) -> None:
    answer = half_accuracy_severity(verdicts(row, frame, {0.0: 0.8, 1.0: 0.6, 3.0: 0.2})).row(0, named=True)
    assert answer["value"] == pytest.approx(2.0), "0.4 lies halfway from 0.6 at 1 to 0.2 at 3"
    assert (answer["n"], answer["clean"]) == (40, pytest.approx(0.8))
    assert answer["low"] < 2.0 < answer["high"]


def test_images_wrong_when_clean_do_not_count(row: Make, frame: Frame) -> None:
    """Half of the images were never right: half is lost at 0, but accuracy is halved where it
    comes down to a quarter.
    """
    answer = half_accuracy_severity(verdicts(row, frame, {0.0: 0.5, 1.0: 0.5, 2.0: 0.0}))
    assert answer["value"].to_list() == pytest.approx([1.5])


def test_it_is_null_where_accuracy_stays_above_half(row: Make, frame: Frame) -> None:
    answer = half_accuracy_severity(verdicts(row, frame, {0.0: 1.0, 1.0: 0.95, 2.0: 0.9}))
    assert answer.select("value", "low", "high").row(0) == (None, None, None)
    near = half_accuracy_severity(verdicts(row, frame, {0.0: 1.0, 1.0: 0.9, 2.0: 0.45})).row(0, named=True)
    assert near["value"] < 2.0
    assert near["low"] < near["value"]
    assert near["high"] is None, "some draws do not come down to half"
    assert half_accuracy_severity(verdicts(row, frame, {0.0: 0.0, 1.0: 0.0}))["value"].to_list() == [None]


def test_the_interval_is_scipys_bootstrap(row: Make, frame: Frame) -> None:
    rng = np.random.default_rng(3)
    marks = rng.random((120, 4)) < np.array([0.9, 0.7, 0.4, 0.1])
    rows = [
        row(f"p{i:03d}", "blur" if s else "clean", float(s), bool(marks[i, s]))
        for i in range(120)
        for s in range(4)
    ]
    answer = half_accuracy_severity(frame(rows), resamples=4000).row(0, named=True)

    def at(index: np.ndarray, axis: int = -1) -> np.ndarray:
        picked = marks[index.astype(int)]
        sums = picked.sum(axis=-2)
        return crossing(np.atleast_2d(sums), np.full_like(np.atleast_2d(sums), 120), np.arange(4.0)).reshape(
            sums.shape[:-1]
        )

    theirs = bootstrap(
        (np.arange(120),), at, n_resamples=4000, method="percentile", rng=1
    ).confidence_interval
    assert (answer["low"], answer["high"]) == pytest.approx((theirs.low, theirs.high), abs=0.03)


def test_severities_of_different_shifts_are_not_pooled(world: pl.DataFrame) -> None:
    with pytest.raises(SoritesError, match="add shift to by"):
        half_accuracy_severity(world, by=["model"])
    with pytest.raises(SoritesError, match="resamples .* got 0"):
        half_accuracy_severity(world, resamples=0)
