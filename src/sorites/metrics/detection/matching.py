"""COCO's matching of predicted boxes to ground-truth boxes, for many images at once.

In each image and class, boxes are processed by descending confidence. Each matches the unmatched
ground-truth box with the highest overlap, if this reaches the threshold. Ignored ground-truth boxes
(crowds, or boxes outside an area range) are matched only where no other is available; a crowd can be
matched many times. Of equal overlaps the later ground-truth box is matched. Results are bit-identical
to pycocotools.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.core.boxes import areas, intersection_areas
from sorites.metrics.detection.scenes import Boxes, Floats, Ints

# The maximum number of boxes that count per image and class.
MAX_BOXES = 100

# Pairs of boxes compared at a time.
PAIRS_PER_BLOCK = 1 << 20

Bools = NDArray[np.bool_]
# The state of a predicted box: unmatched, matched, or matched to an ignored ground-truth box.
FREE, TAKEN, IGNORED = 0, 1, 2


@dataclass(frozen=True)
class Pairs:
    """Predicted and ground-truth boxes of the same group, with their overlap; pairs of one predicted box
    are adjacent.
    """

    found: Ints
    obj: Ints
    iou: Floats


def by_confidence(found: Boxes, *groups: Ints) -> Ints:
    """Return the order of boxes by group, then by descending confidence, then by input order."""
    return np.lexsort((-found.conf, *(short(group) for group in groups[::-1])))


def short(numbers: Ints) -> NDArray[np.integer]:
    """Return integers as 16 bits where they fit, which NumPy sorts much faster."""
    return (
        numbers.astype(np.uint16)
        if len(numbers) and numbers.min() >= 0 and numbers.max() < 1 << 16
        else numbers
    )


def ranks(groups: Ints) -> Ints:
    """Return the index of each element among adjacent equal elements."""
    if not len(groups):
        return groups
    fresh = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
    return np.arange(len(groups)) - np.repeat(fresh, np.diff(fresh, append=len(groups)))


def best(found: Boxes, most: int = MAX_BOXES, per_class: bool = True) -> Boxes:
    """Return the ``most`` most confident boxes of each image (and class), by descending confidence."""
    groups = (found.image, found.label) if per_class else (found.image,)
    ordered = found[by_confidence(found, *groups)]
    return ordered[ranks(group_codes(ordered, ordered, per_class)[0]) < most]


def group_codes(first: Boxes, second: Boxes, per_class: bool = True) -> tuple[Ints, Ints]:
    """Return codes that are equal where two boxes share their image (and class)."""
    if not per_class:
        return first.image, second.image
    labels = np.concatenate([first.label, second.label])
    if not len(labels):
        return first.image, second.image
    smallest, largest = labels.min(), labels.max()
    mine, theirs = (
        boxes.image * (largest - smallest + 1) + (boxes.label - smallest) for boxes in (first, second)
    )
    return mine, theirs


def overlaps(found: Boxes, objects: Boxes, per_class: bool = True) -> Iterator[Pairs]:
    """Yield all pairs of boxes that share their image (and class) in blocks; predicted boxes are sorted by
    group.

    The overlap is intersection over union; with a crowd it is intersection over the area of the
    predicted box.
    """
    mine, theirs = group_codes(found, objects, per_class)
    order = np.argsort(theirs, kind="stable")
    first, last = (np.searchsorted(theirs[order], mine, side) for side in ("left", "right"))
    count = last - first
    ends = np.cumsum(count)
    begin = 0
    while begin < len(found):
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + PAIRS_PER_BLOCK, "right")))
        pair_counts = count[begin:end]
        box = np.repeat(np.arange(begin, end), pair_counts)
        within = np.arange(len(box)) - np.repeat(np.cumsum(pair_counts) - pair_counts, pair_counts)
        obj = order[np.repeat(first[begin:end], pair_counts) + within]
        yield Pairs(box, obj, iou(found.xyxy[box], objects.xyxy[obj], objects.crowd[obj]))
        begin = end


def iou(mine: Floats, theirs: Floats, crowd: Bools | None = None) -> Floats:
    """Return the overlap of boxes pair by pair; boxes without area overlap nothing."""
    intersection, area = intersection_areas(mine.T, theirs.T), areas(mine)
    union = area + areas(theirs) - intersection
    denominator = union if crowd is None else np.where(crowd, area, union)
    overlap: Floats = np.divide(
        intersection, denominator, out=np.zeros_like(intersection), where=denominator > 0
    )
    return overlap


@dataclass(frozen=True)
class Matched:
    """The outcome of predicted boxes that overlap a ground-truth box enough; all others are unmatched.

    Attributes:
        which: The indexes of those boxes, ascending.
        state: FREE, TAKEN or IGNORED (boxes x thresholds x variants of ``ignore``).
        obj: The matched ground-truth box, or -1; same shape as ``state``.
    """

    which: Ints
    state: NDArray[np.int8]
    obj: Ints


def match(found: Boxes, objects: Boxes, thresholds: Sequence[float], ignore: Bools) -> Matched:
    """Match boxes, which must be in the order of ``best``.

    Args:
        found: The predicted boxes.
        objects: The ground-truth boxes.
        thresholds: The minimum overlaps.
        ignore: Which ground-truth boxes are ignored (objects x variants).
    """
    minimum = np.minimum(np.asarray(thresholds, np.float64), 1 - 1e-10)
    near = [_with_overlap(pairs, minimum.min()) for pairs in overlaps(found, objects)]
    whole = Pairs(
        *(
            np.concatenate([getattr(pairs, name) for pairs in near] or [[]])
            for name in ("found", "obj", "iou")
        )
    )
    which, box = np.unique(whole.found.astype(np.int64), return_inverse=True)
    shape = (len(which), len(minimum), ignore.shape[1])
    state, taker = np.zeros(shape, np.int8), np.full(shape, -1, np.int64)
    if not len(which):
        return Matched(which, state, taker)
    turn = ranks(group_codes(found[which], objects)[0])[box]
    order = np.lexsort((whole.obj, whole.iou, box, turn))
    box, obj, overlap = box[order], whole.obj.astype(np.int64)[order], whole.iou[order]
    free = np.ones((len(objects), *shape[1:]), bool)
    edges = np.searchsorted(turn[order], np.arange(turn.max() + 2))
    # Each turn processes the boxes of one confidence rank of all groups at once.
    for start, stop in itertools.pairwise(edges.tolist()):
        boxes, candidates = box[start:stop], obj[start:stop]
        allowed = free[candidates] & (overlap[start:stop, None, None] >= minimum[:, None])
        number = np.arange(stop - start)[:, None, None]
        # Later candidates have higher overlaps; adding the number of candidates prefers boxes not ignored.
        priority = np.where(allowed, number + (stop - start) * ~ignore[candidates][:, None, :], -1)
        firsts = np.flatnonzero(np.diff(boxes, prepend=-1))
        best_priority = np.maximum.reduceat(priority, firsts, axis=0)
        taken = np.where(best_priority >= 0, candidates[best_priority % (stop - start)], -1)
        group, threshold, variant = np.nonzero(best_priority >= 0)
        chosen = taken[group, threshold, variant]
        free[chosen, threshold, variant] = objects.crowd[chosen]
        state[boxes[firsts]] = np.where(
            best_priority < 0, FREE, np.where(best_priority < stop - start, IGNORED, TAKEN)
        )
        taker[boxes[firsts]] = taken
    return Matched(which, state, taker)


def _with_overlap(pairs: Pairs, minimum: float) -> Pairs:
    keep = pairs.iou >= minimum
    return Pairs(pairs.found[keep], pairs.obj[keep], pairs.iou[keep])
