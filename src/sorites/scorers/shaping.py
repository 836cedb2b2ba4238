"""Energy after the features, or the weights of the last layer, are shaped so that unusual activations count less.

All scorers here work on pooled features and the model's last linear layer.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sorites.core import Batches, Head, Outputs, add_scorer
from sorites.scorers._memory import Moments, Percentile
from sorites.scorers._rows import Fitted, Score, Wide, features_of, logits_of, logsumexp, percent, scored


class _Headed(Fitted):
    """The base of scorers that need the last linear layer and nothing else."""

    needs: ClassVar = frozenset({"features", "head"})

    def __init__(self) -> None:
        self._weight: Wide | None = None
        self._bias: Wide | None = None

    def fit(self, batches: Batches = (), head: Head | None = None) -> Self:
        self._weight, self._bias = self.head(head)
        self.fitted = {}
        return self

    def shape(self, rows: Wide) -> Wide:
        """Return the features that the last layer gets in place of ``rows``."""
        return rows

    def __call__(self, outputs: Outputs) -> Score:
        weight, bias = self.ready(self._weight), self.ready(self._bias)
        rows = features_of(outputs, self.name, weight.shape[1])
        return scored(lambda rows: -logsumexp(self.shape(rows) @ weight.T + bias), rows)


@add_scorer
class react(_Headed):
    """Energy with features clipped at a ``percentile`` of all training activations (Sun, Guo and Li 2021).

    The percentile is exact for up to four million activations, and within 0.05 % beyond.
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
        self._clip = activations.value(self.percentile)
        self._weight, self._bias = self.head(head)
        return self

    def shape(self, rows: Wide) -> Wide:
        return np.minimum(rows, self._clip)


class _Pruned(_Headed):
    """The base of scorers that keep the largest features of each picture.

    They keep n - round(n * percentile / 100) of its n features; of equal ones the first are kept.
    """

    def __init__(self, percentile: float = 90) -> None:
        super().__init__()
        self.percentile = percent(percentile, type(self).__name__)

    def kept(self, rows: Wide) -> NDArray[np.bool_]:
        """Return which features of each row are kept."""
        wide = rows.shape[1]
        keep = max(1, wide - round(wide * self.percentile / 100))
        plain = rows.astype(np.float32)  # as the features came: the order is the same, and float32 is faster to partition
        least = np.partition(plain, wide - keep, axis=1)[:, wide - keep, None]
        kept = plain >= least
        for i in np.flatnonzero(kept.sum(axis=1) > keep):
            tied = np.flatnonzero(plain[i] == least[i])
            kept[i, tied[keep - int((plain[i] > least[i]).sum()) :]] = False
        return np.asarray(kept)

    @staticmethod
    def ratio(rows: Wide, kept: NDArray[np.bool_]) -> Wide:
        """Return the sum of all features divided by the sum of those kept; 1 where the latter is 0."""
        total, part = rows.sum(axis=1, keepdims=True), np.einsum("nd,nd->n", rows, kept)[:, None]
        return np.asarray(np.divide(total, part, out=np.ones_like(total), where=part != 0))


@add_scorer
class ash_p(_Pruned):
    """Energy with all but the largest features set to 0 (Djurisic et al. 2023)."""

    def shape(self, rows: Wide) -> Wide:
        return np.asarray(rows * self.kept(rows))


@add_scorer
class ash_b(_Pruned):
    """Energy with the sum of all features shared out evenly among the largest (Djurisic et al. 2023)."""

    ranges: ClassVar = {"percentile": (65, 70, 75, 80, 85, 90, 95)}

    def shape(self, rows: Wide) -> Wide:
        kept = self.kept(rows)
        return np.asarray(kept * (rows.sum(axis=1) / kept.sum(axis=1))[:, None])


@add_scorer
class ash_s(_Pruned):
    """Energy with only the largest features, scaled by exp(sum of all / sum of those kept) (Djurisic et al. 2023)."""

    def shape(self, rows: Wide) -> Wide:
        kept = self.kept(rows)
        return np.asarray(rows * kept * np.exp(self.ratio(rows, kept)))


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
        rows, logits = features_of(outputs, self.name, weight.shape[1]), logits_of(outputs, self.name, len(bias))

        def rule(rows: Wide, logits: Wide) -> Wide:
            return -logsumexp(np.exp(self.ratio(rows, self.kept(rows))) * (logits - bias) + bias)

        return scored(rule, rows, logits)


@add_scorer
class dice(_Headed):
    """Energy with only the weights whose contribution to training pictures is above a ``percentile`` (Sun and Li 2022)."""

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
