"""Shared parts of the built-in scorers: input checks, blockwise scoring and streaming summaries.

Matrix products are computed in float64 and rounded to float32 once, because the summation order of a
product depends on the position of a row in its batch. Row-wise operations with a fixed order may use
float32. The score of an image therefore depends neither on the batch size nor on the order of the images.
"""

from __future__ import annotations

import functools
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

# Images scored at a time: 2 MB of float64 for 1000 classes, which fits into the processor's cache. It is a
# multiple of the rows that BLAS takes at a time (12 with AVX2, 16 and 48 with AVX-512), see products.py.
ROWS_PER_BLOCK = 240


@dataclass(frozen=True)
class TrainingBatch:
    """A checked batch of training images; a label of -1 means no label."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    ids: Sequence[str] | None
    outputs: Outputs
    scorer: str

    @functools.cached_property
    def logits(self) -> NDArray[np.float32]:
        """The logits; an error if there are none, as for boxes of which only features are known."""
        return logits_of(self.outputs, self.scorer)


class Fitted(Scorer):
    """Base class of the built-in scorers that are classes: it checks inputs and refuses calls before
    ``fit``.
    """

    def ready(self, part: T | None) -> T:
        """Return a fitted attribute; raise an error if it is None because ``fit`` was not called."""
        if part is None:
            raise SoritesError(
                f"scorer {self.name}: not fitted; call .fit(batches, head) with batches of (outputs,"
                " labels) first"
            )
        return part

    def training(self, batches: Batches) -> Iterator[TrainingBatch]:
        """Yield checked batches of training images and count them in ``fitted``.

        Raises:
            SoritesError: If there are no images, or the number of features changes between batches.
        """
        count, width = 0, None
        for outputs, labels in batches:
            features = features_of(outputs, self.name, width)
            if not len(features):
                continue
            count, width = count + len(features), features.shape[1]
            if outputs.logits is not None:
                logits_of(outputs, self.name)
            yield TrainingBatch(
                features, _labels(labels, len(features), self.name), outputs.ids, outputs, self.name
            )
        if not count:
            raise SoritesError(f"scorer {self.name}: expected training images to be fitted on, got none")
        self.fitted = {"images": count}

    def training_logits(
        self, batches: Batches
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64], Sequence[str] | None]]:
        """Yield logits, labels (-1 = none) and ids of training images, and count the images in ``fitted``.

        Raises:
            SoritesError: If there are no images, or the number of classes changes between batches.
        """
        count, width = 0, None
        for outputs, labels in batches:
            logits = logits_of(outputs, self.name, width)
            if not len(logits):
                continue
            count, width = count + len(logits), logits.shape[1]
            yield logits, _labels(labels, len(logits), self.name), outputs.ids
        if not count:
            raise SoritesError(f"scorer {self.name}: expected training images to be fitted on, got none")
        self.fitted = {"images": count}

    def inside(self, outputs: Outputs) -> NDArray[np.float32]:
        """Return the N rows that ``look`` read from inside the model."""
        values = outputs.inside.get(self.name)
        if values is None:
            raise SoritesError(
                f"scorer {self.name}: expected outputs.inside[{self.name!r}], the result of its"
                " look(model, images)"
            )
        return _finite(values, self.name, "values from inside the model", 1, None)

    def head(self, head: Head | None) -> tuple[Wide, Wide]:
        """Return the weights (C x D) and the bias (C) of the last linear layer in float64."""
        if head is None:
            raise SoritesError(
                f"scorer {self.name}: expected the model's last linear layer, head=(weights, bias), got none"
            )
        weight, bias = (np.asarray(part, np.float64) for part in head)
        if weight.ndim != 2 or bias.shape != weight.shape[:1]:
            raise SoritesError(
                f"scorer {self.name}: expected a head with shapes C x D and C, got {weight.shape} and"
                f" {bias.shape}"
            )
        return weight, bias


def _labels(labels: Any, count: int, scorer: str) -> NDArray[np.int64]:
    values = [None] * count if labels is None else list(labels)
    if len(values) != count:
        raise SoritesError(
            f"scorer {scorer}: expected a label for each of {count} training images, got {len(values)}"
        )
    return np.array([-1 if label is None else max(int(label), -1) for label in values], np.int64)


def features_of(outputs: Outputs, scorer: str, width: int | None = None) -> NDArray[np.float32]:
    """Return the features of outputs after checking them.

    Args:
        outputs: The outputs of a model.
        scorer: The name of the scorer, for error messages.
        width: The number of features the scorer was fitted on; None accepts any.

    Raises:
        SoritesError: If features are missing, not finite, or of another width.
    """
    return _finite(outputs.features, scorer, "features", 1, width)


def logits_of(outputs: Outputs, scorer: str, width: int | None = None) -> NDArray[np.float32]:
    """Return the logits of two or more classes, checked like ``features_of``."""
    return _finite(outputs.logits, scorer, "logits of two or more classes", 2, width)


def class_logits_of(outputs: Outputs, scorer: str) -> NDArray[np.float32]:
    """Return the logits; a single class is enough where classes do not exclude each other."""
    if not outputs.independent:
        return logits_of(outputs, scorer)
    return _finite(outputs.logits, scorer, "logits", 1, None)


def _finite(
    rows: NDArray[np.float32] | None, scorer: str, name: str, min_width: int, width: int | None
) -> NDArray[np.float32]:
    if rows is None or rows.ndim != 2 or rows.shape[1] < min_width:
        raise SoritesError(
            f"scorer {scorer}: expected {name}, got {'none' if rows is None else f'shape {rows.shape}'}"
        )
    if width is not None and rows.shape[1] != width:
        raise SoritesError(
            f"scorer {scorer}: expected {name} with {width} columns, as in fit, got {rows.shape[1]}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        # A sum is several times faster than a look at each value; one that overflows is looked at again.
        finite = bool(np.isfinite(rows.sum()))
    if not finite and (bad := ~np.isfinite(rows).all(axis=1)).any():
        raise SoritesError(
            f"scorer {scorer}: expected finite {name}, got NaN or infinity in {bad.sum()} of {len(rows)} rows"
        )
    return rows


def scored(
    rule: Callable[..., NDArray[np.floating]], *parts: NDArray[np.float32], rows: int = ROWS_PER_BLOCK
) -> Score:
    """Apply ``rule`` to blocks of rows, converted to float64, and return one float32 score per row."""
    return narrow_scored(lambda *block: rule(*(part.astype(np.float64) for part in block)), *parts, rows=rows)


def narrow_scored(
    rule: Callable[..., NDArray[np.floating]], *parts: NDArray[np.float32], rows: int = ROWS_PER_BLOCK
) -> Score:
    """Apply ``rule`` to blocks of rows in float32 and return one score per row."""
    blocks = (
        (np.ascontiguousarray(part[i : i + rows], np.float32) for part in parts)
        for i in range(0, len(parts[0]), rows)
    )
    scores = [rule(*block).astype(np.float32, copy=False) for block in blocks]
    return np.concatenate(scores) if scores else np.empty(0, np.float32)


def logsumexp(logits: NDArray[Real], out: NDArray[Real] | None = None) -> NDArray[Real]:
    """Return log(sum(exp(logits))) of each row without overflow; ``out`` may be ``logits``, as scratch."""
    top = logits.max(axis=1)
    exponentials = np.subtract(logits, top[:, None], out=out)
    np.exp(exponentials, out=exponentials)
    return np.asarray(top + np.log(exponentials.sum(axis=1)))


def log_probabilities(logits: Wide) -> Wide:
    """Return the logarithms of the softmax of each row."""
    return np.asarray(logits - logsumexp(logits)[:, None])


def above(value: float, minimum: float, scorer: str, parameter: str) -> float:
    """Return ``value`` if it is finite and above ``minimum``; otherwise raise an error."""
    if not (isinstance(value, int | float) and minimum < value < float("inf")):
        raise SoritesError(f"scorer {scorer}: expected {parameter} above {minimum:g}, got {value!r}")
    return value


def whole(value: int, scorer: str, parameter: str) -> int:
    """Return ``value`` if it is an integer of at least 1; otherwise raise an error."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SoritesError(
            f"scorer {scorer}: expected {parameter} to be an integer of at least 1, got {value!r}"
        )
    return value


