"""Summaries of training pictures that are streamed, in memory that does not grow with the number of pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sorites.rng import digest
from sorites.scorers._rows import Wide

EXACT = 1 << 22
"""A percentile is exact up to this many values, which are 16 MB of float32."""
BITS = 20
"""A histogram uses this many leading bits of a float32: bins 0.05 % wide and 8 MB of counts, whatever the range."""


class Moments:
    """Count, sum and sum of products of rows in float64, and count and sum per class."""

    def __init__(self) -> None:
        self.count = 0
        self.total: Wide = np.zeros(0)
        self.products: Wide = np.zeros((0, 0))
        self.counts: NDArray[np.int64] = np.zeros(0, np.int64)
        self.totals: Wide = np.zeros((0, 0))

    def add(self, features: NDArray[np.float32], labels: NDArray[np.int64] | None = None, products: bool = True) -> None:
        """Add rows; ``products=False`` skips the sum of products, which only covariances need."""
        rows = features.astype(np.float64)
        wide = rows.shape[1]
        if not self.count:
            self.total, self.products, self.totals = np.zeros(wide), np.zeros((wide, wide)), np.zeros((0, wide))
        self.count += len(rows)
        self.total += rows.sum(axis=0)
        if products:
            self.products += rows.T @ rows
        if labels is not None and len(labels):
            self._grow(int(labels.max()) + 1)
            np.add.at(self.totals, labels, rows)
            self.counts += np.bincount(labels, minlength=len(self.counts))

    def _grow(self, classes: int) -> None:
        more = classes - len(self.counts)
        if more > 0:
            self.counts = np.concatenate([self.counts, np.zeros(more, np.int64)])
            self.totals = np.concatenate([self.totals, np.zeros((more, len(self.total)))])

    @property
    def mean(self) -> Wide:
        return self.total / self.count

    def scatter(self, centre: Wide) -> Wide:
        """Return the mean outer product of the rows' differences from ``centre``."""
        cross = np.outer(self.mean, centre)
        return np.asarray(self.products / self.count - cross - cross.T + np.outer(centre, centre))

    def class_means(self) -> Wide:
        """Return the means of the classes that have a training picture, in order."""
        present = self.counts > 0
        return np.asarray(self.totals[present] / self.counts[present, None])

    def within(self) -> Wide:
        """Return the covariance of the rows around the means of their classes."""
        present = self.counts > 0
        means = self.class_means()
        return np.asarray((self.products - (means.T * self.counts[present]) @ means) / self.count)


class Percentile:
    """A percentile of all values: exact up to ``EXACT`` of them, then from a histogram whose bins are 0.05 % wide."""

    def __init__(self) -> None:
        self._values: list[NDArray[np.float32]] = []
        self._count = 0
        self._bins: NDArray[np.int64] | None = None

    def add(self, values: NDArray[np.float32]) -> None:
        self._values.append(values.astype(np.float32).ravel())
        self._count += values.size
        if sum(map(len, self._values)) > EXACT:
            self._fold()

    def _fold(self) -> None:
        """Count the values into the histogram: floats ordered as integers, whose leading bits are a bin that needs no range."""
        bits = np.concatenate(self._values).view(np.int32)
        ordered = np.where(bits < 0, ~bits, bits ^ np.int32(-(2**31))).view(np.uint32)
        counted = np.bincount(ordered >> (32 - BITS), minlength=1 << BITS)
        self._bins, self._values = counted if self._bins is None else self._bins + counted, []

    def value(self, percent: float) -> float:
        """Return the percentile of all values added so far, interpolated inside a bin of the histogram."""
        if self._bins is None:
            place = percent / 100 * (self._count - 1)
            pair = [int(place), min(int(place) + 1, self._count - 1)]
            around = np.partition(np.concatenate(self._values), pair)[pair].astype(np.float64)
            return float(np.quantile(around, place - pair[0]))
        if self._values:
            self._fold()
        below = np.cumsum(self._bins)
        place = percent / 100 * (self._count - 1)
        here = int(np.searchsorted(below, place, side="right"))
        edges = np.array([here, here + 1], np.uint64) << np.uint64(32 - BITS)
        codes = np.minimum(edges, np.uint64(2**32 - 1)).astype(np.uint32)
        low, high = np.where(codes >= 2**31, codes ^ np.uint32(2**31), ~codes).view(np.float32).astype(np.float64)
        return float(low + (high - low) * (place - (below[here] - self._bins[here])) / self._bins[here])


class Bank:
    """The training rows whose ids have the smallest hashes, at most ``size``: a fair choice that does not depend on order.

    Rows without ids are chosen by a hash of the row itself.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._rows: list[NDArray[np.float32]] = []
        self._keys: list[NDArray[np.uint64]] = []

    def add(self, rows: NDArray[np.float32], ids: Sequence[str] | None) -> None:
        named = [row.tobytes() for row in rows] if ids is None else ids
        self._rows.append(np.array(rows, np.float32))
        self._keys.append(np.array([int.from_bytes(digest(name, size=8), "little") for name in named], np.uint64))
        if sum(map(len, self._keys)) > 2 * self.size:
            self._thin()

    def _thin(self) -> None:
        rows, keys = np.concatenate(self._rows), np.concatenate(self._keys)
        first = np.argsort(keys, kind="stable")[: self.size]
        self._rows, self._keys = [rows[first]], [keys[first]]

    def rows(self) -> NDArray[np.float32]:
        """Return the chosen rows, in the order of their hashes."""
        self._thin()
        return self._rows[0]
