"""Near and far OOD images: means over sets by OpenOOD's formulas with scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from sklearn.metrics import roc_auc_score, roc_curve

from sorites.core.errors import InvalidOption
from sorites.metrics import near_far, ood

SETS = {
    "ssb": ("near", 40, 0.5),
    "ninco": ("near", 90, 1.0),
    "textures": ("far", 60, 2.0),
    "mine": (None, 30, 1),
}


@pytest.fixture
def seen(row: Any, frame: Any) -> pl.DataFrame:
    rng = np.random.default_rng(3)
    who: dict[str, Any] = {"output": "ood", "scorer": "msp"}
    scores = np.round(rng.normal(0, 1, 120), 1)
    rows = [row(f"i{i}", "clean", None, i % 3 > 0, score=s, source="id", **who) for i, s in enumerate(scores)]
    rows += [
        row(f"b{i}", "blur", 2.0, False, score=5.0, source="id", **who) for i in range(20)
    ]  # shifted images of known classes are no in-distribution images here
    for name, (group, count, mean) in SETS.items():
        attrs = [] if group is None else [{"key": "group", "value": group, "common": None}]
        rows += [
            row(f"{name}{i}", "clean", None, None, score=s, source=name, known=False, attrs=attrs, **who)
            for i, s in enumerate(np.round(rng.normal(mean, 1, count), 1))
        ]
    return frame(rows)


def of_openood(seen: pl.DataFrame, sources: list[str]) -> tuple[float, float]:
    """Return AUROC and FPR at 95 % TPR with OOD images as positives, as OpenOOD computes them."""
    known = seen.filter((pl.col("source") == "id") & (pl.col("shift") == "clean"))["score"].to_numpy()
    other = seen.filter(pl.col("source").is_in(sources))["score"].to_numpy()
    scores, is_ood = np.concatenate([known, other]), np.repeat([0, 1], [len(known), len(other)])
    fpr, tpr, _ = roc_curve(is_ood, scores)
    return float(roc_auc_score(is_ood, scores)), float(fpr[np.argmax(tpr >= 0.95)])


def test_a_group_is_the_mean_of_its_sets(seen: pl.DataFrame) -> None:
    found = {(one["group"], one["metric"]): one for one in near_far(seen).to_dicts()}
    assert {group for group, _ in found} == {"near", "far"}
    for group, names in (("near", ["ssb", "ninco"]), ("far", ["textures"])):
        each = [of_openood(seen, [name]) for name in names]
        expected = np.mean(each, axis=0)
        auroc, fpr = found[group, "auroc"], found[group, "fpr95_ood_pos"]
        assert (auroc["value"], fpr["value"]) == pytest.approx(tuple(expected), abs=1e-12)
        assert (auroc["id"], auroc["ood"]) == (120, sum(SETS[name][1] for name in names))
        assert auroc["sets"] == len(names)
        assert auroc["low"] < auroc["value"] < auroc["high"]


def test_images_of_a_group_can_be_pooled(seen: pl.DataFrame) -> None:
    pooled = near_far(seen, average="images").filter(group="near", metric="auroc").row(0, named=True)
    assert pooled["value"] == pytest.approx(of_openood(seen, ["ssb", "ninco"])[0], abs=1e-12)
    assert pooled["sets"] == 2
    far = near_far(seen).filter(group="far").drop("sets", "group")
    alone = ood(seen.filter(pl.col("source").is_in(["id", "textures"])), against="clean")
    numbers = ["metric", "value", "low", "high"]
    assert_frame_equal(far.select(numbers), alone.select(numbers))
    with pytest.raises(InvalidOption) as caught:
        near_far(seen, average="groups")
    assert caught.value.fields["name"] == "average"
