"""Which images are in-distribution and which OOD, in runs of several sources."""

import itertools
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score

from sorites.metrics import auroc, f1, fpr95_id_pos, fpr95_ood_pos, ood, score_histogram

OOD = {"ssb_hard": ("near", 0.6), "ninco": ("near", 1.0), "textures": ("far", 2.0)}


@pytest.fixture(scope="module")
def seen(row: Any, frame: Any) -> pl.DataFrame:
    """An in-distribution source clean and blurred, and three OOD ones, near and far, under the same;
    the in-distribution has two splits.
    """
    rng = np.random.default_rng(5)
    made = []
    for i, (shift, severity) in itertools.product(range(60), (("clean", 0.0), ("blur", 1.0))):
        at = (shift, severity)
        shared = {"output": "ood", "scorer": "msp", "split": "val" if i % 3 == 0 else "test"}
        made.append(row(f"p{i}", *at, bool(rng.random() < 0.8), score=rng.normal(severity / 2), **shared))
        for name, (group, far) in OOD.items():
            told = {
                "known": False,
                "label": None,
                "source": name,
                "attrs": [{"key": "group", "value": group, "common": None}],
            }
            made.append(row(f"{name}/{i}", *at, None, score=rng.normal(far + severity / 2), **told, **shared))
    return frame(made)


def fpr(in_distribution: np.ndarray, ood: np.ndarray) -> tuple[float, float]:
    """FPR at 95 %: the in-distribution flagged where 95 % of the OOD are, and the OOD passed where
    95 % of the in-distribution are.
    """
    flag = max(t for t in ood if np.mean(ood >= t) >= 0.95)
    passes = min(t for t in in_distribution if np.mean(in_distribution <= t) >= 0.95)
    return float(np.mean(in_distribution >= flag)), float(np.mean(ood <= passes))


@pytest.mark.parametrize("column", ["source", "group"])
def test_each_ood_set_meets_the_in_distribution_images_of_the_same_condition(
    seen: pl.DataFrame, column: str
) -> None:
    """Figure 8 (b, d, f) of ImageNet-ES and the columns near and far of its table 3."""
    names = {
        "source": {name: [name] for name in OOD},
        "group": {"near": ["ssb_hard", "ninco"], "far": ["textures"]},
    }[column]
    for by, shifts in (((column, "shift"), ["clean", "blur"]), ((column,), [None])):
        asked = [ask(seen, by=by) for ask in (auroc, fpr95_ood_pos, fpr95_id_pos)]
        assert set(asked[0][column]) == set(names)
        for (name, sources), shift in itertools.product(names.items(), shifts):
            here = seen if shift is None else seen.filter(shift=shift)
            in_distribution = here.filter(source="s")["score"].to_numpy()
            ood = here.filter(pl.col("source").is_in(sources))["score"].to_numpy()
            area = roc_auc_score(
                [0] * len(in_distribution) + [1] * len(ood), np.concatenate([in_distribution, ood])
            )
            for frame, wanted in zip(asked, (area, *fpr(in_distribution, ood)), strict=True):
                mine = frame.filter(
                    pl.col(column) == name, *([] if shift is None else [pl.col("shift") == shift])
                )
                assert mine["value"].item() == pytest.approx(wanted)
                assert mine.select("id", "ood").row(0) == (len(in_distribution), len(ood))


def test_f1_of_each_ood_set_has_the_threshold_of_the_other_split(seen: pl.DataFrame) -> None:
    found = f1(seen, by=("source",), split="val")
    assert found["source"].to_list() == sorted(OOD)
    for row in found.to_dicts():
        here = seen.filter(pl.col("split") == "test", pl.col("source").is_in(["s", row["source"]]))
        ood, flagged = ~here["known"].to_numpy(), here["score"].to_numpy() >= np.float32(row["threshold"])
        tp, fp, fn = ((a & b).sum() for a, b in ((ood, flagged), (~ood, flagged), (ood, ~flagged)))
        assert row["value"] == pytest.approx(2 * tp / (2 * tp + fp + fn))


def test_unlabelled_images_of_a_in_distribution_source_are_in_distribution(seen: pl.DataFrame) -> None:
    bare = seen.with_columns(
        pl.when("known").then(None).otherwise("label").alias("label"),
        known=pl.when(~pl.col("known")).then(False),
    )
    bare = bare.with_columns(correct=pl.lit(None, pl.Boolean))
    for by in (("source",), ("group", "shift"), ()):
        assert ood(bare, by=by).equals(ood(seen, by=by))
    assert score_histogram(bare, framework="semantic").equals(score_histogram(seen, framework="semantic"))
    assert set(score_histogram(bare)["pool"]) == {"ID", "C-OOD", "S-OOD"}
    assert ood(bare, framework="model-specific").height == 0


def test_an_unlabelled_image_of_the_split_unknown_stays_ood(row: Any, frame: Any) -> None:
    shared = {"output": "ood", "scorer": "x", "label": None, "known": None}
    rows = [
        row("a", "clean", 0.0, None, score=0.0, split="test", **shared),
        row("b", "clean", 0.0, None, score=1.0, split="unknown", **shared),
    ]
    assert auroc(frame(rows)).select("value", "id", "ood").rows() == [(1.0, 1, 1)]
