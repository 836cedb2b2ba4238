from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from tests.metrics.coverage import columns, named

from sorites.metrics import accuracy, rank


@settings(deadline=None, max_examples=40)
@given(
    st.dictionaries(
        st.sampled_from("abcd"), st.lists(st.booleans(), min_size=12, max_size=12).map(tuple), min_size=1
    )
)
def test_rank_counts_the_models_clearly_ahead(
    row: Any, frame: Any, models: dict[str, tuple[bool, ...]]
) -> None:
    """Intervals by hand: half a pair added to each outcome, with the level shared by all pairs of models."""
    table = frame(
        row(f"p{i}", "blur", 1.0, right, model=m)
        for m, outcomes in models.items()
        for i, right in enumerate(outcomes)
    )
    z = norm.isf(0.05 / max(len(models) * (len(models) - 1), 1))

    def ahead(one: str, two: str) -> bool:
        differences = np.array([*np.subtract(models[one], models[two], dtype=float), 0.5 * 2, -0.5 * 2, 0, 0])
        n, weights = 14, np.r_[np.ones(12), 0.5, 0.5, 0.5, 0.5]
        middle = (weights * differences).sum() / n
        variance = (weights * differences**2).sum() / n - middle**2
        return middle > z * np.sqrt(variance / n) + 1e-12

    expected = {m: 1 + sum(ahead(other, m) for other in models if other != m) for m in models}
    assert dict(rank(table).select("model", "value").rows()) == expected


def test_unclear_models_share_a_rank_and_the_next_one_counts_them(row: Any, frame: Any) -> None:
    counts = {"a": 90, "b": 89, "c": 50, "d": 0}
    table = frame(
        row(f"p{i}", "blur", 1.0, i < right, model=m) for m, right in counts.items() for i in range(100)
    )
    assert dict(rank(table).select("model", "value").rows()) == {"a": 1, "b": 1, "c": 3, "d": 4}


def test_equal_models_share_a_rank_although_a_sample_has_many_images() -> None:
    """Images of one sample are right or wrong together, so that rows are far from independent."""
    draws, samples, levels = 100, 30, 5
    right = np.random.default_rng(3).random((2, draws, samples, 1)).repeat(levels, axis=3) < 0.7
    model, run, sample, level = (axis.ravel() for axis in np.indices(right.shape))
    table = columns(
        right.size,
        model=named("m", model),
        run_id=named("r", run),
        sample_id=named("p", sample),
        image_id=named("i", sample * levels + level),
        shift="blur",
        severity=level + 1.0,
        correct=right.ravel(),
    )
    apart = rank(table, by=("model", "run_id")).filter(pl.col("value") > 1)["run_id"].n_unique()
    assert apart <= 5 + 3 * 2.2


def test_every_dial_starts_with_clean(world: pl.DataFrame) -> None:
    places = rank(world)
    clean = places.filter(pl.col("shift") == "clean").drop("shift", "severity")
    for shift in ("blur", "noise"):
        assert (
            places.filter(pl.col("shift") == shift, pl.col("severity") == 0)
            .drop("shift", "severity")
            .equals(clean)
        )


@pytest.mark.parametrize("by", [("shift", "severity"), ("shift",), ()])
def test_models_compete_within_the_rest_of_by(by: tuple[str, ...], world: pl.DataFrame) -> None:
    places = rank(world, by=by)
    assert places.columns == [*by, "model", "value", "n", "accuracy"]
    best = places.group_by(by).agg(pl.col("value").min()) if by else places.select(pl.col("value").min())
    assert best["value"].unique().to_list() == [1]
    if by == ("shift",):
        assert places["accuracy"].to_list() == accuracy(world, by=("shift", "model"))["value"].to_list()
