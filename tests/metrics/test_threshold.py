from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm
from sklearn.metrics import f1_score, precision_recall_curve, roc_curve

from sorites.core.errors import SoritesError
from sorites.metrics import f1, f1_at_tpr95
from sorites.metrics.ood import best_threshold
from sorites.metrics.separation import pair


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
        assert row["value"] == pytest.approx(
            f1_score(~here["correct"].to_numpy(), here["score"].to_numpy() >= np.float32(best))
        )
        assert row["low"] < row["value"] < row["high"]
        assert row["n"] == here.height


def test_of_equal_thresholds_the_highest() -> None:
    assert best_threshold(pair(np.array([0.0]), np.array([0.0, 1.0]))) == 0.0
    assert best_threshold(pair(np.array([0.0, 0.0]), np.array([0.0, 2.0]))) == 2.0


def test_f1_needs_a_split(seen: pl.DataFrame) -> None:
    with pytest.raises(SoritesError, match="split=NAME with one of 'test', 'val'"):
        f1(seen)
    with pytest.raises(SoritesError, match="there is no 'vall'"):
        f1(seen, split="vall")


def test_a_split_without_ood_images_gives_null(seen: pl.DataFrame) -> None:
    found = f1(
        seen.filter((pl.col("split") == "test") | pl.col("correct")), framework="model-specific", split="val"
    )
    assert found.select("value", "low", "high", "threshold").row(0) == (None, None, None, None)
    assert found["n"].item() == 100


def released_f1(scores: np.ndarray, right: np.ndarray) -> float:
    """F1 of ImageNet-ES in the words of its definition: right is positive, and 95 % of the right
    images pass.
    """
    ordered = sorted(scores[right])
    limit = next(score for place, score in enumerate(ordered, 1) if place >= 0.95 * len(ordered))
    passed = scores <= limit
    tp, fp, fn = (int(np.sum(found)) for found in (right & passed, ~right & passed, right & ~passed))
    return 2 * tp / (2 * tp + fp + fn)


def settings(row: Any, accuracies: dict[str, float], apart: float = 1.2, images: int = 1000) -> list[Any]:
    """Scores at settings of given accuracies, normal with the same separation everywhere; the first
    setting is for validation.
    """
    made = []
    for params, accuracy in accuracies.items():
        right = np.arange(images) < round(accuracy * images)
        scores = np.empty(images)
        for which, middle in ((right, 0.0), (~right, apart)):
            scores[which] = norm.ppf((np.arange(which.sum()) + 0.5) / which.sum(), middle)
        more = {
            "output": "ood",
            "scorer": "msp",
            "params": params,
            "split": "val" if params == "val" else "test",
        }
        made += [row(f"p{i}", "camera", None, bool(right[i]), score=scores[i], **more) for i in range(images)]
    return made


def test_f1_of_imagenet_es_figure_8_falls_with_accuracy_where_f1_of_ood_images_rises(
    row: Any, frame: Any
) -> None:
    """An audit found .90 .75 .36 .08 as released and .48 .74 .87 .92 here, at accuracies .8 .5 .2 .02."""
    accuracies = {"a": 0.8, "b": 0.5, "c": 0.2, "d": 0.02}
    seen = frame(settings(row, {"val": 0.5, **accuracies}))
    released = f1_at_tpr95(seen.filter(split="test"))
    for found in released.to_dicts():
        here = seen.filter(params=found["params"])
        assert found["value"] == pytest.approx(
            released_f1(here["score"].to_numpy(), here["correct"].to_numpy())
        )
        assert (found["id"], found["n"]) == (round(1000 * accuracies[found["params"]]), 1000)
        assert found["low"] < found["value"] < found["high"]
    ours = f1(seen, by=("model", "scorer", "params"), framework="model-specific", split="val")
    assert released["params"].to_list() == ours["params"].to_list() == list(accuracies)
    assert released["value"].to_list() == pytest.approx([0.90, 0.75, 0.36, 0.08], abs=0.06)
    assert ours["value"].to_list() == pytest.approx([0.48, 0.74, 0.87, 0.92], abs=0.02)


def test_f1_at_tpr95_with_ties_and_against_the_nearest_point_of_the_roc_curve(row: Any, frame: Any) -> None:
    rng = np.random.default_rng(9)
    right = rng.random(800) < 0.6
    scores = np.round(rng.normal(1.5 * ~right), 1).astype(np.float32)
    made = [
        row(f"p{i}", "camera", None, bool(r), output="ood", scorer="x", score=s)
        for i, (r, s) in enumerate(zip(right, scores, strict=True))
    ]
    found = f1_at_tpr95(frame(made))["value"].item()
    assert found == pytest.approx(released_f1(scores, right))
    _, share, limits = roc_curve(right, -scores, drop_intermediate=False)
    passed = -scores >= limits[np.argmin(np.abs(share - 0.95))]
    assert found == pytest.approx(f1_score(right, passed), abs=0.02)


def test_f1_at_tpr95_without_wrong_or_without_right_images(row: Any, frame: Any) -> None:
    def asked(right: bool) -> Any:
        more = {"output": "ood", "scorer": "x"}
        return f1_at_tpr95(
            frame([row(f"p{i}", "camera", None, right, score=float(i), **more) for i in range(40)])
        ).row(0, named=True)

    assert asked(True)["value"] == pytest.approx(2 * 38 / (2 * 38 + 2))
    assert asked(True)["threshold"] == 37.0
    assert [asked(False)[name] for name in ("value", "low", "high", "threshold", "n")] == [
        None,
        None,
        None,
        None,
        40,
    ]


def test_f1_at_tpr95_of_each_ood_set(row: Any, frame: Any) -> None:
    rng = np.random.default_rng(2)
    more = {"output": "ood", "scorer": "x"}
    made = [row(f"p{i}", "clean", 0.0, True, score=rng.normal(), **more) for i in range(100)]
    for name, far in (("near", 1.0), ("far", 3.0)):
        ood = {"source": name, "known": False, "label": None}
        made += [
            row(f"{name}{i}", "clean", 0.0, None, score=rng.normal(far), **ood, **more) for i in range(50)
        ]
    seen = frame(made)
    for found in f1_at_tpr95(seen, by=("source",), framework="semantic").to_dicts():
        here = seen.filter((pl.col("source") == found["source"]) | pl.col("known"))
        assert found["value"] == pytest.approx(
            released_f1(here["score"].to_numpy(), here["known"].to_numpy())
        )
        assert (found["id"], found["ood"]) == (100, 50)
