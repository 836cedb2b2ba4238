"""Geometry of boxes on NumPy arrays: how much two overlap, and which of many stand for the same object.

A box is a row x0, y0, x1, y1 in pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]

Places = NDArray[np.int64]

# The number of boxes that the first round of a suppression settles; each further round takes twice
# as many.
HEAD = 16
# The most strips of the image into which boxes are sorted, so that only near ones are compared.
STRIPS = 64
# About the most pairs of boxes that are compared at once: what bounds the memory.
PAIRS = 1 << 20
# In px: what the search for near boxes adds, far above rounding errors.
SLACK = 1e-6


def areas(boxes: NDArray[Any]) -> Rows:
    """Return the area of each box; one whose sides are the wrong way round has none."""
    sides = np.maximum(np.asarray(boxes, np.float64)[..., 2:] - np.asarray(boxes, np.float64)[..., :2], 0)
    return np.asarray(sides[..., 0] * sides[..., 1])


def shared(one: Sequence[Rows] | Rows, other: Sequence[Rows] | Rows) -> Rows:
    """Return the area that boxes share pair by pair; each side of the pairs is given as the four
    arrays x0, y0, x1, y1.
    """
    wide = np.minimum(one[2], other[2]) - np.maximum(one[0], other[0])
    tall = np.minimum(one[3], other[3]) - np.maximum(one[1], other[1])
    return np.asarray(np.maximum(wide, 0) * np.maximum(tall, 0))


def intersection(a: NDArray[Any], b: NDArray[Any]) -> Rows:
    """Return the area that each of the boxes ``a`` (N x 4) shares with each of ``b`` (M x 4), as N x M."""
    return shared(np.asarray(a, np.float64).T[:, :, None], np.asarray(b, np.float64).T[:, None])


def iou(a: NDArray[Any], b: NDArray[Any]) -> Rows:
    """Return the intersection over union of each of ``a`` (N x 4) with each of ``b`` (M x 4); two
    boxes without area have 0.
    """
    both = intersection(a, b)
    union = areas(a)[:, None] + areas(b)[None] - both
    return np.divide(both, union, out=np.zeros_like(both), where=union > 0)


def centred(boxes: NDArray[Any]) -> NDArray[Any]:
    """Return rows of centre x, centre y, width, height as rows of x0, y0, x1, y1."""
    centre, half = boxes[..., :2], boxes[..., 2:4] / 2
    return np.concatenate([centre - half, centre + half], axis=-1)


def nms(
    boxes: NDArray[Any],
    scores: NDArray[Any],
    labels: NDArray[Any] | None = None,
    threshold: float = 0.7,
    most: int | None = None,
) -> NDArray[np.int64]:
    """Return the places of the boxes that greedy non-maximum suppression keeps, by falling score,
    then by place.

    A box goes if a kept one of a higher score and the same label has an IoU with it above
    ``threshold``. At most ``most`` are kept. Boxes must be finite. The result is that of the plain
    loop; see ``bench/nms.py`` for the time.
    """
    order = _falling(np.asarray(scores))
    if not len(order):
        return np.zeros(0, np.int64)
    classes = np.zeros(len(order), np.int64) if labels is None else _numbered(np.asarray(labels)[order])
    field = _Field([np.asarray(side, np.float64)[order] for side in np.asarray(boxes).T], classes, threshold)
    alive = np.ones(len(order), bool)
    kept: list[Places] = []
    start, size = 0, HEAD
    while start < len(alive) and (most is None or sum(map(len, kept)) < most):
        head = start + np.flatnonzero(alive[start:])[:size]
        if not len(head):
            break
        head, better, worse = field.overlapping(head, alive)
        start, size = int(head[-1]) + 1, 2 * size
        stays = _settled(better[worse < start], worse[worse < start], start)
        alive[:start] &= stays
        alive[worse[stays[better]]] = False
        kept.append(head[stays[head]])
    return np.asarray(order[np.concatenate(kept)][:most])


class _Field:
    """Boxes by falling score that are sorted by class, strip of the image and left side, to find
    those that may overlap.

    An IoU above t needs a shared width above t times each of both widths w and v. So v < w / t, and
    the left side of the other box lies between x0 - (1 - t) / t w and x0 + (1 - t) w; heights and
    upper sides likewise.
    """

    def __init__(self, sides: list[Rows], classes: Places, threshold: float) -> None:
        self.x0, self.y0, self.x1, self.y1 = x0, y0, x1, y1 = sides
        self.classes, self.threshold = classes, threshold
        less, more = (1 - threshold) / threshold, 1 - threshold
        wide, tall = np.maximum(x1 - x0, 0), np.maximum(y1 - y0, 0)
        self.area = wide * tall
        left, right, top, bottom = x0.min(), x0.max(), y0.min(), y0.max()
        self.low, self.high = (
            np.maximum(x0 - less * wide, left) - SLACK,
            np.minimum(x0 + more * wide, right) + SLACK,
        )
        per_strip = 1 / max(float(tall.mean()) * more, float(bottom - top) / (STRIPS - 1), SLACK)
        self.first = (np.maximum(y0 - less * tall - SLACK - top, 0) * per_strip).astype(np.int64)
        self.last = (np.minimum(y0 + more * tall + SLACK - top, bottom - top) * per_strip).astype(np.int64)
        self.span = float(right - left) + 1
        self.place = x0 + self.span * (classes * STRIPS + ((y0 - top) * per_strip).astype(np.int64))
        self.sorted = np.argsort(self.place)

    def overlapping(self, head: Places, alive: NDArray[np.bool_]) -> tuple[Places, Places, Places]:
        """Return as much of ``head`` as is compared at once, and the pairs (better, worse) that
        overlap, the better in it.
        """
        self.sorted = self.sorted[alive[self.sorted]]
        places = self.place[self.sorted]
        which, strip = _counted(self.first[head], self.last[head] + 1)
        i = head[which]
        shift = self.span * (self.classes[i] * STRIPS + strip)
        begin, end = (
            np.searchsorted(places, self.low[i] + shift),
            np.searchsorted(places, self.high[i] + shift),
        )
        total = np.cumsum(np.bincount(which, np.maximum(end - begin, 0)))
        compared = max(int(np.searchsorted(total, PAIRS)), 1)
        part = which < compared
        which, near = _counted(begin[part], end[part])
        i, j = i[part][which], self.sorted[near]
        i, j = i[i < j], j[i < j]
        sides = (self.x0, self.y0, self.x1, self.y1)
        both = shared([side[i] for side in sides], [side[j] for side in sides])
        hit = both > self.threshold * (self.area[i] + self.area[j] - both)
        return head[:compared], i[hit], j[hit]


def _falling(scores: NDArray[Any]) -> Places:
    """Return the places of scores from the highest down, of equal ones the first first; a stable
    sort takes four times longer.
    """
    order = np.argsort(-scores)
    sorted_ = scores[order]
    return np.argsort(-scores, kind="stable") if (sorted_[1:] == sorted_[:-1]).any() else order


def _numbered(labels: NDArray[Any]) -> Places:
    """Return small whole numbers that tell labels apart."""
    if labels.dtype.kind in "iu" and int(np.ptp(labels)) < len(labels) + 1000:
        return np.asarray(labels - labels.min(), np.int64)
    return np.asarray(np.unique(labels, return_inverse=True)[1], np.int64)


def _counted(begin: Places, end: Places) -> tuple[Places, Places]:
    """Return all whole numbers of all ranges, each with the place of its range."""
    counts = np.maximum(end - begin, 0)
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts - begin, counts)


def _settled(better: Places, worse: Places, count: int) -> NDArray[np.bool_]:
    """Return which boxes stay: those that overlap no better box that stays.

    Each round settles one more link of every chain.
    """
    stays = np.ones(count, bool)
    while True:
        now = np.ones(count, bool)
        now[worse[stays[better]]] = False
        if np.array_equal(now, stays):
            return stays
        stays = now
