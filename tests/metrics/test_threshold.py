from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import f1_score, precision_recall_curve

from sorites.errors import SoritesError
from sorites.metrics import f1
from sorites.metrics._separation import pair
from sorites.metrics.threshold import best_threshold


@pytest.fixture(scope="module")
def seen(row: Any, frame: Any) -> pl.DataFrame:
    rng = np.random.default_rng(4)
    made = []
    for i in range(200):
        wrong = bool(rng.random() < 0.3)
        score = round(float(rng.normal(1.2 * wrong)), 1)
        more = {"output": "ood", "scorer": "msp", "split": "val" if i % 2 else "test"}
        made.append(row(f"p{i}", "clean" if i % 3 else "blur", 0.0, not wrong, score=score, **more))
    return frame(made)


def test_the_threshold_comes_from_one_split_and_the_rest_is_judged(seen: pl.DataFrame) -> None:
    found = f1(seen, by=("model", "scorer", "shift"), framework="model-specific", split="val")
    val = seen.filter(split="val")
    precision, recall, at = precision_recall_curve(~val["correct"].to_numpy(), val["score"].to_numpy())
    worth = 2 * precision * recall / (precision + recall)
    best = at[worth[:-1] >= worth.max() - 1e-12].max()
    assert found["threshold"].unique().to_list() == [pytest.approx(best)]
    for row in found.to_dicts():
        here = seen.filter(split="test", shift=row["shift"])
        assert row["value"] == pytest.approx(f1_score(~here["correct"].to_numpy(), here["score"].to_numpy() >= np.float32(best)))
        assert row["low"] < row["value"] < row["high"]
        assert row["n"] == here.height


def test_of_equal_thresholds_the_highest() -> None:
    assert best_threshold(pair(np.array([0.0]), np.array([0.0, 1.0]))) == 0.0
    assert best_threshold(pair(np.array([0.0, 0.0]), np.array([0.0, 2.0]))) == 2.0


def test_without_a_split_it_is_refused_by_what_to_type(seen: pl.DataFrame) -> None:
    with pytest.raises(SoritesError, match="no split was named. Type --option split=NAME, one of 'test', 'val'"):
        f1(seen)
    with pytest.raises(SoritesError, match="there is no 'vall'"):
        f1(seen, split="vall")


def test_a_split_without_strange_pictures_gives_null(seen: pl.DataFrame) -> None:
    found = f1(seen.filter((pl.col("split") == "test") | pl.col("correct")), framework="model-specific", split="val")
    assert found.select("value", "low", "high", "threshold").row(0) == (None, None, None, None)
    assert found["n"].item() == 100
