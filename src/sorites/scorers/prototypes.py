"""OOD scores that compare features with the class weights or with class prototypes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from sorites.core import Batches, Head, Outputs, add_scorer
from sorites.core.errors import SoritesError
from sorites.scorers.base import (
    Bank,
    Fitted,
    Moments,
    Score,
    Wide,
    above,
    features_of,
    logits_of,
    logsumexp,
    scored,
    whole,
)
from sorites.scorers.knn import directions


class _Centred(Fitted, ABC):
    """Base class of scorers that use the mean of the training features and the weights of the last layer."""

    needs: ClassVar = frozenset({"training", "features", "head"})
    _mean: Wide | None = None

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        moments = Moments()
        for batch in self.training(batches):
            moments.add(batch.features, products=False)
        self._weight = self.head(head)[0]
        self._mean = moments.mean
        return self

    @abstractmethod
    def rule(self, rows: Wide, logits: Wide) -> Wide:
        """Return the OOD scores of rows of features and logits."""

    def __call__(self, outputs: Outputs) -> Score:
        mean = self.ready(self._mean)
        return scored(
            self.rule,
            features_of(outputs, self.name, len(mean)),
            logits_of(outputs, self.name, len(self._weight)),
        )


@add_scorer
class fdbd(_Centred):
    """Negative mean distance to the decision boundaries, relative to the distance from the training mean (Liu
    and Qin 2024).

    Two classes with equal weights have no boundary between them and count as 0.
    """

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        from scipy.spatial.distance import cdist

        super().fit(batches, head)
        distances = cdist(self._weight, self._weight)
        self._inverse = np.divide(1, distances, out=np.zeros_like(distances), where=distances > 0)
        return self

    def rule(self, rows: Wide, logits: Wide) -> Wide:
        predicted = logits.argmax(axis=1)
        margins = logits[np.arange(len(rows)), predicted][:, None] - logits
        boundary_distance = np.einsum("nc,nc->n", margins, self._inverse[predicted]) / (logits.shape[1] - 1)
        mean_distance = np.linalg.norm(rows - self.ready(self._mean), axis=1)
        return np.asarray(-boundary_distance / np.maximum(mean_distance, 1e-8))


@add_scorer
class nci(_Centred):
    """Alignment of the centred features with the weights of the predicted class, and the L1 norm of the
    features (Liu and Qin 2025).

    The score is minus the component of the class weights along the centred features, minus ``alpha`` times
    the L1 norm of the features.
    """

    ranges: ClassVar = {"alpha": (0.0001, 0.001, 0.01, 0.1)}

    def __init__(self, alpha: float = 0.0001) -> None:
        self.alpha = above(alpha, -1e-300, "nci", "alpha")

    def rule(self, rows: Wide, logits: Wide) -> Wide:
        centred = rows - self.ready(self._mean)
        products = np.einsum("nd,nd->n", centred, self._weight[logits.argmax(axis=1)])
        lengths = np.linalg.norm(centred, axis=1)
        alignment = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
        return np.asarray(-alignment - self.alpha * np.abs(rows).sum(axis=1))


@dataclass(frozen=True)
class _Residuals:
    """What ``core`` learns: unit class weights, unit mean residuals per class, and means and standard
    deviations of the two scores of training images.
    """

    weights: Wide
    means: Wide
    centre: Wide
    spread: Wide


@add_scorer
class core(Fitted):
    """Sum of the standardised energy and the standardised residual score, rebuilt from descriptions of CORE
    (Yang, Kim and Bahk 2026).

    It is not verified: neither the paper's formulas nor code of its authors could be read, so its numbers
    may differ from theirs. The residual is the part of the features orthogonal to the weights of the
    predicted class; its score is the cosine with the mean residual of the training images of that class.
    Both scores are standardised by mean and standard deviation over the training images. A class without
    labelled training images has a cosine of 0. The training images that set mean and deviation are at most
    ``bank``.
    """

    needs: ClassVar = frozenset({"training", "features", "head"})
    _learnt: _Residuals | None = None

    def __init__(self, bank: int = 50_000) -> None:
        self.bank = whole(bank, "core", "bank")

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        weights = directions(self.head(head)[0])
        moments, sample = Moments(), Bank(self.bank)
        for batch in self.training(batches):
            sample.add(np.concatenate([batch.features, batch.logits], axis=1), batch.ids)
            labelled = (batch.labels >= 0) & (batch.labels < len(weights))
            if labelled.any():
                moments.add(batch.features[labelled], batch.labels[labelled], products=False)
        if not moments.count:
            raise SoritesError(
                f"scorer {self.name}: expected training images with labels of the model's classes, got none"
            )
        means = np.zeros((len(weights), weights.shape[1]))
        present = np.flatnonzero(moments.counts > 0)
        of_class = moments.class_means()
        along = np.einsum("cd,cd->c", of_class, weights[present])
        means[present] = directions(of_class - along[:, None] * weights[present])
        rows = np.asarray(sample.rows(), np.float64)
        width = weights.shape[1]
        scores = self._parts(rows[:, :width], rows[:, width:], weights, means)
        spread = scores.std(axis=0)
        self._learnt = _Residuals(weights, means, scores.mean(axis=0), np.where(spread > 0, spread, 1))
        return self

    @staticmethod
    def _parts(rows: Wide, logits: Wide, weights: Wide, means: Wide) -> Wide:
        """Return the confidence (negative energy) and the residual score of each row, N x 2."""
        predicted = logits.argmax(axis=1)
        aligned = weights[predicted]
        rest = rows - np.einsum("nd,nd->n", rows, aligned)[:, None] * aligned
        cosines = np.einsum("nd,nd->n", directions(rest), means[predicted])
        return np.stack([logsumexp(logits), cosines], axis=1)

    def __call__(self, outputs: Outputs) -> Score:
        learnt = self.ready(self._learnt)

        def rule(rows: Wide, logits: Wide) -> Wide:
            parts = self._parts(rows, logits, learnt.weights, learnt.means)
            return np.asarray(-((parts - learnt.centre) / learnt.spread).sum(axis=1))

        return scored(
            rule,
            features_of(outputs, self.name, learnt.weights.shape[1]),
            logits_of(outputs, self.name, len(learnt.weights)),
        )


@add_scorer
class she(Fitted):
    """Negative inner product with the stored pattern of the predicted class (Zhang et al. 2023).

    The pattern of a class is the mean of the features of its correctly classified training images.
    """

    needs: ClassVar = frozenset({"training", "features"})
    _patterns: Wide | None = None

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        moments = Moments()
        for batch in self.training(batches):
            correct = batch.logits.argmax(axis=1) == batch.labels
            if correct.any():
                moments.add(batch.features[correct], batch.labels[correct], products=False)
        if not moments.count:
            raise SoritesError(
                f"scorer {self.name}: expected labelled training images that the model classifies"
                " correctly, got none"
            )
        self.fitted["classes"] = int((moments.counts > 0).sum())
        patterns = np.full(moments.totals.shape, np.nan)
        patterns[moments.counts > 0] = moments.class_means()
        self._patterns = patterns
        return self

    def __call__(self, outputs: Outputs) -> Score:
        patterns = self.ready(self._patterns)
        rows, logits = features_of(outputs, self.name, patterns.shape[1]), logits_of(outputs, self.name)
        predicted = np.unique(logits.argmax(axis=1))
        unseen = predicted[
            (predicted >= len(patterns)) | np.isnan(patterns[np.minimum(predicted, len(patterns) - 1), 0])
        ]
        if unseen.size:
            raise SoritesError(
                f"scorer {self.name}: no training image of class {unseen[0]} was classified correctly"
            )
        return scored(
            lambda rows, logits: -np.einsum("nd,nd->n", rows, patterns[logits.argmax(axis=1)]), rows, logits
        )
