"""COCO's twelve numbers against pycocotools and hotcoco, and resampled values against resampled scenes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.metrics import box_sets

from sorites.metrics.detection import coco


def twelve(scene: Any) -> np.ndarray:
    classes = coco.by_class(scene)
    found = [coco.over_classes(coco.values(classes, name)) if classes else np.nan for name in coco.NUMBERS]
    return np.nan_to_num(np.array(found, np.float64), nan=-1.0)


@pytest.mark.parametrize("seed", range(24))
def test_the_twelve_numbers_are_pycocotools(seed: int) -> None:
    pytest.importorskip("pycocotools")
    scene = box_sets.random_scene(seed, classes=1 + seed % 5, crowds=0.15 * (seed % 3), ties=seed % 2 == 0)
    np.testing.assert_allclose(twelve(scene), box_sets.by_pycocotools(scene), rtol=0, atol=1e-9)


def test_the_twelve_numbers_are_hotcocos() -> None:
    pytest.importorskip("hotcoco")
    scene = box_sets.random_scene(99, images=60, classes=7)
    np.testing.assert_allclose(twelve(scene), box_sets.by_hotcoco(scene).stats, rtol=0, atol=1e-9)


def test_only_the_best_hundred_boxes_per_image_and_class_count() -> None:
    pytest.importorskip("pycocotools")
    obj = [0, 0, 10, 10, 50, 50, 0]
    found = [[0, 0, 200, 200, 220, 220, 0.9 - k / 1000] for k in range(100)] + [[0, 0, 10, 10, 50, 50, 0.1]]
    scene = box_sets.scene_of([obj], found, 1)
    np.testing.assert_allclose(twelve(scene), box_sets.by_pycocotools(scene), rtol=0, atol=1e-9)
    assert twelve(scene)[0] == 0


def test_pairs_in_pieces_are_pairs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = box_sets.random_scene(5)
    whole = twelve(scene)
    monkeypatch.setattr("sorites.metrics.detection.matching.PAIRS_PER_BLOCK", 3)
    assert twelve(scene).tolist() == whole.tolist()


@pytest.mark.parametrize("cells", [1 << 23, 700])
def test_resamples_are_the_numbers_of_scenes_drawn_again(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    """The recalls are exact hundredths on both sides, since COCO's are off by a rounding that one
    more match would show.
    """
    monkeypatch.setattr(coco, "VALUES_PER_BLOCK", cells)
    monkeypatch.setattr(coco, "VALUES_IN_CACHE", cells)
    monkeypatch.setattr(coco, "RECALLS", np.linspace(0, 1, 101) - 1e-9)
    scene = box_sets.random_scene(1, images=25, ties=False)
    counts = coco.drawn({"s": 25}, 12)
    assert counts.sum(axis=0).tolist() == [25] * 12
    again = [twelve(box_sets.resampled(scene, counts[:, k])) for k in range(12)]
    classes = coco.by_class(scene)
    for place, name in enumerate(coco.NUMBERS):
        mine = coco.over_classes(coco.resampled_values(classes, name, counts))
        np.testing.assert_allclose(
            np.nan_to_num(mine, nan=-1), [one[place] for one in again], rtol=0, atol=2e-6
        )


def test_an_interval_has_the_spread_of_the_resamples_around_the_value() -> None:
    low, high = coco.interval(np.linspace(0.5, 0.7, 1001), 0.55, 10**6)
    assert (low, high) == (pytest.approx(0.455), pytest.approx(0.645))
    few = coco.interval(np.linspace(0.5, 0.7, 1001), 0.55, 20)
    # Student's t with 19 degrees of freedom and the factor sqrt(20 / 19), as a percentile of a normal variable.
    share = stats.norm.cdf(stats.t.ppf(0.975, 19) * np.sqrt(20 / 19))
    assert few == pytest.approx((0.55 + 0.2 * (0.5 - share), 0.55 + 0.2 * (share - 0.5)), abs=1e-8)
    assert coco.interval(np.full(3, np.nan), 0.5, 3) == (None, None)
    assert coco.interval(np.ones(3), float("nan"), 3) == (None, None)
