"""Energy scores after shaping the pooled features or the weights of the last linear layer.

Shaping reduces the influence of unusual activations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sorites.core import Batches, Head, Outputs, add_scorer
from sorites.core.errors import SoritesError
from sorites.scorers.base import (
    ROWS_PER_BLOCK,
    Fitted,
    Moments,
    Narrow,
    Percentile,
    Real,
    Score,
    Wide,
    features_of,
    logits_of,
    logsumexp,
    narrow_scored,
    percent,
    scored,
)
from sorites.scorers.products import block_product, sparse_product

# Up to this share of nonzero features a sparse product is faster than a dense one.
MAX_SPARSE_SHARE = 0.2
# Exponents are limited to this value; float32 overflows at 88.
MAX_EXPONENT = np.float32(60)


class _HeadScorer(Fitted):
    """Base class of scorers that only need the last linear layer."""

    needs: ClassVar = frozenset({"features", "head"})

    def __init__(self) -> None:
        self._weight: Wide | None = None
        self._bias: Wide | None = None

    def fit(self, batches: Batches = (), head: Head | None = None) -> Self:
        self._set_head(head)
        self.fitted = {}
        return self

    def _set_head(self, head: Head | None) -> None:
        self._weight, self._bias = self.head(head)
        self._columns = np.ascontiguousarray(self._weight.T, np.float32)

    def product(self, share: float) -> Callable[[Narrow], Narrow]:
        """Return a function for blocks of rows times the weights; a row's result does not depend on others.

        Args:
            share: The approximate share of nonzero features.
        """
        blocks = block_product(self._columns)
        if blocks is not None and (blocks.all_even or share > MAX_SPARSE_SHARE):
            return blocks
        if share <= MAX_SPARSE_SHARE:
            return lambda rows: sparse_product(rows, self._columns)
        weight = self.ready(self._weight)
        return lambda rows: (rows.astype(np.float64) @ weight.T).astype(np.float32)


class _ClippingScorer(_HeadScorer, ABC):
    """Base class of scorers that limit features by percentiles of all training activations.

    Percentiles are exact for up to four million activations, otherwise within 0.05 %.
    """

    needs: ClassVar = frozenset({"training", "features", "head"})
    version: ClassVar[int | str] = 4
    percentiles: tuple[float, ...]
    changed: float
    """The share of features that change, approximately."""

    def fit(self, batches: Batches = (), head: Head | None = None) -> Self:
        activations = Percentile()
        for batch in self.training(batches):
            activations.add(batch.features)
        self.limits = tuple(np.float32(activations.value(part)) for part in self.percentiles)
        self._set_head(head)
        return self

    @abstractmethod
    def limited(self, rows: Narrow, out: Narrow | None = None) -> Narrow:
        """Return the features passed to the last layer in place of ``rows``, in the memory of ``out``."""

    def __call__(self, outputs: Outputs) -> Score:
        weight, bias = self.ready(self._weight), self.ready(self._bias).astype(np.float32)
        rows = features_of(outputs, self.name, weight.shape[1])
        product = block_product(self._columns)
        if product is None:
            return self._corrected(rows, logits_of(outputs, self.name, len(weight)))
        features = np.empty((ROWS_PER_BLOCK, weight.shape[1]), np.float32)
        spread_bias = product.spread(bias, -np.inf)

        def energy(rows: Narrow) -> Narrow:
            logits = product.spread_product(self.limited(rows, features[: len(rows)]))
            logits += spread_bias
            return -logsumexp(logits, out=logits)

        return narrow_scored(energy, rows)

    def _corrected(self, rows: Narrow, logits: Narrow) -> Score:
        """Return the energy of the logits minus the contribution of what is cut off from few features."""
        product = self.product(self.changed)

        def energy(rows: Narrow, logits: Narrow) -> Narrow:
            excess = product(rows - self.limited(rows))
            return -logsumexp(np.subtract(logits, excess, out=excess), out=excess)

        return narrow_scored(energy, rows, logits)


@add_scorer
class react(_ClippingScorer):
    """Energy with features clipped at a ``percentile`` of all training activations (Sun, Guo and Li 2021)."""

    ranges: ClassVar = {"percentile": (85, 90, 95, 99)}

    def __init__(self, percentile: float = 90) -> None:
        super().__init__()
        self.percentile = percent(percentile, "react")
        self.percentiles, self.changed = (self.percentile,), 1 - self.percentile / 100

    def limited(self, rows: Narrow, out: Narrow | None = None) -> Narrow:
        return np.minimum(rows, self.limits[0], out=out)


@add_scorer
class vra(_ClippingScorer):
    """Energy with small features set to 0 and large ones clipped (Xu et al. 2023).

    The limits are the percentiles ``low`` and ``high`` of all training activations, as in OpenOOD, which
    raises small features to the lower limit instead; the authors' code sets them to 0, as here. Both are the
    same where the lower limit is 0, as for most features after a ReLU.
    """

    ranges: ClassVar = {"low": (1, 5, 10, 15), "high": (85, 90, 95, 99)}

    def __init__(self, low: float = 10, high: float = 90) -> None:
        super().__init__()
        self.low, self.high = percent(low, "vra"), percent(high, "vra")
        if low >= high:
            raise SoritesError(f"scorer vra: expected low below high, got {low!r} and {high!r}")
        self.percentiles, self.changed = (self.low, self.high), 1 - (self.high - self.low) / 100

    def limited(self, rows: Narrow, out: Narrow | None = None) -> Narrow:
        least, most = self.limits
        limited = np.minimum(rows, most, out=out)
        np.copyto(limited, 0, where=rows < least)
        return limited


@add_scorer
class ras(_HeadScorer):
    """Energy with the sorted features of an image replaced by the mean sorted features of training images
    (Guglielmo and Masana 2026).

    The largest feature gets the mean of the largest training features, and so on; equal features are ranked
    in their order.
    """

    needs: ClassVar = frozenset({"training", "features", "head"})

    def fit(self, batches: Batches = (), head: Head | None = None) -> Self:
        total: Wide | float = 0.0
        for batch in self.training(batches):
            total = total + np.sort(batch.features, axis=1).sum(axis=0, dtype=np.float64)
        self._profile = np.asarray(total / self.fitted["images"])
        self._set_head(head)
        return self

    def __call__(self, outputs: Outputs) -> Score:
        weight, bias = self.ready(self._weight), self.ready(self._bias)
        rows = features_of(outputs, self.name, weight.shape[1])

        def rule(rows: Narrow) -> Wide:
            order = np.argsort(rows, axis=1, kind="stable")
            shifted = np.empty(rows.shape)
            np.put_along_axis(shifted, order, np.broadcast_to(self._profile, rows.shape), axis=1)
            return -logsumexp(shifted @ weight.T + bias)

        return narrow_scored(rule, rows)


class _PruningScorer(_HeadScorer):
    """Base class of scorers that keep the largest features of each image.

    They keep n - round(n * percentile / 100) of n features; among equal features the first are kept.
    """

    def __init__(self, percentile: float = 90) -> None:
        super().__init__()
        self.percentile = percent(percentile, type(self).__name__)

    def largest(self, rows: Narrow) -> NDArray[np.bool_]:
        """Return a mask of the features that are kept in each row."""
        width = rows.shape[1]
        count = max(1, width - round(width * self.percentile / 100))
        threshold = np.partition(rows, width - count, axis=1)[:, width - count, None]
        mask = np.asarray(rows >= threshold)
        if np.count_nonzero(mask) > count * len(rows):
            above, tied = rows > threshold, rows == threshold
            mask = above | (tied & (np.cumsum(tied, axis=1) <= count - above.sum(axis=1, keepdims=True)))
        return mask

    @staticmethod
    def ratio(rows: NDArray[Real], part: NDArray[Real]) -> NDArray[Real]:
        """Return the sum of all features divided by the sum of the kept ones; 1 where the latter is 0."""
        total, kept = rows.sum(axis=1, keepdims=True), part.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(total, kept, out=np.ones_like(total), where=kept != 0))

    def shape(self, rows: Narrow) -> Narrow:
        """Return the features passed to the last layer in place of ``rows``."""
        return rows

    def __call__(self, outputs: Outputs) -> Score:
        rows = features_of(outputs, self.name, self.ready(self._weight).shape[1])
        bias = self.ready(self._bias).astype(np.float32)
        product = self.product(1 - self.percentile / 100)
        return narrow_scored(lambda rows: -logsumexp(product(self.shape(rows)) + bias), rows)


@add_scorer
class ash_p(_PruningScorer):
    """Energy with all but the largest features set to 0 (Djurisic et al. 2023)."""

    version: ClassVar[int | str] = 4

    def shape(self, rows: Narrow) -> Narrow:
        return np.asarray(rows * self.largest(rows))


@add_scorer
class ash_b(_PruningScorer):
    """Energy with the sum of all features distributed evenly over the largest (Djurisic et al. 2023)."""

    ranges: ClassVar = {"percentile": (65, 70, 75, 80, 85, 90, 95)}

    version: ClassVar[int | str] = 4

    def shape(self, rows: Narrow) -> Narrow:
        mask = self.largest(rows)
        return np.asarray(
            mask * (rows.sum(axis=1) / np.count_nonzero(mask, axis=1).astype(np.float32))[:, None]
        )


@add_scorer
class ash_s(_PruningScorer):
    """Energy with only the largest features, scaled by exp(sum of all / sum of kept) (Djurisic et al.
    2023).
    """

    version: ClassVar[int | str] = 4

    def shape(self, rows: Narrow) -> Narrow:
        part = rows * self.largest(rows)
        return np.asarray(part * np.exp(np.minimum(self.ratio(rows, part), MAX_EXPONENT)))


@add_scorer
class scale(_PruningScorer):
    """Energy with all features scaled by exp(sum of all / sum of the largest) (Xu et al. 2024).

    Scaling features by s turns logits l into s (l - bias) + bias, so no matrix product is needed.
    """

    ranges: ClassVar = {"percentile": (65, 70, 75, 80, 85, 90, 95)}

    def __init__(self, percentile: float = 85) -> None:
        super().__init__(percentile)

    def __call__(self, outputs: Outputs) -> Score:
        weight, bias = self.ready(self._weight), self.ready(self._bias)
        rows, logits = (
            features_of(outputs, self.name, weight.shape[1]),
            logits_of(outputs, self.name, len(bias)),
        )

        def rule(rows: Wide, logits: Wide) -> Wide:
            part = rows * self.largest(rows.astype(np.float32))
            return -logsumexp(np.exp(self.ratio(rows, part)) * (logits - bias) + bias)

        return scored(rule, rows, logits)


@add_scorer
class dice(_HeadScorer):
    """Energy with only the weights whose mean contribution on training images is above a ``percentile`` (Sun
    and Li 2022).
    """

    needs: ClassVar = frozenset({"training", "features", "head"})

    def __init__(self, percentile: float = 90) -> None:
        super().__init__()
        self.percentile = percent(percentile, "dice")

    def fit(self, batches: Batches = (), head: Head | None = None) -> Self:
        moments = Moments()
        for batch in self.training(batches):
            moments.add(batch.features, products=False)
        weight, self._bias = self.head(head)
        contribution = weight * moments.mean
        self._weight = np.where(contribution > np.percentile(contribution, self.percentile), weight, 0)
        return self

    def __call__(self, outputs: Outputs) -> Score:
        weight, bias = self.ready(self._weight), self.ready(self._bias)
        rows = features_of(outputs, self.name, weight.shape[1])
        return scored(lambda rows: -logsumexp(rows @ weight.T + bias), rows)
