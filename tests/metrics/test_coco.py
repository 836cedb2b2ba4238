"""COCO's twelve numbers against pycocotools and hotcoco, and resampled values against resampled scenes."""

from __future__ import annotations

import itertools
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
    counts = np.concatenate([box_sets.draws(25, 8), coco.half_samples({"s": 25}, 4)], axis=1)
    again = [twelve(box_sets.resampled(scene, counts[:, k])) for k in range(12)]
    classes = coco.by_class(scene)
    for place, name in enumerate(coco.NUMBERS):
        mine = coco.over_classes(coco.resampled_values(classes, name, counts))
        np.testing.assert_allclose(
            np.nan_to_num(mine, nan=-1), [one[place] for one in again], rtol=0, atol=2e-6
        )


def test_halves_are_complementary_in_each_source() -> None:
    counts = coco.half_samples({"a": 7, None: 1, "b": 4}, 5)
    assert counts[:7].sum(axis=0).tolist() == [4, 3, 4, 3, 4]
    assert counts[7].tolist() == [1] * 5
    assert counts[8:].sum(axis=0).tolist() == [2] * 5
    assert (counts[:7, 0] + counts[:7, 1] == 1).all()
    assert not (counts[:7, 0] == counts[:7, 2]).all()
    assert (coco.half_samples({"c": 3, "a": 7}, 5)[3:] == counts[:7]).all()


def test_halves_of_a_mean_give_its_interval() -> None:
    """For a mean, the spread over all halves is the usual standard error, and the bias is 0."""
    x = np.random.default_rng(1).normal(size=10)
    halves = [x[list(rows)].mean() for rows in itertools.combinations(range(10), 5)]
    found = coco.interval(np.array(halves), float(x.mean()), 10)
    usual = stats.t.interval(0.95, 9, x.mean(), stats.sem(x))
    assert found == pytest.approx(usual, abs=1e-12)


def test_an_interval_extrapolates_the_bias_of_halves() -> None:
    """A number whose bias falls with n^-rate is biased on a half by 2^rate - 1 of its bias more."""
    slow, fast = (2**rate - 1 for rate in coco.bias_rates(100))
    assert (slow, fast) == (pytest.approx(2 ** (0.5 - 1 / 30) - 1), 1)
    spread = np.array([-0.02, 0.02, -0.02, 0.02])
    half = stats.t.ppf(0.975, 99) * 0.02
    low, high = coco.interval(0.55 + spread, 0.5, 100)
    assert low == pytest.approx(0.5 - 0.05 / slow - half)
    assert high == pytest.approx(0.5)
    low, high = coco.interval(0.49 + spread, 0.5, 100)
    assert (low, high) == (pytest.approx(0.51 - half), pytest.approx(0.5 + 0.01 / slow + half))


def test_an_interval_needs_objects_in_two_samples() -> None:
    assert coco.interval(np.array([0.5, np.nan, 0.5, np.nan]), 0.5, 30) == (None, None)
    assert coco.interval(np.ones(4), 1.0, 1) == (None, None)
    assert coco.interval(np.full(3, np.nan), 0.5, 3) == (None, None)
    assert coco.interval(np.ones(3), float("nan"), 3) == (None, None)


def test_a_class_without_objects_in_a_half_does_not_hide_its_bias() -> None:
    draws = np.array([[0.5, 0.5, 0.5, 0.5], [0.9, np.nan, 0.9, np.nan]])
    means = coco.resampled_means(draws)
    assert means.mean() == pytest.approx(0.7)
    assert means - means.mean() == pytest.approx(np.array([0.1, -0.1, 0.1, -0.1]))
    assert coco.resampled_means(draws[:1]).tolist() == [0.5] * 4
