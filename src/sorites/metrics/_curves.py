"""Average precision for many resamples of the pictures at once.

A resample changes how often each picture counts and no match, so that it is a matter of weighted sums: of matches, and of the
boxes before each. Sums are made of some rows at a time, which stay in the cache. All of them are sums of whole numbers, so that
no order changes them. Threads would not help: the steps are too short.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.metrics import _precision
from sorites.metrics._parts import Bench, Singles
from sorites.metrics._precision import Events
from sorites.metrics._scenes import Ints

NEAR = 1 << 17
"""This many numbers of each kind are summed at a time, so that they stay in the cache."""

GROUP = 8
"""Rows are summed in groups of this many: one row of all groups at a time, then group after group."""

LEAST = np.float32(0.5)
"""Stands for no box at all where one divides by their number: no box is a match there either."""


@dataclass(frozen=True)
class Curve:
    """Events of one variant, and those of them at which precision can be greatest.

    A match raises precision unless a box that counts as wrong stands between it and the match before it. So of matches that
    follow each other only the last matters, and the recalls that the others reach have its precision.
    """

    events: Events
    tops: Ints
    places: Ints
    """The place of each top among the cuts of its class."""


class Curves:
    """All variants of one class, which share their list of boxes and their true ones, ready to be resampled."""

    def __init__(self, listed: Ints, variants: Sequence[Events], truths: Ints) -> None:
        self.truths, tops = truths, [_tops(variant) for variant in variants]
        at = [variant.at[top] for variant, top in zip(variants, tops, strict=True)]
        self.cuts = np.unique(np.concatenate([*at, np.zeros(0, np.int64)]))
        self.listed = listed[: int(self.cuts[-1]) if len(self.cuts) else 0]
        self.rows = np.concatenate([[0], self.cuts])
        """The boxes between one cut and the next."""
        each = zip(variants, tops, at, strict=True)
        self.variants = [Curve(events, top, np.searchsorted(self.cuts, where)) for events, top, where in each]

    @property
    def longest(self) -> int:
        """The most rows that are held at a time."""
        return max(len(self.truths), len(self.cuts))

    def resampled(self, weights: Singles, bench: Bench) -> list[Singles]:
        """Return the average precision of each variant for each resample, NaN where a resample holds no truth."""
        total = weights.take(self.truths, axis=0, out=bench("own", len(self.truths), weights.shape[1]), mode="clip").sum(axis=0)
        before = self._before(weights)
        areas = [_area(curve, before, total, weights, bench) for curve in self.variants]
        return [np.where(total > 0, area / np.float32(len(_precision.RECALLS)), np.float32(np.nan)) for area in areas]

    def _before(self, weights: Singles) -> Singles:
        """Return the weights of the boxes up to each cut."""
        from scipy.sparse import csr_array

        shape = len(self.cuts), len(weights)
        shares = csr_array((np.ones(len(self.listed), np.float32), self.listed, self.rows), shape=shape)
        sums: Singles = shares @ weights
        for last, row in itertools.pairwise(sums):
            row += last
        return np.maximum(sums, LEAST, out=sums)


def _tops(events: Events) -> Ints:
    wrong = np.diff(events.at) + events.more[1:] - events.hit[1:]
    return np.flatnonzero(np.append(wrong != 0, True)) if len(events.at) else events.at


def _area(curve: Curve, before: Singles, total: Singles, weights: Singles, bench: Bench) -> Singles:
    """Return the sum over recalls of the greatest precision at that recall or a greater one."""
    wide, height = weights.shape[1], -(-len(curve.tops) // GROUP) * GROUP
    rows = max(GROUP, NEAR // wide // GROUP * GROUP)
    precision, steps = bench("precision", height, wide), bench("steps", height, wide)
    _climb(curve, before, np.maximum(total, 1), weights, bench, rows, precision, steps)
    area, best = np.zeros((2, wide), np.float32)
    for start in reversed(range(0, height, rows)):
        here = precision[start : start + rows]
        _accumulate(np.maximum, _groups(here)[::-1, ::-1], best, bench)
        best[:] = here[0]
        area += np.einsum("kb,kb->b", steps[start : start + rows], here)
    return area


def _climb(
    curve: Curve, before: Singles, total: Singles, weights: Singles, bench: Bench, rows: int, precision: Singles, steps: Singles
) -> None:
    """Fill in the precision at each top, and how many of the recalls are reached there first."""
    events, more = curve.events, bool(curve.events.more.any())
    hits, extra, last = np.zeros((3, weights.shape[1]), np.float32)
    last -= 1
    first = 0
    for start in range(0, len(curve.tops), rows):
        tops, places = curve.tops[start : start + rows], curve.places[start : start + rows]
        order = _woven(len(tops))[0]
        here, span = slice(start, start + len(order)), slice(first, int(tops[-1]) + 1)
        where = _woven(span.stop - first)[1][tops[order] - first]
        seen = before.take(places[order], axis=0, out=precision[here], mode="clip")
        if more:
            np.floor(seen, out=seen)
            seen += _running(weights, events.sample[span], events.more[span], extra, bench)[where]
            np.maximum(seen, LEAST, out=seen)
        own = _running(weights, events.sample[span], events.hit[span], hits, bench)
        reached = own.take(where, axis=0, out=bench("reached", len(order), weights.shape[1]), mode="clip")
        np.divide(reached, seen, out=seen)
        reached *= np.float32(len(_precision.RECALLS) - 1)
        reached /= total
        np.floor(reached, out=reached)
        _rises(_groups(reached), last, _groups(steps[here]))
        last[:] = reached[-1]
        first = span.stop


def _running(weights: Singles, samples: Ints, factor: NDArray[np.generic], start: Singles, bench: Bench) -> Singles:
    """Return the running sums of some weights in woven order; they go on from ``start``, which becomes the last."""
    order, place = _woven(len(samples))
    own = weights.take(samples[order], axis=0, out=bench("own", len(order), weights.shape[1]), mode="clip")
    if not (factor == 1).all():
        own *= factor[order].astype(np.float32)[:, None]
    _accumulate(np.add, _groups(own), start, bench)
    start[:] = own[place[-1]]
    return own


@functools.lru_cache(1024)
def _woven(count: int) -> tuple[Ints, Ints]:
    """Return rows as they stand in memory, and the place of each: the first rows of all groups, then all second ones.

    The last row is repeated until the last group is full.
    """
    many = -(-count // GROUP)
    order = np.minimum(np.arange(many * GROUP), count - 1).reshape(many, GROUP).T.ravel()
    return order, np.arange(many * GROUP).reshape(GROUP, many).T.ravel()[:count]


def _groups(rows: Singles) -> Singles:
    """Return woven rows as place in the group x group x resamples."""
    return rows.reshape(GROUP, len(rows) // GROUP, rows.shape[1])


def _accumulate(how: np.ufunc, groups: Singles, start: Singles, bench: Bench) -> None:
    """Accumulate grouped rows in place; NumPy's own way along the first axis is slow."""
    for k in range(1, GROUP):
        how(groups[k], groups[k - 1], out=groups[k])
    carry = bench("carry", groups.shape[1], groups.shape[2])
    carry[0] = start
    for k in range(1, len(carry)):
        how(carry[k - 1], groups[-1, k - 1], out=carry[k])
    how(groups, carry, out=groups)


def _rises(groups: Singles, last: Singles, out: Singles) -> None:
    """Write by how much each row exceeds the one before it, the first of them ``last``."""
    np.subtract(groups[1:], groups[:-1], out=out[1:])
    np.subtract(groups[0, 1:], groups[-1, :-1], out=out[0, 1:])
    np.subtract(groups[0, 0], last, out=out[0, 0])
