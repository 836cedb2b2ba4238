"""Surface, contour and interaction of grids, against closed forms and independent computations."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from sorites import metrics
from sorites.core import table as tables
from sorites.core.errors import SoritesError
from sorites.metrics.grids import first_crossing, holm, mean_excess

Row = dict[str, Any]
A, B = (0.0, 1.0, 2.0), (0.0, 2.0, 4.0, 8.0)


def grid_table(
    correct: Callable[[int, float, float], bool], samples: int = 40, classes: int = 1000
) -> pl.DataFrame:
    rows: list[Row] = []
    for i, a, b in itertools.product(range(samples), A, B):
        clean = not a and not b
        rows.append(
            {
                "run_id": "r",
                "source": "s",
                "sample_id": f"p{i}",
                "image_id": f"p{i}/{a}/{b}",
                "shift": "clean" if clean else "dim x blur",
                "family": "combined",
                "severity": 0.0 if clean else None,
                "params": None if clean else json.dumps({"dim": a, "blur": b}),
                "seed": 0,
                "probe": False,
                "model": "m",
                "output": "label",
                "correct": correct(i, a, b),
                "conf": 0.5,
                "label": i % classes,
                "accept": [i % classes],
                "known": True,
            }
        )
    return tables.rows(rows).with_columns(pl.lit(classes, pl.Int32).alias(tables.CLASSES))


def linear(i: int, a: float, b: float) -> bool:
    """Of 40 samples, the share that is correct falls by 5 % per unit of either severity."""
    return i < 40 - 2 * (a + b)


def test_the_surface_has_the_accuracy_of_every_combination() -> None:
    surface = metrics.grid_accuracy(grid_table(linear))
    assert surface.height == len(A) * len(B)
    for first, second, third, value, n in surface.select(
        "first", "second", "third", "value", "n"
    ).iter_rows():
        assert value == pytest.approx(1 - (first + second) / 20)
        assert (third, n) == (None, 40)


def test_the_contour_is_where_accuracy_is_half_way_to_chance() -> None:
    """Accuracy is 1 - (a + b) / 20 and chance 1 / 4, so the level 0.625 is crossed at b = 7.5 - a."""
    contour = metrics.failure_contour(grid_table(linear, classes=4), resamples=200)
    assert contour["first"].to_list() == list(A)
    assert contour["value"].to_list() == pytest.approx([7.5, 6.5, 5.5])
    assert contour["status"].to_list() == ["reached"] * 3
    assert (contour["low"] <= contour["value"]).all()
    assert (contour["high"].fill_null(np.inf) >= contour["value"]).all()


def test_a_contour_may_lie_beyond_or_below_the_grid() -> None:
    strong = metrics.failure_contour(grid_table(lambda i, a, b: True), resamples=50)
    assert strong["status"].to_list() == ["beyond"] * 3
    assert strong["value"].null_count() == 3
    dim = metrics.failure_contour(grid_table(lambda i, a, b: a < 2 or i < 5), resamples=50)
    assert dim["status"].to_list() == ["beyond", "beyond", "below"]
    assert dim["value"].to_list()[2] == 0
    guess = metrics.failure_contour(grid_table(lambda i, a, b: i % 4 == 0, classes=4), resamples=50)
    assert guess["status"].to_list() == ["undefined"] * 3


@pytest.mark.slow
def test_the_interval_of_the_contour_covers_the_truth() -> None:
    rng, hits = np.random.default_rng(0), 0
    for _ in range(60):
        easy = rng.uniform(0, 14, 100)
        found = metrics.failure_contour(
            grid_table(lambda i, a, b, easy=easy: bool(easy[i] > a + b), samples=100), resamples=120
        ).filter(pl.col("first") == 1.0)
        # Accuracy is linear in a + b, so interpolation is exact.
        truth = (1 - 0.5 * (1 + 0.001)) * 14 - 1
        low, high = found["low"][0], found["high"][0]
        hits += low <= truth and (high is None or truth <= high)
    assert hits >= 52


def test_additive_losses_have_no_interaction() -> None:
    found = metrics.interaction(grid_table(linear))
    assert found.height == 2 * 3 + 1
    np.testing.assert_allclose(found["value"].to_numpy(), 0, atol=1e-12)


def test_the_interaction_is_the_paired_difference_of_losses() -> None:
    """Compared with scipy's t test on the differences of each sample, and those of two more samples.

    Half samples are made of doubled ones; the added samples change the bounds of 40 samples by a few hundredths.
    """
    outcomes = np.random.default_rng(1).random((40, len(A), len(B))) < 0.7

    def correct(i: int, a: float, b: float) -> bool:
        return bool(outcomes[i, A.index(a), B.index(b)])

    found = metrics.interaction(grid_table(correct))
    cells, excesses = 0, []
    for (a, first), (b, second) in itertools.product(enumerate(A), enumerate(B)):
        if not first or not second:
            continue
        clean, dim, blur, both = (
            outcomes[:, i, j].astype(float) for i, j in ((0, 0), (a, 0), (0, b), (a, b))
        )
        joint_loss, sum_of_losses = clean - both, (clean - dim) + (clean - blur)
        excess = joint_loss - sum_of_losses
        row = found.filter(first=first, second=second).row(0, named=True)
        test = stats.ttest_1samp(excess, 0)
        bounds = test.confidence_interval(0.95)
        doubled = np.r_[excess, excess, -1, 1, 0, 0]
        error, reach = doubled.std() / np.sqrt(42), stats.t(39).ppf(0.975)
        assert row["value"] == pytest.approx(excess.mean())
        assert row["low"] == pytest.approx(doubled.mean() - reach * error)
        assert row["high"] == pytest.approx(doubled.mean() + reach * error)
        assert row["p"] == pytest.approx(2 * stats.t(39).sf(abs(doubled.mean()) / error))
        assert (row["low"], row["high"]) == pytest.approx((bounds.low, bounds.high), abs=0.03)
        assert row["accuracy"] == pytest.approx(both.mean())
        assert row["expected"] == pytest.approx((dim + blur - clean).mean())
        cells += 1
        excesses.append(excess)
    assert cells == 6
    mean = found.filter(pl.col("first").is_null()).row(0, named=True)
    assert mean["value"] == pytest.approx(np.mean(excesses))
    assert mean["p"] is mean["low"] is mean["high"] is None


@pytest.mark.parametrize("excess", [0.0, 1.0, -1.0])
def test_samples_that_agree_have_an_interval_of_some_width(excess: float) -> None:
    """Eight equal samples are no proof: a share of 1 in 8 of others would often be missed."""
    line = mean_excess(np.full(8, excess))
    assert line["value"] == excess
    assert line["high"] - line["low"] > 0.3
    assert line["low"] <= excess <= line["high"]
    assert (line["p"] > 0.05) == (line["low"] <= 0 <= line["high"]) == (excess == 0)
    assert line["p"] > 0.0005


def test_shifts_that_only_hurt_together_interact() -> None:
    found = metrics.interaction(grid_table(lambda i, a, b: not (a and b) or i % 2 == 0))
    together = found.filter(pl.col("first").is_not_null())
    np.testing.assert_allclose(together["value"].to_numpy(), 0.5)
    assert (together["p_adjusted"] < 0.001).all()
    assert (together["low"] > 0).all()


def test_p_values_are_corrected_as_by_statsmodels() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    values = [0.04, 0.001, 0.2, 0.03, 0.9]
    *adjusted, missing = holm([*values, None])
    assert missing is None
    assert adjusted == pytest.approx(multitest.multipletests(values, method="holm")[1].tolist())


def test_crossings_are_found_by_linear_interpolation() -> None:
    curves = np.array([[1.0, 0.6, 0.2], [0.4, 0.3, 0.1], [1.0, 0.9, 0.8], [1.0, 0.5, 0.9]])
    found = first_crossing(curves, np.array([0.0, 2.0, 4.0]), np.full(4, 0.5))
    assert found.tolist() == pytest.approx([2.5, 0.0, np.inf, 2.0])


def test_severities_of_several_shifts_cannot_be_pooled() -> None:
    with pytest.raises(SoritesError, match="add shift to by"):
        metrics.grid_accuracy(grid_table(linear), by=("model",))
