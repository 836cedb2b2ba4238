"""Energy after the features, or the weights of the last layer, are shaped so that unusual
activations count less.

All scorers here work on pooled features and the model's last linear layer.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sorites.core import Batches, Head, Outputs, add_scorer
from sorites.scorers.base import (
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

# Up to this share of features that are not 0, a product takes only these: beyond it a full product
# is faster.
FEW = 0.2
# No exponent beyond this: float32 overflows at 88.
MOST = np.float32(60)


class _Headed(Fitted):
    """The base of scorers that need the last linear layer and nothing else."""

    needs: ClassVar = frozenset({"features", "head"})

    def __init__(self) -> None:
        self._weight: Wide | None = None
        self._bias: Wide | None = None

    def fit(self, batches: Batches = (), head: Head | None = None) -> Self:
        self._take(head)
        self.fitted = {}
        return self

    def _take(self, head: Head | None) -> None:
        self._weight, self._bias = self.head(head)
        self._columns = np.ascontiguousarray(self._weight.T, np.float32)

    def product(self, rows: Narrow, share: float) -> Narrow:
        """Return rows times weights, where about this share of the rows is not 0.

        The few that are not 0 are summed in the order of the features, so that float32 does not let
        a batch show.
        """
        if share > FEW:
            return (rows.astype(np.float64) @ self.ready(self._weight).T).astype(np.float32)
        from scipy import sparse

        places = np.flatnonzero(rows != 0)
        ends = np.searchsorted(places, np.arange(len(rows) + 1) * rows.shape[1])
        few = sparse.csr_array((rows.ravel()[places], places % rows.shape[1], ends), shape=rows.shape)
        return np.asarray(few @ self._columns)


@add_scorer
class react(_Headed):
    """Energy with features clipped at a ``percentile`` of all training activations (Sun, Guo and Li 2021).

    The percentile is exact for up to four million activations, and within 0.05 % beyond. Clipping
    takes from the logits what the last layer makes of the clipped-off part, which most features
    have none of.
    """

    needs: ClassVar = frozenset({"training", "features", "head"})
    ranges: ClassVar = {"percentile": (85, 90, 95, 99)}

    def __init__(self, percentile: float = 90) -> None:
        super().__init__()
        self.percentile = percent(percentile, "react")

    def fit(self, batches: Batches = (), head: Head | None = None) -> Self:
        activations = Percentile()
        for seen in self.training(batches):
            activations.add(seen.features)
        self._clip = np.float32(activations.value(self.percentile))
        self._take(head)
        return self

    def __call__(self, outputs: Outputs) -> Score:
        weight = self.ready(self._weight)
        rows, logits = (
            features_of(outputs, self.name, weight.shape[1]),
            logits_of(outputs, self.name, len(weight)),
        )
        return narrow_scored(self._rule, rows, logits)

    def _rule(self, rows: Narrow, logits: Narrow) -> Narrow:
        over = self.product(np.maximum(rows - self._clip, 0), 1 - self.percentile / 100)
        return -logsumexp(np.subtract(logits, over, out=over))


class _Pruned(_Headed):
    """The base of scorers that keep the largest features of each image.

    They keep n - round(n * percentile / 100) of its n features; of equal ones the first are kept.
    """

    def __init__(self, percentile: float = 90) -> None:
        super().__init__()
        self.percentile = percent(percentile, type(self).__name__)

    def kept(self, rows: Narrow) -> NDArray[np.bool_]:
        """Return which features of each row are kept."""
        wide = rows.shape[1]
        keep = max(1, wide - round(wide * self.percentile / 100))
        least = np.partition(rows, wide - keep, axis=1)[:, wide - keep, None]
        kept = np.asarray(rows >= least)
        if np.count_nonzero(kept) > keep * len(rows):
            above, tied = rows > least, rows == least
            kept = above | (tied & (np.cumsum(tied, axis=1) <= keep - above.sum(axis=1, keepdims=True)))
        return kept

    @staticmethod
    def ratio(rows: NDArray[Real], part: NDArray[Real]) -> NDArray[Real]:
        """Return the sum of all features divided by the sum of those kept; 1 where the latter is 0."""
        whole, some = rows.sum(axis=1, keepdims=True), part.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(whole, some, out=np.ones_like(whole), where=some != 0))

    def shape(self, rows: Narrow) -> Narrow:
        """Return the features that the last layer gets in place of ``rows``."""
        return rows

    def __call__(self, outputs: Outputs) -> Score:
        rows = features_of(outputs, self.name, self.ready(self._weight).shape[1])
        bias = self.ready(self._bias).astype(np.float32)
        share = 1 - self.percentile / 100
        return narrow_scored(lambda rows: -logsumexp(self.product(self.shape(rows), share) + bias), rows)


@add_scorer
class ash_p(_Pruned):
    """Energy with all but the largest features set to 0 (Djurisic et al. 2023)."""

    def shape(self, rows: Narrow) -> Narrow:
        return np.asarray(rows * self.kept(rows))


@add_scorer
class ash_b(_Pruned):
    """Energy with the sum of all features shared out evenly among the largest (Djurisic et al. 2023)."""

    ranges: ClassVar = {"percentile": (65, 70, 75, 80, 85, 90, 95)}

    def shape(self, rows: Narrow) -> Narrow:
        kept = self.kept(rows)
        return np.asarray(
            kept * (rows.sum(axis=1) / np.count_nonzero(kept, axis=1).astype(np.float32))[:, None]
        )


@add_scorer
class ash_s(_Pruned):
    """Energy with only the largest features, scaled by exp(sum of all / sum of those kept)
    (Djurisic et al. 2023).
    """

    def shape(self, rows: Narrow) -> Narrow:
        part = rows * self.kept(rows)
        return np.asarray(part * np.exp(np.minimum(self.ratio(rows, part), MOST)))


@add_scorer
class scale(_Pruned):
    """Energy with all features scaled by exp(sum of all / sum of the largest) (Xu et al. 2024).

    Scaling features by s turns logits l into s (l - bias) + bias, so no product with the weights is needed.
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
            part = rows * self.kept(rows.astype(np.float32))
            return -logsumexp(np.exp(self.ratio(rows, part)) * (logits - bias) + bias)

        return scored(rule, rows, logits)


@add_scorer
class dice(_Headed):
    """Energy with only the weights whose contribution to training images is above a
    ``percentile`` (Sun and Li 2022).
    """

    needs: ClassVar = frozenset({"training", "features", "head"})

    def __init__(self, percentile: float = 90) -> None:
        super().__init__()
        self.percentile = percent(percentile, "dice")

    def fit(self, batches: Batches = (), head: Head | None = None) -> Self:
        moments = Moments()
        for seen in self.training(batches):
            moments.add(seen.features, products=False)
        weight, self._bias = self.head(head)
        given = weight * moments.mean
        self._weight = np.where(given > np.percentile(given, self.percentile), weight, 0)
        return self

    def __call__(self, outputs: Outputs) -> Score:
        weight, bias = self.ready(self._weight), self.ready(self._bias)
        rows = features_of(outputs, self.name, weight.shape[1])
        return scored(lambda rows: -logsumexp(rows @ weight.T + bias), rows)
