import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sorites.metrics import accuracy, rank


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from("abcdef"),
        st.integers(1, 30).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    )
)
def test_rank_counts_the_models_clearly_ahead(
    row: Any, frame: Any, models: dict[str, tuple[int, int]]
) -> None:
    table = frame(
        row(f"p{i}", "blur", 1.0, i < right, model=m) for m, (right, n) in models.items() for i in range(n)
    )
    ends = {m: (p, math.sqrt(p * (1 - p) / n)) for m, (right, n) in models.items() for p in [right / n]}
    expected = {m: 1 + sum(q - t > p + s for q, t in ends.values()) for m, (p, s) in ends.items()}
    assert dict(rank(table).select("model", "value").rows()) == expected


def test_overlapping_models_share_a_rank_and_the_next_one_counts_them(row: Any, frame: Any) -> None:
    counts = {"a": 90, "b": 89, "c": 50, "d": 0}
    table = frame(
        row(f"p{i}", "blur", 1.0, i < right, model=m) for m, right in counts.items() for i in range(100)
    )
    assert dict(rank(table).select("model", "value").rows()) == {"a": 1, "b": 1, "c": 3, "d": 4}


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
    assert places.columns == [*by, "model", "value", "n", "accuracy", "sigma"]
    best = places.group_by(by).agg(pl.col("value").min()) if by else places.select(pl.col("value").min())
    assert best["value"].unique().to_list() == [1]
    if by == ("shift",):
        assert places["accuracy"].to_list() == accuracy(world, by=("shift", "model"))["value"].to_list()
