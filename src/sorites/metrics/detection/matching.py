"""COCO's matching of found boxes to true ones, for many images at once.

In each image and class the boxes are taken by falling confidence; each takes the free ground-truth box
that it overlaps most, if by the threshold at least. A ground-truth box that is ignored (a crowd, or one
outside a range of areas) is taken only where no other is; a crowd may be taken by many. Of equal
overlaps the later ground-truth box is taken. These are the rules of pycocotools, to the last bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.core.boxes import areas, shared
from sorites.metrics.detection.scenes import Boxes, Floats, Ints

# The most boxes that count per image and class.
MOST = 100

# This many pairs of boxes are compared at a time.
PAIRS = 1 << 20

Bools = NDArray[np.bool_]
# The fate of a found box: no match, a match, or a match with a ground-truth box that is ignored.
FREE, TAKEN, IGNORED = 0, 1, 2


@dataclass(frozen=True)
class Pairs:
    """Hold found and ground-truth boxes that share a group, with their overlap; pairs of one found box
    stand together.
    """

    found: Ints
    obj: Ints
    iou: Floats


def by_confidence(found: Boxes, *groups: Ints) -> Ints:
    """Return the order of boxes by group, then by falling confidence, then as they came."""
    return np.lexsort((-found.conf, *(short(group) for group in groups[::-1])))


def short(numbers: Ints) -> NDArray[np.integer]:
    """Return whole numbers in sixteen bits where they fit: NumPy sorts those much faster."""
    return (
        numbers.astype(np.uint16)
        if len(numbers) and numbers.min() >= 0 and numbers.max() < 1 << 16
        else numbers
    )


def ranks(groups: Ints) -> Ints:
    """Return the place of each element among the equal ones, which stand together."""
    if not len(groups):
        return groups
    fresh = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
    return np.arange(len(groups)) - np.repeat(fresh, np.diff(fresh, append=len(groups)))


def best(found: Boxes, most: int = MOST, per_class: bool = True) -> Boxes:
    """Return the boxes by image (and class) and falling confidence, the best ``most`` of each."""
    groups = (found.image, found.label) if per_class else (found.image,)
    ordered = found[by_confidence(found, *groups)]
    return ordered[ranks(group_codes(ordered, ordered, per_class)[0]) < most]


def group_codes(one: Boxes, other: Boxes, per_class: bool = True) -> tuple[Ints, Ints]:
    """Return numbers that are equal where two boxes share their image (and class)."""
    if not per_class:
        return one.image, other.image
    labels = np.concatenate([one.label, other.label])
    if not len(labels):
        return one.image, other.image
    least, most = labels.min(), labels.max()
    mine, theirs = (boxes.image * (most - least + 1) + (boxes.label - least) for boxes in (one, other))
    return mine, theirs


def overlaps(found: Boxes, objects: Boxes, per_class: bool = True) -> Iterator[Pairs]:
    """Yield all pairs of boxes that share their image (and class), some at a time; found boxes
    stand by group.

    The overlap is intersection over union, and with a crowd intersection over the found box's own area.
    """
    mine, theirs = group_codes(found, objects, per_class)
    order = np.argsort(theirs, kind="stable")
    first, last = (np.searchsorted(theirs[order], mine, side) for side in ("left", "right"))
    count = last - first
    ends = np.cumsum(count)
    begin = 0
    while begin < len(found):
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + PAIRS, "right")))
        many = count[begin:end]
        who = np.repeat(np.arange(begin, end), many)
        within = np.arange(len(who)) - np.repeat(np.cumsum(many) - many, many)
        whom = order[np.repeat(first[begin:end], many) + within]
        yield Pairs(who, whom, iou(found.xyxy[who], objects.xyxy[whom], objects.crowd[whom]))
        begin = end


def iou(mine: Floats, theirs: Floats, crowd: Bools | None = None) -> Floats:
    """Return the overlap of boxes pair by pair; boxes without a size overlap nothing."""
    both, area = shared(mine.T, theirs.T), areas(mine)
    union = area + areas(theirs) - both
    whole = union if crowd is None else np.where(crowd, area, union)
    overlap: Floats = np.divide(both, whole, out=np.zeros_like(both), where=whole > 0)
    return overlap


@dataclass(frozen=True)
class Matched:
    """Say what becomes of the found boxes that overlap a true one enough; all others are free."""

    which: Ints
    """The places of those boxes, ascending."""
    state: NDArray[np.int8]
    """boxes x thresholds x ways of ignoring: FREE, TAKEN or IGNORED."""
    obj: Ints
    """The place of the ground-truth box that each took, -1 where none; shaped as ``state``."""


def match(found: Boxes, objects: Boxes, thresholds: Sequence[float], ignore: Bools) -> Matched:
    """Match boxes that ``best`` ordered; ``ignore`` (objects x ways) says which ground-truth boxes are
    ignored in each way.
    """
    least = np.minimum(np.asarray(thresholds, np.float64), 1 - 1e-10)
    near = [_near(pairs, least.min()) for pairs in overlaps(found, objects)]
    whole = Pairs(
        *(
            np.concatenate([getattr(pairs, name) for pairs in near] or [[]])
            for name in ("found", "obj", "iou")
        )
    )
    which, who = np.unique(whole.found.astype(np.int64), return_inverse=True)
    shape = (len(which), len(least), ignore.shape[1])
    state, taker = np.zeros(shape, np.int8), np.full(shape, -1, np.int64)
    if not len(which):
        return Matched(which, state, taker)
    turn = ranks(group_codes(found[which], objects)[0])[who]
    order = np.lexsort((whole.obj, whole.iou, who, turn))
    who, obj, overlap = who[order], whole.obj.astype(np.int64)[order], whole.iou[order]
    free = np.ones((len(objects), *shape[1:]), bool)
    edges = np.searchsorted(turn[order], np.arange(turn.max() + 2))
    for start, stop in itertools.pairwise(edges.tolist()):
        here, what = who[start:stop], obj[start:stop]
        open_ = free[what] & (overlap[start:stop, None, None] >= least[:, None])
        number = np.arange(stop - start)[:, None, None]
        wish = np.where(open_, number + (stop - start) * ~ignore[what][:, None, :], -1)
        firsts = np.flatnonzero(np.diff(here, prepend=-1))
        won = np.maximum.reduceat(wish, firsts, axis=0)
        taken = np.where(won >= 0, what[won % (stop - start)], -1)
        one, threshold, way = np.nonzero(won >= 0)
        chosen = taken[one, threshold, way]
        free[chosen, threshold, way] = objects.crowd[chosen]
        state[here[firsts]] = np.where(won < 0, FREE, np.where(won < stop - start, IGNORED, TAKEN))
        taker[here[firsts]] = taken
    return Matched(which, state, taker)


def _near(pairs: Pairs, least: float) -> Pairs:
    keep = pairs.iou >= least
    return Pairs(pairs.found[keep], pairs.obj[keep], pairs.iou[keep])
