"""Failure severities of objects, and intervals that account for objects of one image."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.metrics.test_box_map import box

from sorites import metrics
from sorites.core.errors import SoritesError
from sorites.metrics.intervals import share


def trail(
    row: Any, sample: str, found: dict[float, list[Any]], ground_truth: list[Any], **more: Any
) -> list[dict[str, Any]]:
    """A sample at several severities; 0 is clean."""
    return [
        row(
            sample,
            "blur" if at else "clean",
            at,
            None,
            output="boxes",
            conf=None,
            ground_truth=ground_truth,
            boxes=boxes,
            **more,
        )
        for at, boxes in found.items()
    ]


def test_each_object_has_a_failure_severity_of_its_own(row: Any, frame: Any) -> None:
    ground_truth = [box(0), box(100, 1, size=120), box(300, crowd=True), box(400, 2)]
    one, two = box(0, conf=0.9), box(100, 1, conf=0.3, size=120)
    found = {0.0: [one, two], 1.0: [one, two], 2.0: [two, box(0, 1, conf=0.9)], 3.0: [one]}
    table = frame(trail(row, "a", found, ground_truth))
    seen = metrics.objects(table)
    assert seen["sample_id"].unique().sort().to_list() == ["a#0", "a#1", "a#3"]
    points = metrics.box_failure_severity(table, by=("shift", "class", "size"))
    assert points.select("class", "size", "value", "n").rows() == [
        (0, "medium", 2.0, 1),
        (1, "large", 3.0, 1),
        (2, "medium", 0.0, 1),
    ]
    sure = metrics.box_failure_severity(table, by=("shift", "class"), conf=0.5)
    assert sure["value"].to_list() == [2.0, 0.0, 0.0]


@pytest.mark.slow
def test_probes_are_read_here_only(world: pl.DataFrame) -> None:
    bare = world.filter(~pl.col("probe"))
    for ask in (metrics.map, metrics.map_drop, metrics.tide, metrics.mean_map):
        assert ask(world, resamples=10).equals(ask(bare, resamples=10)), ask
    assert not metrics.box_survival(world).equals(metrics.box_survival(bare))


def test_with_one_object_per_image_it_is_the_failure_of_images(row: Any, frame: Any) -> None:
    rng = np.random.default_rng(1)
    rows, labels = [], []
    for k in range(60):
        hits = {at: bool(rng.random() < 1 / (1 + at)) for at in (0.0, 1.0, 2.0, 3.0)}
        rows += trail(
            row, f"s{k}", {at: [box(0, conf=0.9)] if hit else [] for at, hit in hits.items()}, [box(0)]
        )
        labels += [row(f"s{k}", "blur" if at else "clean", at, hit) for at, hit in hits.items()]
    boxes, images = frame(rows), frame(labels)
    for mine, theirs in (
        (metrics.box_survival, metrics.survival),
        (metrics.box_failure_histogram, metrics.failure_histogram),
        (metrics.box_failure_severity, metrics.failure_severity),
    ):
        one, two = mine(boxes), theirs(images)
        assert one.drop("low", "high").equals(two.drop("low", "high"))
        for bound in ("low", "high"):
            np.testing.assert_allclose(one[bound].cast(pl.Float64), two[bound].cast(pl.Float64), atol=0.02)


def test_objects_that_are_lost_together_count_as_one(row: Any, frame: Any) -> None:
    def table(copies: int) -> pl.DataFrame:
        rows = []
        for k in range(40):
            ground_truth = [box(100 * i) for i in range(copies)]
            seen = [box(100 * i, conf=0.9) for i in range(copies)]
            rows += trail(row, f"s{k}", {0.0: seen, 1.0: seen if k % 2 else []}, ground_truth)
        built: pl.DataFrame = frame(rows)
        return built

    one, five = (metrics.box_survival(table(copies)).filter(severity=1.0) for copies in (1, 5))
    assert five["n"].item() == 5 * one["n"].item()
    assert five["low"].item() == pytest.approx(one["low"].item(), abs=0.01)


def test_images_count_where_no_object_is_lost(row: Any, frame: Any) -> None:
    seen = [box(100 * i, conf=0.9) for i in range(4)]
    ground_truth = [box(100 * i) for i in range(4)]
    rows = [one for k in range(50) for one in trail(row, f"s{k}", {0.0: seen, 1.0: seen}, ground_truth)]
    found = metrics.box_survival(frame(rows)).filter(severity=1.0)
    assert (found["value"].item(), found["n"].item()) == (1.0, 200)
    assert found["low"].item() == pytest.approx(share(1.0, 50)[0])


def test_independent_objects_count_each(row: Any, frame: Any) -> None:
    rng = np.random.default_rng(0)
    ground_truth = [box(100 * i) for i in range(4)]
    rows = []
    for k in range(200):
        seen = [box(100 * i, conf=0.9) for i in range(4)]
        left = [one for one in seen if rng.random() < 0.5]
        rows += trail(row, f"s{k}", {0.0: seen, 1.0: left}, ground_truth)
    found = metrics.box_survival(frame(rows)).filter(severity=1.0).row(0, named=True)
    low, high = share(found["value"], 800)
    assert low is not None
    assert high is not None
    assert found["high"] - found["low"] == pytest.approx(high - low, rel=0.1)


@pytest.mark.parametrize("conf", [2.0, -0.1, float("nan")])
def test_a_confidence_outside_0_to_1_is_refused(world: pl.DataFrame, conf: float) -> None:
    for ask in (metrics.box_survival, metrics.box_failure_severity, metrics.box_failure_histogram):
        with pytest.raises(SoritesError, match="conf"):
            ask(world, conf=conf)
