"""OOD score from the direction of features: outside the training subspace, away from their class,
near a decision border.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np

from sorites.core import Batches, Head, Outputs, add_scorer
from sorites.core.errors import SoritesError
from sorites.scorers.base import (
    Bank,
    Fitted,
    Moments,
    Narrow,
    Score,
    Wide,
    above,
    features_of,
    logits_of,
    logsumexp,
    narrow_scored,
    scored,
    whole,
)

# ViM's scale is a mean over this many training images, chosen by a hash of their ids; with fewer
# images it is exact.
SAMPLE = 20_000


@add_scorer
class vim(Fitted):
    """Energy plus a virtual logit: the length of the features outside the ``dim`` main directions
    of the training images (Wang et al. 2022).

    Where the features have no more than ``dim`` directions, half of them are main. The origin is
    where the last layer gives 0.
    """

    needs: ClassVar = frozenset({"training", "features", "head"})
    ranges: ClassVar = {"dim": (256, 1000)}

    def __init__(self, dim: int = 256) -> None:
        self.dim = whole(dim, "vim", "dim")
        self._rest: Wide | None = None

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        weight, bias = self.head(head)
        moments, sample, tops = Moments(), Bank(SAMPLE), 0.0
        for seen in self.training(batches):
            moments.add(seen.features)
            sample.add(seen.features, seen.ids)
            tops += float(seen.logits.max(axis=1).astype(np.float64).sum())
        main = self._main(len(moments.total), moments.count)
        self._origin: Wide = -np.linalg.lstsq(weight, bias, rcond=1e-15)[0].astype(np.float64, copy=False)
        vectors = np.linalg.eigh(moments.scatter(self._origin))[1]
        rest = vectors[:, : len(vectors) - main]
        lengths = np.linalg.norm((sample.rows() - self._origin) @ rest, axis=1)
        self._alpha = tops / moments.count / lengths.mean()
        self._rest = rest
        return self

    def _main(self, wide: int, count: int) -> int:
        """Return the number of main directions; it is an error if there are not more training
        images than that.
        """
        main = self.dim if self.dim < wide else wide // 2
        if count <= main:
            raise SoritesError(
                f"scorer {self.name}: wanted more training images than its {main} main directions, got"
                f" {count}. Give more, or type vim(dim={max(1, count // 2)})"
            )
        return main

    def __call__(self, outputs: Outputs) -> Score:
        rest = self.ready(self._rest)
        beyond = self._origin @ rest

        def rule(rows: Narrow, logits: Narrow) -> Wide:
            apart = rows.astype(np.float64) @ rest - beyond
            return np.asarray(self._alpha * np.sqrt(np.einsum("nd,nd->n", apart, apart)) - logsumexp(logits))

        return narrow_scored(rule, features_of(outputs, self.name, len(rest)), logits_of(outputs, self.name))


class _Centred(Fitted, ABC):
    """The base of scorers that need the mean of the training features and the weights of the last layer."""

    needs: ClassVar = frozenset({"training", "features", "head"})
    _mean: Wide | None = None

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        moments = Moments()
        for seen in self.training(batches):
            moments.add(seen.features, products=False)
        self._weight = self.head(head)[0]
        self._mean = moments.mean
        return self

    @abstractmethod
    def rule(self, rows: Wide, logits: Wide) -> Wide:
        """Return the OOD score of rows of features and logits."""

    def __call__(self, outputs: Outputs) -> Score:
        mean = self.ready(self._mean)
        return scored(
            self.rule,
            features_of(outputs, self.name, len(mean)),
            logits_of(outputs, self.name, len(self._weight)),
        )


@add_scorer
class fdbd(_Centred):
    """Minus the mean distance to the decision borders over the distance from the training mean (Liu
    and Qin 2024).

    Two classes with the same weights have no border between them and count as 0.
    """

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        from scipy.spatial.distance import cdist

        super().fit(batches, head)
        apart = cdist(self._weight, self._weight)
        self._inverse = np.divide(1, apart, out=np.zeros_like(apart), where=apart > 0)
        return self

    def rule(self, rows: Wide, logits: Wide) -> Wide:
        best = logits.argmax(axis=1)
        behind = logits[np.arange(len(rows)), best][:, None] - logits
        borders = np.einsum("nc,nc->n", behind, self._inverse[best]) / (logits.shape[1] - 1)
        away = np.linalg.norm(rows - self.ready(self._mean), axis=1)
        return np.asarray(-borders / np.maximum(away, 1e-8))


@add_scorer
class nci(_Centred):
    """Distance of the features from the weights of the predicted class, in direction, and shortness
    of the features (Liu and Qin 2025).

    The score is minus the component of the class weights along the centred features, minus
    ``alpha`` times the L1 norm of the features.
    """

    ranges: ClassVar = {"alpha": (0.0001, 0.001, 0.01, 0.1)}

    def __init__(self, alpha: float = 0.0001) -> None:
        self.alpha = above(alpha, -1e-300, "nci", "alpha")

    def rule(self, rows: Wide, logits: Wide) -> Wide:
        centred = rows - self.ready(self._mean)
        along = np.einsum("nd,nd->n", centred, self._weight[logits.argmax(axis=1)])
        away = np.linalg.norm(centred, axis=1)
        turned = np.divide(along, away, out=np.zeros_like(along), where=away > 0)
        return np.asarray(-turned - self.alpha * np.abs(rows).sum(axis=1))


@add_scorer
class she(Fitted):
    """Minus the inner product with the stored pattern of the predicted class (Zhang et al. 2023).

    The pattern is the mean of the features of the training images of that class which are
    predicted correctly.
    """

    needs: ClassVar = frozenset({"training", "features"})
    _patterns: Wide | None = None

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        moments = Moments()
        for seen in self.training(batches):
            right = seen.logits.argmax(axis=1) == seen.labels
            if right.any():
                moments.add(seen.features[right], seen.labels[right], products=False)
        if not moments.count:
            raise SoritesError(
                f"scorer {self.name}: wanted labelled training images that the model gets right, got none"
            )
        self.fitted["classes"] = int((moments.counts > 0).sum())
        patterns = np.full(moments.totals.shape, np.nan)
        patterns[moments.counts > 0] = moments.class_means()
        self._patterns = patterns
        return self

    def __call__(self, outputs: Outputs) -> Score:
        patterns = self.ready(self._patterns)
        rows, logits = features_of(outputs, self.name, patterns.shape[1]), logits_of(outputs, self.name)
        best = np.unique(logits.argmax(axis=1))
        ood = best[(best >= len(patterns)) | np.isnan(patterns[np.minimum(best, len(patterns) - 1), 0])]
        if ood.size:
            raise SoritesError(f"scorer {self.name}: no training image of class {ood[0]} was predicted right")
        return scored(
            lambda rows, logits: -np.einsum("nd,nd->n", rows, patterns[logits.argmax(axis=1)]), rows, logits
        )
