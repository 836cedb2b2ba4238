"""Precision, recall, F1 and confusion at a confidence against loops over boxes, written apart."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.metrics.box_sets import random_scene

from sorites import metrics
from sorites.core.boxes import iou
from sorites.core.errors import InvalidOption, UnknownName
from sorites.core.table import SCHEMA

CORNERS = ("x0", "y0", "x1", "y1")
CONF = 0.4


def rows_of(scene: Any, image: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the objects and boxes of an image as the table holds them."""
    objects, found = [], []
    for boxes, rows in ((scene.objects, objects), (scene.found, found)):
        for k in np.flatnonzero(boxes.image == image):
            corners = dict(zip(CORNERS, boxes.xyxy[k].tolist(), strict=True)) | {"label": int(boxes.label[k])}
            more = (
                {"area": float(boxes.area[k]), "crowd": bool(boxes.crowd[k])}
                if boxes is scene.objects
                else {"conf": float(boxes.conf[k])}
            )
            rows.append(corners | more)
    return objects, found


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    """Two shifts of thirty images of random boxes, with crowds and ties."""
    rows = []
    for number, shift in enumerate(("clean", "fog")):
        scene = random_scene(number, images=30)
        for image in range(30):
            objects, found = rows_of(scene, image)
            rows.append(
                dict.fromkeys(SCHEMA)
                | {
                    "run_id": "r",
                    "source": "s",
                    "sample_id": f"s{image}",
                    "image_id": f"{shift}-{image}",
                    "shift": shift,
                    "severity": float(number),
                    "output": "boxes",
                    "model": "m",
                    "probe": False,
                    "ground_truth": objects,
                    "boxes": found,
                }
            )
    return pl.DataFrame(rows, schema=SCHEMA)


def overlap(box: dict[str, Any], obj: dict[str, Any]) -> float:
    """Return IoU, or with a crowd the share of the box inside it."""
    one, two = (np.array([[row[corner] for corner in CORNERS]]) for row in (box, obj))
    if not obj["crowd"]:
        return float(iou(one, two)[0, 0])
    width = min(box["x1"], obj["x1"]) - max(box["x0"], obj["x0"])
    height = min(box["y1"], obj["y1"]) - max(box["y0"], obj["y0"])
    area = (box["x1"] - box["x0"]) * (box["y1"] - box["y0"])
    return max(width, 0) * max(height, 0) / area


def brute(objects: list[dict[str, Any]], found: list[dict[str, Any]], conf: float) -> list[tuple[int, int]]:
    """Return the pairs (class of the object, class of the box); -1 is the background."""
    kept = sorted((box for box in found if box["conf"] >= conf), key=lambda box: -box["conf"])
    taken: set[int] = set()
    pairs, rest = [], []
    for box in kept:
        options = [
            (not obj["crowd"], overlap(box, obj), k)
            for k, obj in enumerate(objects)
            if obj["label"] == box["label"] and k not in taken and overlap(box, obj) >= 0.5
        ]
        if not options:
            rest.append(box)
            continue
        real, _, k = max(options)
        if real:
            taken.add(k)
            pairs.append((box["label"], box["label"]))
    for box in rest:
        options = [
            (True, overlap(box, obj), k)
            for k, obj in enumerate(objects)
            if not obj["crowd"] and k not in taken and overlap(box, obj) >= 0.5
        ]
        if options:
            taken.add(max(options)[2])
            pairs.append((objects[max(options)[2]]["label"], box["label"]))
        else:
            pairs.append((-1, box["label"]))
    missed = [obj["label"] for k, obj in enumerate(objects) if not obj["crowd"] and k not in taken]
    return [*pairs, *((label, -1) for label in missed)]


def test_confusion_equals_a_loop_over_boxes(table: pl.DataFrame) -> None:
    answer = metrics.box_confusion(table, by=("shift",), conf=CONF)
    found = {
        (shift, -1 if label is None else label, -1 if pred is None else pred): count
        for shift, label, pred, count in answer.select("shift", "label", "pred", "count").iter_rows()
    }
    expected: Counter[tuple[str, int, int]] = Counter()
    for shift, objects, boxes in table.select("shift", "ground_truth", "boxes").iter_rows():
        expected.update((shift, *pair) for pair in brute(objects, boxes, CONF))
    assert found == dict(expected)
    assert any(label != pred and min(label, pred) >= 0 for _, label, pred in found), (
        "some classes are confused"
    )
    shares = (
        answer.filter(pl.col("label").is_not_null()).group_by("shift", "label").agg(pl.col("value").sum())
    )
    assert shares["value"].to_list() == pytest.approx([1.0] * shares.height)


