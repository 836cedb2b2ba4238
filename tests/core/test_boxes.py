"""Overlaps of boxes in closed form, and suppression against the plain loop."""

from __future__ import annotations

import numpy as np
import pytest

from sorites.core.boxes import areas, from_centre_size, intersection, iou, nms


def plain(boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray | None, threshold: float) -> list[int]:
    """Keep the best box that is left, drop those of its label that overlap it; the definition."""
    left, kept = np.argsort(-scores, kind="stable").tolist(), []
    while left:
        best = left.pop(0)
        kept.append(best)
        shares = iou(boxes[[best]], boxes[left])[0] if left else ()
        same = [labels is None or labels[i] == labels[best] for i in left]
        left = [i for i, share, s in zip(left, shares, same, strict=True) if not (s and share > threshold)]
    return kept


def scattered(
    seed: int, count: int, spread: float, classes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    corner, side = rng.uniform(-10, spread, (count, 2)), rng.uniform(0, 60, (count, 2))
    return (
        np.concatenate([corner, corner + side], axis=1),
        rng.random(count).round(2),
        rng.integers(0, classes, count),
    )


def test_overlaps_by_hand() -> None:
    a = np.array([[0, 0, 4, 4], [10, 10, 10, 12]])
    b = np.array([[2, 2, 6, 6], [0, 0, 4, 4], [4, 0, 8, 4], [10, 10, 10, 12]])
    assert intersection(a, b).tolist() == [[4, 16, 0, 0], [0, 0, 0, 0]]
    assert iou(a, b).tolist() == [[4 / 28, 1, 0, 0], [0, 0, 0, 0]]
    assert areas(np.array([[0, 0, 4, 5], [3, 3, 1, 1]])).tolist() == [20, 0]
    assert iou(a, np.zeros((0, 4))).shape == (2, 0)
    assert from_centre_size(np.array([[5.0, 6.0, 4.0, 2.0]])).tolist() == [[3, 5, 7, 7]]


def test_suppression_by_hand() -> None:
    boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 5], [50, 50, 60, 60], [0, 0, 10, 10]])
    scores = np.array([0.8, 0.9, 0.7, 0.1, 0.6])
    assert nms(boxes, scores, threshold=0.8).tolist() == [1, 2, 3]
    assert nms(boxes, scores, np.array([0, 0, 0, 0, 1]), 0.8).tolist() == [1, 2, 4, 3]
    assert nms(boxes, scores, np.array([0, 0, 0, 0, 1]), 0.8, most=2).tolist() == [1, 2]
    # an IoU of 5/9 goes, and below one of exactly 0.5 stays
    assert nms(boxes, scores, threshold=0.5).tolist() == [1, 3]
    assert nms(boxes[[0, 2]], scores[[0, 2]], threshold=0.5).tolist() == [0, 1]
    assert nms(np.zeros((0, 4)), np.zeros(0)).tolist() == []


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.7, 0.95])
@pytest.mark.parametrize(
    ("count", "spread", "classes"), [(1, 50, 1), (40, 20, 2), (700, 100, 3), (700, 500, 1), (900, 40, 80)]
)
def test_suppression_is_the_plain_loops(count: int, spread: float, classes: int, threshold: float) -> None:
    """Scores of two digits make ties, whose order must be that of the list."""
    boxes, scores, labels = scattered(count, count, spread, classes)
    assert nms(boxes, scores, labels, threshold).tolist() == plain(boxes, scores, labels, threshold)
    assert nms(boxes, scores, None, threshold).tolist() == plain(boxes, scores, None, threshold)
    assert (
        nms(boxes, scores, labels * 10_000_000, threshold, 20).tolist()
        == plain(boxes, scores, labels, threshold)[:20]
    )


def test_many_pairs_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sorites.core.boxes.MAX_PAIRS", 100)
    boxes, scores, labels = scattered(5, 400, 30, 2)
    assert nms(boxes, scores, labels, 0.6).tolist() == plain(boxes, scores, labels, 0.6)
    same = np.tile(boxes[:1], (3000, 1))
    assert nms(same, np.linspace(0, 1, 3000)).tolist() == [2999]
