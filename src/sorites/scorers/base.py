"""Checks that every scorer makes: rows are finite and as wide as those it was fitted on, and
parameters are in range.

Rows are taken a bounded number at a time. Matrix products are taken in float64 and rounded to
float32 once, because the order in which a product sums its terms follows the place of a row in its
batch; what goes row by row in a fixed order may be float32. So an image's score depends neither on
the size of its batch nor on its order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sorites.core import Batches, Head, Outputs, Scorer
from sorites.core.errors import SoritesError
from sorites.core.rng import digest

T = TypeVar("T")
Score = NDArray[np.float32]
Wide = NDArray[np.float64]
Narrow = NDArray[np.float32]
Real = TypeVar("Real", np.float32, np.float64)

# This many images are scored at a time: 2 MB of float64 for a thousand classes, which stay in the
# processor's cache.
ROWS = 256


@dataclass(frozen=True)
class Seen:
    """One checked batch of training images; a label of -1 means no label."""

    features: NDArray[np.float32]
    logits: NDArray[np.float32]
    labels: NDArray[np.int64]
    ids: Sequence[str] | None


class Fitted(Scorer):
    """The base of the built-in scorers that are classes: it checks their input and refuses calls
    before ``fit``.
    """

    def ready(self, part: T | None) -> T:
        """Return a fitted part; None means that the scorer was not fitted, which is an error."""
        if part is None:
            raise SoritesError(f"scorer {self.name}: fit it first: .fit(batches of (outputs, labels), head)")
        return part

    def training(self, batches: Batches) -> Iterator[Seen]:
        """Yield the checked batches of training images; no images at all and a change of width
        are errors.
        """
        count, wide = 0, None
        for outputs, labels in batches:
            features = features_of(outputs, self.name, wide)
            if not len(features):
                continue
            count, wide = count + len(features), features.shape[1]
            yield Seen(
                features,
                logits_of(outputs, self.name),
                _labels(labels, len(features), self.name),
                outputs.ids,
            )
        if not count:
            raise SoritesError(f"scorer {self.name}: wanted training images to be fitted on, got none")
        self.fitted = {"images": count}

    def inside(self, outputs: Outputs) -> NDArray[np.float32]:
        """Return the N rows that ``look`` read from inside the model."""
        seen = outputs.inside.get(self.name)
        if seen is None:
            raise SoritesError(
                f"scorer {self.name}: wanted outputs.inside[{self.name!r}], what its look(model, images)"
                " gives"
            )
        return _finite(seen, self.name, "numbers from inside the model", 1, None)

    def head(self, head: Head | None) -> tuple[Wide, Wide]:
        """Return the weights (C x D) and the bias (C) of the last linear layer in float64."""
        if head is None:
            raise SoritesError(
                f"scorer {self.name}: wanted the model's last linear layer, head=(weights, bias), got none"
            )
        weight, bias = (np.asarray(part, np.float64) for part in head)
        if weight.ndim != 2 or bias.shape != weight.shape[:1]:
            raise SoritesError(
                f"scorer {self.name}: wanted a head of C x D and C, got {weight.shape} and {bias.shape}"
            )
        return weight, bias


def _labels(labels: Any, count: int, who: str) -> NDArray[np.int64]:
    given = [None] * count if labels is None else list(labels)
    if len(given) != count:
        raise SoritesError(
            f"scorer {who}: wanted a label for each of {count} training images, got {len(given)}"
        )
    return np.array([-1 if label is None else max(int(label), -1) for label in given], np.int64)


def features_of(outputs: Outputs, who: str, wide: int | None = None) -> NDArray[np.float32]:
    """Return the features, checked; ``who`` names the scorer in messages, ``wide`` is the width it
    was fitted on.
    """
    return _finite(outputs.features, who, "features", 1, wide)


def logits_of(outputs: Outputs, who: str, wide: int | None = None) -> NDArray[np.float32]:
    """Return the logits of two or more classes, checked as ``features_of`` checks features."""
    return _finite(outputs.logits, who, "logits of two or more classes", 2, wide)


def _finite(
    rows: NDArray[np.float32] | None, who: str, what: str, least: int, wide: int | None
) -> NDArray[np.float32]:
    if rows is None or rows.ndim != 2 or rows.shape[1] < least:
        raise SoritesError(
            f"scorer {who}: wanted {what}, got {'none' if rows is None else f'shape {rows.shape}'}"
        )
    if wide is not None and rows.shape[1] != wide:
        raise SoritesError(
            f"scorer {who}: wanted {what} of {wide} columns, as it was fitted, got {rows.shape[1]}"
        )
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise SoritesError(
            f"scorer {who}: wanted finite {what}, got NaN or infinity in {bad.sum()} of {len(rows)} rows"
        )
    return rows


def scored(rule: Callable[..., NDArray[np.floating]], *parts: NDArray[np.float32], rows: int = ROWS) -> Score:
    """Apply ``rule`` to the rows of the parts in float64, a bounded number at a time."""
    return narrow_scored(lambda *some: rule(*(part.astype(np.float64) for part in some)), *parts, rows=rows)


def narrow_scored(
    rule: Callable[..., NDArray[np.floating]], *parts: NDArray[np.float32], rows: int = ROWS
) -> Score:
    """Apply ``rule`` to the rows of the parts in float32, a bounded number at a time."""
    blocks = (
        (np.ascontiguousarray(part[i : i + rows], np.float32) for part in parts)
        for i in range(0, len(parts[0]), rows)
    )
    scores = [rule(*block).astype(np.float32, copy=False) for block in blocks]
    return np.concatenate(scores) if scores else np.empty(0, np.float32)


def logsumexp(logits: NDArray[Real]) -> NDArray[Real]:
    """Return log(sum(exp(logits))) of each row without overflow."""
    top = logits.max(axis=1)
    raised = logits - top[:, None]
    np.exp(raised, out=raised)
    return np.asarray(top + np.log(raised.sum(axis=1)))


def above(value: float, least: float, who: str, what: str) -> float:
    """Return a finite parameter above ``least``; any other value is an error."""
    if not (isinstance(value, int | float) and least < value < float("inf")):
        raise SoritesError(f"scorer {who}: wanted a {what} above {least:g}, got {value!r}")
    return value


def whole(value: int, who: str, what: str) -> int:
    """Return a parameter that is a whole number of 1 or more; any other value is an error."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SoritesError(f"scorer {who}: wanted {what} as a whole number of 1 or more, got {value!r}")
    return value


