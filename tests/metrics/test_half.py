from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import bootstrap, norm

from sorites.core.errors import SoritesError
from sorites.metrics import half_accuracy_severity
from sorites.metrics.half_accuracy import crossing

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


def guessed(row: Make, frame: Frame, shares: dict[float, float], classes: int, n: int = 240) -> pl.DataFrame:
    """A model that knows some samples and guesses the others, in turn right and wrong."""

    def right(i: int, share: float) -> bool:
        return i < round(share * n)

    return frame(
        row(f"p{i:03d}", "clean" if at == 0 else "blur", at, right(i, share), label=i % classes,
            accept=[i % classes], pred=i % classes if right(i, share) else (i + 1) % classes)
        for at, share in shares.items()
        for i in range(n)
    )  # fmt: skip


def test_it_is_half_way_to_chance(row: Make, frame: Frame) -> None:
    """With three classes a model that comes down from 80 % to 45 % has lost more than half of what it
    knew; half of 80 % is never reached.
    """
    table = guessed(row, frame, {0.0: 0.8, 1.0: 0.7, 2.0: 0.45}, 3)
    found = half_accuracy_severity(table).row(0, named=True)
    assert (found["chance"], found["assumed"], found["status"]) == (pytest.approx(1 / 3), True, "reached")
    half_way = (0.8 + 1 / 3) / 2
    assert found["value"] == pytest.approx(1 + (0.7 - half_way) / 0.25, abs=0.01)
    assert half_accuracy_severity(table, chance=0.0)["status"].to_list() == ["beyond"]
    assert half_accuracy_severity(table, chance=1 / 3)["value"].to_list() == pytest.approx([found["value"]])
    recorded = half_accuracy_severity(table.with_columns(classes=pl.lit(30, pl.Int32))).row(0, named=True)
    assert (recorded["chance"], recorded["assumed"]) == (pytest.approx(1 / 30), False)
    two_accepted = table.with_columns(accept=pl.concat_list("label", (pl.col("label") + 1) % 3))
    assert half_accuracy_severity(two_accepted)["chance"].to_list() == pytest.approx([2 / 3])


def test_it_is_undefined_where_clean_accuracy_may_be_chance(row: Make, frame: Frame) -> None:
    table = guessed(row, frame, {0.0: 0.37, 1.0: 0.3, 2.0: 0.1}, 3)
    found = half_accuracy_severity(table).row(0, named=True)
    assert (found["status"], found["value"], found["low"], found["high"]) == ("undefined", None, None, None)
    clear = half_accuracy_severity(guessed(row, frame, {0.0: 0.37, 1.0: 0.3, 2.0: 0.1}, 3, n=2400))
    assert clear["status"].to_list() == ["reached"]
    shifted = half_accuracy_severity(table.filter(pl.col("shift") == "blur")).row(0, named=True)
    assert (shifted["status"], shifted["value"]) == ("no clean images", None)


def test_the_majority_share_stands_beside_a_smaller_chance(row: Make, frame: Frame) -> None:
    balanced = guessed(row, frame, {0.0: 0.9, 1.0: 0.2}, 4)
    assert half_accuracy_severity(balanced)["majority"].to_list() == [None]
    skewed = balanced.with_columns(label=pl.when(pl.col("label") == 1).then(0).otherwise("label"))
    assert half_accuracy_severity(skewed)["majority"].to_list() == pytest.approx([0.5])


@pytest.mark.parametrize("chance", [-0.1, 1.0, float("nan")])
def test_an_impossible_chance_is_refused(world: pl.DataFrame, chance: float) -> None:
    with pytest.raises(SoritesError, match="chance"):
        half_accuracy_severity(world, chance=chance)


@pytest.mark.slow
def test_its_interval_covers_the_truth_with_chance(row: Make, frame: Frame) -> None:
    """Samples of differing difficulty, guessed among three classes where they are not known."""
    draws, n = 200, 100
    rng = np.random.default_rng(5)
    limits = np.array([3.0, 0.8, 0.0, -1.5])
    known = rng.normal(size=(draws, n, 1)) < limits
    right = known | (rng.random((draws, n, 4)) < 1 / 3)
    ids = np.indices(right.shape).reshape(3, -1)
    lone = frame([row("p", "blur", 1.0, True)]).select(pl.all().repeat_by(right.size).explode())
    table = lone.with_columns(
        run_id=pl.Series(ids[0]).cast(pl.String),
        sample_id=pl.Series(ids[1]).cast(pl.String),
        severity=pl.Series(ids[2]).cast(pl.Float64),
        shift=pl.Series(np.where(ids[2] == 0, "clean", "blur")),
        correct=pl.Series(right.ravel()),
        classes=pl.lit(3, pl.Int32),
    )
    found = half_accuracy_severity(table, by=("run_id", "shift"), resamples=300)
    curve = norm.cdf(limits)
    k = int(np.argmax(curve <= curve[0] / 2))
    truth = float(k - 1 + (curve[k - 1] - curve[0] / 2) / (curve[k - 1] - curve[k]))
    covered = ((found["low"] <= truth) & (truth <= found["high"].fill_null(np.inf))).sum()
    assert found["status"].to_list().count("reached") >= 0.9 * draws
    assert 0.9 * draws <= covered <= 0.995 * draws
