from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import polars as pl
import pytest

from sorites.core.errors import SoritesError
from sorites.metrics import accuracy_drop, mean_accuracy, paired_difference

Make = Callable[..., dict[str, Any]]
Frame = Callable[[Iterable[dict[str, Any]]], pl.DataFrame]


def table(row: Make, frame: Frame, verdicts: dict[str, str]) -> pl.DataFrame:
    """One shifted image per sample and model; a letter per sample: right, wrong or missing."""
    known = {"r": True, "w": False}
    return frame(
        row(f"p{i}", "blur", 1.0, known[letter], model=model)
        for model, letters in verdicts.items()
        for i, letter in enumerate(letters)
        if letter in known
    )


def test_only_images_that_both_were_judged_on_count(row: Make, frame: Frame) -> None:
    answer = paired_difference(table(row, frame, {"a": "rrrrw-", "b": "wrrw-r"}))
    assert answer.select("model", "other", "value", "n", "share").rows() == [
        ("a", "b", 0.5, 4, 0.5),
        ("b", "a", -0.5, 4, 0.5),
    ]
    low, high = answer.select("low", "high").row(0)
    assert answer.select("low", "high").row(1) == pytest.approx((-high, -low))


def test_it_is_the_difference_of_the_means_and_has_the_interval_of_a_drop(world: pl.DataFrame) -> None:
    means = dict(mean_accuracy(world).select("model", "value").iter_rows())
    for one, two, value in paired_difference(world).select("model", "other", "value").iter_rows():
        assert value == pytest.approx(means[one] - means[two])
    weak = world.filter(
        (pl.col("model") == "weak") & (pl.col("shift") == "blur") & (pl.col("severity") == 1.0)
    )
    clean = world.filter((pl.col("model") == "weak") & (pl.col("shift") == "clean"))
    as_other = (
        clean.with_columns(model=pl.lit("other"), shift=pl.lit("blur"), severity=pl.lit(1.0))
        .drop("image_id")
        .join(weak.select("sample_id", "output", "image_id").unique(), on=["sample_id", "output"])
    )
    pair = paired_difference(pl.concat([weak, as_other.select(weak.columns)]), other="weak").row(
        0, named=True
    )
    drop = accuracy_drop(pl.concat([clean, weak]), by=["model"]).row(0, named=True)
    assert [pair[name] for name in ("value", "n", "low", "high")] == pytest.approx(
        [drop[name] for name in ("value", "n", "low", "high")]
    )


def test_one_model_may_be_the_other_of_all(world: pl.DataFrame) -> None:
    answer = paired_difference(world, by=("model", "shift"), other="mid")
    assert set(answer["other"]) == {"mid"}
    assert set(answer["model"]) == {"weak", "strong"}
    assert answer.columns[:3] == ["model", "shift", "other"]
    with pytest.raises(SoritesError, match="'mif'. Did you mean mid"):
        paired_difference(world, other="mif")


def test_one_model_alone_has_no_difference(world: pl.DataFrame) -> None:
    alone = paired_difference(world.filter(pl.col("model") == "mid"))
    assert alone.height == 0
    assert alone.schema == paired_difference(world).schema