def percent(value: float, who: str) -> float:
    """Return a percentile of 0 or more and below 100; any other value is an error."""
    if not (isinstance(value, int | float) and 0 <= value < 100):
        raise SoritesError(f"scorer {who}: wanted a percentile of 0 or more and below 100, got {value!r}")
    return value


# Summaries of training images that are streamed, in memory that does not grow with the number of
# images.


# A percentile is exact up to this many values, which are 16 MB of float32.
EXACT = 1 << 22
# A histogram uses this many leading bits of a float32: bins 0.05 % wide and 8 MB of counts,
# whatever the range.
BITS = 20


class Moments:
    """Count, sum and sum of products of rows in float64, and count and sum per class."""

    def __init__(self) -> None:
        self.count = 0
        self.total: Wide = np.zeros(0)
        self.products: Wide = np.zeros((0, 0))
        self.counts: NDArray[np.int64] = np.zeros(0, np.int64)
        self.totals: Wide = np.zeros((0, 0))

    def add(
        self, features: NDArray[np.float32], labels: NDArray[np.int64] | None = None, products: bool = True
    ) -> None:
        """Add rows; ``products=False`` skips the sum of products, which only covariances need."""
        rows = features.astype(np.float64)
        wide = rows.shape[1]
        if not self.count:
            self.total, self.products, self.totals = (
                np.zeros(wide),
                np.zeros((wide, wide)),
                np.zeros((0, wide)),
            )
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
        """Return the means of the classes that have a training image, in order."""
        present = self.counts > 0
        return np.asarray(self.totals[present] / self.counts[present, None])

    def within(self) -> Wide:
        """Return the covariance of the rows around the means of their classes."""
        present = self.counts > 0
        means = self.class_means()
        return np.asarray((self.products - (means.T * self.counts[present]) @ means) / self.count)


class Percentile:
    """A percentile of all values: exact up to ``EXACT`` of them, then from a histogram whose bins
    are 0.05 % wide.
    """

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
        """Count the values into the histogram: floats ordered as integers, whose leading bits are a
        bin that needs no range.
        """
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
        low, high = (
            np.where(codes >= 2**31, codes ^ np.uint32(2**31), ~codes).view(np.float32).astype(np.float64)
        )
        return float(low + (high - low) * (place - (below[here] - self._bins[here])) / self._bins[here])


class Bank:
    """The training rows whose ids have the smallest hashes, at most ``size``: a fair choice that
    does not depend on order.

    Rows without ids are chosen by a hash of the row itself.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._rows: list[NDArray[np.float32]] = []
        self._keys: list[NDArray[np.uint64]] = []

    def add(self, rows: NDArray[np.float32], ids: Sequence[str] | None) -> None:
        named = [row.tobytes() for row in rows] if ids is None else ids
        self._rows.append(np.array(rows, np.float32))
        self._keys.append(
            np.array([int.from_bytes(digest(name, size=8), "little") for name in named], np.uint64)
        )
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
