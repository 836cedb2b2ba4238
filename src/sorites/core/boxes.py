"""Box geometry on NumPy arrays: areas, intersection over union, and non-maximum suppression.

A box is a row x0, y0, x1, y1 in pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]

Places = NDArray[np.int64]

# Boxes processed in the first round of non-maximum suppression; every further round takes twice as many.
FIRST_ROUND_BOXES = 16
# Maximum number of horizontal strips into which boxes are binned, so that only nearby boxes are compared.
MAX_STRIPS = 64
# Approximate maximum number of box pairs compared at once; bounds the memory.
MAX_PAIRS = 1 << 20
# Tolerance in px of the search for nearby boxes, far above rounding errors.
SLACK_PX = 1e-6


def areas(boxes: NDArray[Any]) -> Rows:
    """Return the area of each box; boxes with inverted sides have area 0."""
    sides = np.maximum(np.asarray(boxes, np.float64)[..., 2:] - np.asarray(boxes, np.float64)[..., :2], 0)
    return np.asarray(sides[..., 0] * sides[..., 1])


def intersection_areas(first: Sequence[Rows] | Rows, second: Sequence[Rows] | Rows) -> Rows:
    """Return the intersection area of boxes pair by pair.

    Args:
        first: The arrays x0, y0, x1, y1 of the first boxes.
        second: The same of the second boxes; shapes must broadcast.
    """
    width = np.minimum(first[2], second[2]) - np.maximum(first[0], second[0])
    height = np.minimum(first[3], second[3]) - np.maximum(first[1], second[1])
    return np.asarray(np.maximum(width, 0) * np.maximum(height, 0))


def intersection(a: NDArray[Any], b: NDArray[Any]) -> Rows:
    """Return the N x M intersection areas of boxes ``a`` (N x 4) and ``b`` (M x 4)."""
    return intersection_areas(np.asarray(a, np.float64).T[:, :, None], np.asarray(b, np.float64).T[:, None])


def iou(a: NDArray[Any], b: NDArray[Any]) -> Rows:
    """Return the N x M intersection over union of ``a`` (N x 4) and ``b`` (M x 4); 0 if both boxes have no
    area.
    """
    both = intersection(a, b)
    union = areas(a)[:, None] + areas(b)[None] - both
    return np.divide(both, union, out=np.zeros_like(both), where=union > 0)


def from_centre_size(boxes: NDArray[Any]) -> NDArray[Any]:
    """Convert rows of centre x, centre y, width, height to rows of x0, y0, x1, y1."""
    centre, half = boxes[..., :2], boxes[..., 2:4] / 2
    return np.concatenate([centre - half, centre + half], axis=-1)


def nms(
    boxes: NDArray[Any],
    scores: NDArray[Any],
    labels: NDArray[Any] | None = None,
    threshold: float = 0.7,
    most: int | None = None,
) -> NDArray[np.int64]:
    """Run greedy non-maximum suppression.

    A box is removed if its IoU with a kept box of higher score and the same label exceeds ``threshold``. The
    result
    equals that of the plain loop; see ``bench/nms.py`` for timings.

    Args:
        boxes: N x 4, finite.
        scores: N scores.
        labels: N labels; None treats all boxes as one class.
        threshold: Maximum IoU of two kept boxes of one class.
        most: Maximum number of boxes to keep.

    Returns:
        Indices of the kept boxes by decreasing score, ties by index.
    """
    order = _argsort_descending(np.asarray(scores))
    if not len(order):
        return np.zeros(0, np.int64)
    classes = np.zeros(len(order), np.int64) if labels is None else _integer_labels(np.asarray(labels)[order])
    field = _BoxIndex(
        [np.asarray(side, np.float64)[order] for side in np.asarray(boxes).T], classes, threshold
    )
    alive = np.ones(len(order), bool)
    kept_parts: list[Places] = []
    start, size = 0, FIRST_ROUND_BOXES
    while start < len(alive) and (most is None or sum(map(len, kept_parts)) < most):
        head = start + np.flatnonzero(alive[start:])[:size]
        if not len(head):
            break
        head, better, worse = field.overlapping(head, alive)
        start, size = int(head[-1]) + 1, 2 * size
        stays = _resolve(better[worse < start], worse[worse < start], start)
        alive[:start] &= stays
        alive[worse[stays[better]]] = False
        kept_parts.append(head[stays[head]])
    return np.asarray(order[np.concatenate(kept_parts)][:most])


class _BoxIndex:
    """Spatial index over boxes in order of decreasing score: sorted by class, strip and left side.

    An IoU above t requires a shared width above t times each of the two widths w and v. Hence v < w / t, and
    the left
    side of the other box is between x0 - (1 - t) / t w and x0 + (1 - t) w. The same holds for heights and top
    sides.
    """

    def __init__(self, sides: list[Rows], classes: Places, threshold: float) -> None:
        self.x0, self.y0, self.x1, self.y1 = x0, y0, x1, y1 = sides
        self.classes, self.threshold = classes, threshold
        less, more = (1 - threshold) / threshold, 1 - threshold
        wide, tall = np.maximum(x1 - x0, 0), np.maximum(y1 - y0, 0)
        self.area = wide * tall
        left, right, top, bottom = x0.min(), x0.max(), y0.min(), y0.max()
        self.low, self.high = (
            np.maximum(x0 - less * wide, left) - SLACK_PX,
            np.minimum(x0 + more * wide, right) + SLACK_PX,
        )
        per_strip = 1 / max(float(tall.mean()) * more, float(bottom - top) / (MAX_STRIPS - 1), SLACK_PX)
        self.first = (np.maximum(y0 - less * tall - SLACK_PX - top, 0) * per_strip).astype(np.int64)
        self.last = (np.minimum(y0 + more * tall + SLACK_PX - top, bottom - top) * per_strip).astype(np.int64)
        self.span = float(right - left) + 1
        self.place = x0 + self.span * (classes * MAX_STRIPS + ((y0 - top) * per_strip).astype(np.int64))
        self.sorted = np.argsort(self.place)

    def overlapping(self, head: Places, alive: NDArray[np.bool_]) -> tuple[Places, Places, Places]:
        """Return the part of ``head`` that was compared, and the overlapping pairs (better, worse) with the
        better box in that part.
        """
        self.sorted = self.sorted[alive[self.sorted]]
        places = self.place[self.sorted]
        which, strip = _expand_ranges(self.first[head], self.last[head] + 1)
        i = head[which]
        shift = self.span * (self.classes[i] * MAX_STRIPS + strip)
        begin, end = (
            np.searchsorted(places, self.low[i] + shift),
            np.searchsorted(places, self.high[i] + shift),
        )
        total = np.cumsum(np.bincount(which, np.maximum(end - begin, 0)))
        compared = max(int(np.searchsorted(total, MAX_PAIRS)), 1)
        part = which < compared
        which, near = _expand_ranges(begin[part], end[part])
        i, j = i[part][which], self.sorted[near]
        i, j = i[i < j], j[i < j]
        sides = (self.x0, self.y0, self.x1, self.y1)
        both = intersection_areas([side[i] for side in sides], [side[j] for side in sides])
        hit = both > self.threshold * (self.area[i] + self.area[j] - both)
        return head[:compared], i[hit], j[hit]


def _argsort_descending(scores: NDArray[Any]) -> Places:
    """Return the indices of scores in decreasing order, ties by index.

    A stable sort is four times slower, so it is used only if there are ties.
    """
    order = np.argsort(-scores)
    sorted_ = scores[order]
    return np.argsort(-scores, kind="stable") if (sorted_[1:] == sorted_[:-1]).any() else order


def _integer_labels(labels: NDArray[Any]) -> Places:
    """Map labels to small non-negative integers."""
    if labels.dtype.kind in "iu" and int(np.ptp(labels)) < len(labels) + 1000:
        return np.asarray(labels - labels.min(), np.int64)
    return np.asarray(np.unique(labels, return_inverse=True)[1], np.int64)


def _expand_ranges(begin: Places, end: Places) -> tuple[Places, Places]:
    """Return all integers of all ranges ``begin[i]:end[i]``, each with the index i of its range."""
    counts = np.maximum(end - begin, 0)
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts - begin, counts)


def _resolve(better: Places, worse: Places, count: int) -> NDArray[np.bool_]:
    """Return which boxes are kept: those that overlap no better box that is kept.

    Each iteration resolves one more link of every chain of overlapping boxes.
    """
    stays = np.ones(count, bool)
    while True:
        next_stays = np.ones(count, bool)
        next_stays[worse[stays[better]]] = False
        if np.array_equal(next_stays, stays):
            return stays
        stays = next_stays