def test_precision_recall_and_f1_per_image_and_class_equal_the_loop(table: pl.DataFrame) -> None:
    expected: dict[tuple[str, int], Counter[str]] = {}
    for image, objects, boxes in table.select("image_id", "ground_truth", "boxes").iter_rows():
        for label, pred in brute(objects, boxes, CONF):
            if label == pred:
                expected.setdefault((image, label), Counter())["tp"] += 1
                continue
            for name, outcome in ((pred, "fp"), (label, "fn")):
                if name >= 0:
                    expected.setdefault((image, name), Counter())[outcome] += 1
    by = ("image_id", "class")
    recall, precision, f1 = (
        {(row["image_id"], row["class"]): row for row in metric(table, by=by, conf=CONF).to_dicts()}
        for metric in (metrics.box_recall, metrics.box_precision, metrics.box_f1)
    )
    assert set(f1) == set(expected)
    for key, row in f1.items():
        tp, fp, fn = (expected[key][name] for name in ("tp", "fp", "fn"))
        assert (row["tp"], row["fp"], row["fn"]) == (tp, fp, fn)
        assert row["value"] == pytest.approx(2 * tp / (2 * tp + fp + fn))
        assert (key in recall) == (tp + fn > 0)
        assert key not in recall or recall[key]["value"] == pytest.approx(tp / (tp + fn))
        assert key not in precision or precision[key]["value"] == pytest.approx(tp / (tp + fp))


def test_recall_is_that_of_the_objects_metric_and_sizes_add_up(table: pl.DataFrame) -> None:
    recall = metrics.box_recall(table, by=("shift",), conf=CONF)
    objects = metrics.objects(table, CONF).group_by("shift").agg(pl.col("correct").mean()).sort("shift")
    assert recall["value"].to_list() == pytest.approx(objects["correct"].to_list())
    by_size = [
        metrics.box_recall(table, by=(), conf=CONF, size=size)["n"][0]
        for size in ("small", "medium", "large")
    ]
    assert sum(by_size) == recall["n"].sum()


def test_the_curve_holds_the_values_at_each_confidence(table: pl.DataFrame) -> None:
    curve = metrics.box_curve(table, by=("shift",))
    assert curve.height == 2 * 101
    for conf in (0.0, 0.25, 0.5, 0.9):
        at = curve.filter((pl.col("conf") - conf).abs() < 1e-9).sort("shift")
        for column, metric in (("recall", metrics.box_recall), ("value", metrics.box_f1)):
            expected = metric(table, by=("shift",), conf=conf).sort("shift")["value"].to_list()
            assert at[column].to_list() == pytest.approx(expected)


def test_confidences_and_sizes_are_checked(table: pl.DataFrame) -> None:
    with pytest.raises(InvalidOption, match=r"\[0, 1\]"):
        metrics.box_recall(table, conf=1.5)
    with pytest.raises(UnknownName, match="small"):
        metrics.box_precision(table, size="smal")


def test_confusion_of_a_classifier_equals_counting(world: pl.DataFrame) -> None:
    answer = metrics.confusion(world, by=("model", "shift"))
    judged = world.filter(
        (pl.col("output") == "label")
        & pl.col("correct").is_not_null()
        & pl.col("error").is_null()
        & pl.col("valid").fill_null(True)
        & ~pl.col("probe").fill_null(False)
        & pl.col("pred").is_not_null()
    )
    expected = Counter(judged.select("model", "shift", "label", "pred").iter_rows())
    found = {row[:4]: row[4] for row in answer.select("model", "shift", "label", "pred", "count").iter_rows()}
    assert found == dict(expected)
    assert any(label != pred for _, _, label, pred in found)
    assert answer.group_by("model", "shift", "label").agg(pl.col("value").sum())[
        "value"
    ].to_list() == pytest.approx([1.0] * answer.select("model", "shift", "label").n_unique())


def test_images_without_objects_have_no_recall_and_every_box_is_wrong(table: pl.DataFrame) -> None:
    empty = table.with_columns(ground_truth=pl.lit([], SCHEMA["ground_truth"]))
    recall, precision = metrics.box_recall(empty, conf=0.0), metrics.box_precision(empty, conf=0.0)
    assert recall["value"].null_count() == len(recall)
    assert set(precision["value"].drop_nulls()) == {0.0}
    assert metrics.box_confusion(empty, conf=0.0)["label"].null_count() > 0
    assert metrics.box_curve(empty).is_empty()
    assert metrics.box_survival(empty).is_empty()