def percent(value: float, scorer: str) -> float:
    """Return ``value`` if it is a percentile in [0, 100); otherwise raise an error."""
    if not (isinstance(value, int | float) and 0 <= value < 100):
        raise SoritesError(f"scorer {scorer}: expected a percentile in [0, 100), got {value!r}")
    return value


def share(value: float, scorer: str, parameter: str) -> float:
    """Return ``value`` if it is above 0 and at most 1; otherwise raise an error."""
    if not (isinstance(value, int | float) and 0 < value <= 1):
        raise SoritesError(f"scorer {scorer}: expected {parameter} above 0 and at most 1, got {value!r}")
    return value


# Streaming summaries of training images: their memory does not grow with the number of images.

# Percentiles are exact up to this many values (16 MB of float32).
MAX_EXACT_VALUES = 1 << 22
# Leading bits of a float32 that number the bins of a histogram: bins are 0.05 % wide for any range of
# values, and the counts take 8 MB.
HISTOGRAM_BITS = 20


class Moments:
    """Count, sum and sum of outer products of rows in float64, and count and sum per class."""

    def __init__(self) -> None:
        self.count = 0
        self.total: Wide = np.zeros(0)
        self.products: Wide = np.zeros((0, 0))
        self.counts: NDArray[np.int64] = np.zeros(0, np.int64)
        self.totals: Wide = np.zeros((0, 0))

    def add(
        self, features: NDArray[np.float32], labels: NDArray[np.int64] | None = None, products: bool = True
    ) -> None:
        """Add rows to the sums.

        Args:
            features: The rows, N x D.
            labels: The class of each row; None leaves the sums per class unchanged.
            products: Whether to add the outer products, which only covariances need.
        """
        rows = features.astype(np.float64)
        width = rows.shape[1]
        if not self.count:
            self.total, self.products, self.totals = (
                np.zeros(width),
                np.zeros((width, width)),
                np.zeros((0, width)),
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
        missing = classes - len(self.counts)
        if missing > 0:
            self.counts = np.concatenate([self.counts, np.zeros(missing, np.int64)])
            self.totals = np.concatenate([self.totals, np.zeros((missing, len(self.total)))])

    @property
    def mean(self) -> Wide:
        return self.total / self.count

    def scatter(self, centre: Wide) -> Wide:
        """Return the mean outer product of the deviations from ``centre``."""
        cross = np.outer(self.mean, centre)
        return np.asarray(self.products / self.count - cross - cross.T + np.outer(centre, centre))

    def class_means(self) -> Wide:
        """Return the means of the classes that have training images, in class order."""
        present = self.counts > 0
        return np.asarray(self.totals[present] / self.counts[present, None])

    def within(self) -> Wide:
        """Return the pooled covariance of the rows around their class means."""
        present = self.counts > 0
        means = self.class_means()
        return np.asarray((self.products - (means.T * self.counts[present]) @ means) / self.count)


class Percentile:
    """Percentiles of streamed values.

    They are exact up to ``MAX_EXACT_VALUES`` values, then read from a histogram with bins 0.05 % wide.
    """

    def __init__(self) -> None:
        self._values: list[NDArray[np.float32]] = []
        self._count = 0
        self._bins: NDArray[np.int64] | None = None

    def add(self, values: NDArray[np.float32]) -> None:
        self._values.append(values.astype(np.float32, order="C").ravel())
        self._count += values.size
        if sum(map(len, self._values)) > MAX_EXACT_VALUES:
            self._fold()

    def _fold(self) -> None:
        # Map the bits of a float32 to an unsigned integer of the same order; its leading bits are the bin.
        bits = np.concatenate(self._values).view(np.int32)
        ordered = np.where(bits < 0, ~bits, bits ^ np.int32(-(2**31))).view(np.uint32)
        counted = np.bincount(ordered >> (32 - HISTOGRAM_BITS), minlength=1 << HISTOGRAM_BITS)
        self._bins, self._values = counted if self._bins is None else self._bins + counted, []

    def value(self, percent: float) -> float:
        """Return a percentile of all values added so far; histogram bins are interpolated linearly."""
        if self._bins is None:
            if len(self._values) > 1:
                self._values = [np.concatenate(self._values)]
            position = percent / 100 * (self._count - 1)
            index = int(position)
            values = self._values[0]  # a copy, whose order does not matter
            # NumPy selects one place much faster than two.
            values.partition(index)
            around = np.array([values[index], values[index + 1 :].min(initial=np.inf)], np.float64)
            return float(np.quantile(around[: self._count - index], position - index))
        if self._values:
            self._fold()
        below = np.cumsum(self._bins)
        position = percent / 100 * (self._count - 1)
        index = int(np.searchsorted(below, position, side="right"))
        edges = np.array([index, index + 1], np.uint64) << np.uint64(32 - HISTOGRAM_BITS)
        codes = np.minimum(edges, np.uint64(2**32 - 1)).astype(np.uint32)
        low, high = (
            np.where(codes >= 2**31, codes ^ np.uint32(2**31), ~codes).view(np.float32).astype(np.float64)
        )
        return float(low + (high - low) * (position - (below[index] - self._bins[index])) / self._bins[index])


class Bank:
    """A random subset of the training rows: at most ``size`` rows, those whose ids have the smallest hashes.

    The choice does not depend on the order of the rows. Rows without ids are chosen by a hash of their
    values.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._rows: list[NDArray[np.float32]] = []
        self._keys: list[NDArray[np.uint64]] = []

    def add(self, rows: NDArray[np.float32], ids: Sequence[str] | None) -> None:
        names = [row.tobytes() for row in rows] if ids is None else ids
        self._rows.append(np.array(rows, np.float32))
        self._keys.append(
            np.array([int.from_bytes(digest(name, size=8), "little") for name in names], np.uint64)
        )
        if sum(map(len, self._keys)) > 2 * self.size:
            self._thin()

    def _thin(self) -> None:
        rows, keys = np.concatenate(self._rows), np.concatenate(self._keys)
        first = np.argsort(keys, kind="stable")[: self.size]
        self._rows, self._keys = [rows[first]], [keys[first]]

    def rows(self) -> NDArray[np.float32]:
        """Return the chosen rows in the order of their hashes."""
        self._thin()
        return self._rows[0]
