"""OOD metrics of boxes against loops over boxes, written apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.metrics.box_sets import random_scene
from tests.metrics.test_at_confidence import overlap, rows_of

from sorites import metrics
from sorites.core.errors import UnknownName
from sorites.core.table import SCHEMA

CONF = 0.3
UNKNOWN = {0}


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    """Forty images under two shifts; class 0 is unknown to the model, which calls such objects otherwise."""
    rows = []
    rng = np.random.default_rng(3)
    for number, shift in enumerate(("clean", "fog")):
        scene = random_scene(number, images=40, ties=False)
        for image in range(40):
            objects, found = rows_of(scene, image)
            for obj in objects:
                obj["known"] = obj["label"] not in UNKNOWN
            for box in found:
                box["label"] = box["label"] or 1
                box["score"] = float(rng.normal() - box["conf"])
            row = dict.fromkeys(SCHEMA) | {
                "run_id": "r",
                "source": "s",
                "sample_id": f"s{image}",
                "image_id": f"{shift}-{image}",
                "shift": shift,
                "severity": float(number),
                "model": "m",
                "probe": False,
                "ground_truth": objects,
                "boxes": found,
            }
            rows += [row | {"output": "boxes"}, row | {"output": "ood", "scorer": "energy", "score": 0.0}]
    return pl.DataFrame(rows, schema=SCHEMA)


def matched(row: dict[str, Any]) -> tuple[list[float], list[float], list[float], list[float | None]]:
    """Return the scores of right and wrong boxes, of boxes on unknown objects, and one per unknown object."""
    boxes = sorted((b for b in row["boxes"] if b["conf"] >= CONF), key=lambda box: -box["conf"])
    objects, taken = row["ground_truth"], set()
    right, rest = [], []
    for box in boxes:
        own = [k for k, obj in enumerate(objects) if obj["label"] == box["label"]]
        free = [
            k for k in own if k not in taken and not objects[k]["crowd"] and overlap(box, objects[k]) >= 0.5
        ]
        if free:
            taken.add(max(free, key=lambda k: (overlap(box, objects[k]), k)))
            right.append(box["score"])
        elif not any(objects[k]["crowd"] and overlap(box, objects[k]) >= 0.5 for k in own):
            rest.append(box)
    wrong = [box["score"] for box in rest]
    unknown = [obj for obj in objects if obj["label"] in UNKNOWN and not obj["crowd"]]
    by: list[float | None] = [None] * len(unknown)
    for box in rest:
        fits = [k for k, obj in enumerate(unknown) if by[k] is None and overlap(box, obj) >= 0.5]
        if fits:
            by[max(fits, key=lambda k: (overlap(box, unknown[k]), k))] = box["score"]
    return right, wrong, [score for score in by if score is not None], by


def pooled(table: pl.DataFrame, shift: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[float | None]]:
    parts = [matched(row) for row in table.filter(output="ood", shift=shift).to_dicts()]
    right, wrong, unknown = (np.array([x for part in parts for x in part[k]]) for k in range(3))
    return right, wrong, unknown, [x for part in parts for x in part[3]]


@pytest.mark.parametrize("shift", ["clean", "fog"])
def test_areas_and_false_positives_equal_a_loop(table: pl.DataFrame, shift: str) -> None:
    right, wrong, unknown, _ = pooled(table, shift)
    assert min(len(right), len(wrong), len(unknown)) > 5
    for framework, ood in (("mistakes", wrong), ("unknown", unknown)):
        area = metrics.box_auroc(table, by=("shift",), framework=framework, conf=CONF).filter(shift=shift)
        row = area.row(0, named=True)
        assert row["value"] == pytest.approx((ood[:, None] > right[None]).mean(), abs=1e-12)
        assert (row["id"], row["ood"], row["missing"]) == (len(right), len(ood), 0)
        assert row["low"] <= row["value"] <= row["high"]
        threshold = np.sort(right)[int(np.ceil(0.95 * len(right))) - 1]
        fpr = metrics.box_fpr95(table, by=("shift",), framework=framework, conf=CONF).filter(shift=shift)
        assert fpr["value"].item() == pytest.approx((ood <= threshold).mean(), abs=1e-12)


@pytest.mark.parametrize("shift", ["clean", "fog"])
def test_recalls_of_unknown_objects_equal_a_loop(table: pl.DataFrame, shift: str) -> None:
    right, _, _, by = pooled(table, shift)
    recall = metrics.unknown_recall(table, by=("model", "shift"), conf=CONF).filter(shift=shift)
    found = sum(score is not None for score in by)
    assert recall.select("value", "n", "found").row(0) == (pytest.approx(found / len(by)), len(by), found)
    threshold = np.sort(right)[int(np.ceil(0.95 * len(right))) - 1]
    flagged = metrics.unknown_flagged(table, by=("shift",), conf=CONF).filter(shift=shift)
    expected = sum(score is not None and score > threshold for score in by)
    assert flagged.select("n", "found").row(0) == (len(by), expected)
    assert len(right) < 75
    assert flagged.select("low", "high").row(0) == (None, None)
    assert recall["low"].item() <= found / len(by) <= recall["high"].item()


def test_the_interval_of_flagged_objects_contains_that_of_the_threshold(table: pl.DataFrame) -> None:
    """With a hundred copies of the samples the threshold has bounds, and the interval is wider than without them."""
    copies = pl.concat(
        [table.with_columns(pl.col("sample_id") + f"-{i}", pl.col("image_id") + f"-{i}") for i in range(100)]
    )
    row = metrics.unknown_flagged(copies, by=("shift",), conf=CONF).row(0, named=True)
    assert row["low"] <= row["value"] <= row["high"]
    bound = 1.96 * (row["value"] * (1 - row["value"]) / row["n"]) ** 0.5
    assert row["high"] - row["low"] > 2 * bound


def test_without_unknown_objects_there_is_no_row(table: pl.DataFrame) -> None:
    ground_truth = pl.col("ground_truth").list.eval(pl.element().struct.with_fields(known=pl.lit(True)))
    known = table.with_columns(ground_truth)
    assert metrics.unknown_recall(known).is_empty()
    assert metrics.box_auroc(known, framework="unknown")["value"].to_list() == [None]


def test_boxes_without_scores_are_missing(table: pl.DataFrame) -> None:
    boxes = pl.col("boxes").list.eval(pl.element().struct.with_fields(score=pl.lit(None, pl.Float64)))
    row = metrics.box_auroc(table.with_columns(boxes)).row(0, named=True)
    assert (row["value"], row["n"]) == (None, 0)
    assert row["missing"] > 0


def test_an_unknown_framework_is_refused(table: pl.DataFrame) -> None:
    with pytest.raises(UnknownName):
        metrics.box_auroc(table, framework="semantic")
