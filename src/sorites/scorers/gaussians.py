"""Strangeness as Mahalanobis distance to the nearest class, all classes sharing one covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from sorites.core import Batches, Head, Outputs, add_scorer
from sorites.errors import SoritesError
from sorites.scorers._memory import Moments
from sorites.scorers._rows import Fitted, Score, Wide, features_of, scored

FLAT = 1e-10
"""A direction with less than this share of the largest variance is one that training pictures do not vary in; it is left out,
as the pseudo-inverse of the covariance does."""


@dataclass(frozen=True)
class Ball:
    """A covariance made round: ``shape`` takes the distance from ``centre`` to units in which it is 1 every way."""

    centre: Wide
    shape: Wide

    def __call__(self, rows: Wide) -> Wide:
        return np.asarray((rows - self.centre) @ self.shape)


def ball(centre: Wide, covariance: Wide, who: str) -> Ball:
    values, vectors = np.linalg.eigh(covariance)
    held = values > FLAT * max(values[-1], 0)
    if not held.any() or values[-1] <= 0:
        raise SoritesError(f"scorer {who}: wanted training pictures that differ within their classes; give more of each class")
    return Ball(centre, vectors[:, held] / np.sqrt(values[held]))


class _Classes(Fitted):
    """Class means in round units. Training pictures without a label are not used; a class without any has no mean."""

    needs: ClassVar = frozenset({"training", "features"})

    def __init__(self) -> None:
        self._ball: Ball | None = None

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        moments = Moments()
        for seen in self.training(batches):
            labelled = seen.labels >= 0
            if labelled.any():
                moments.add(seen.features[labelled], seen.labels[labelled])
        if not moments.count:
            raise SoritesError(f"scorer {self.name}: wanted training pictures with labels that the model knows, got none")
        self.fitted["pictures"] = moments.count
        self.fitted["classes"] = int((moments.counts > 0).sum())
        self._ball = ball(moments.mean, moments.within(), self.name)
        self._means = self._ball(moments.class_means())
        self._squares = np.einsum("cd,cd->c", self._means, self._means)
        self._background(moments)
        return self

    def _background(self, moments: Moments) -> None:
        """For what is compared with the classes."""

    def _nearest(self, rows: Wide) -> Wide:
        """Squared distance to the nearest class mean."""
        round_ = self.ready(self._ball)(rows)
        to_means = self._squares - 2 * (round_ @ self._means.T)
        return np.asarray(np.einsum("nd,nd->n", round_, round_) + to_means.min(axis=1))

    def _score(self, rows: Wide) -> Wide:
        return self._nearest(rows)

    def __call__(self, outputs: Outputs) -> Score:
        held = self.ready(self._ball)
        return scored(self._score, features_of(outputs, self.name, len(held.centre)))


@add_scorer
class mds(_Classes):
    """Squared Mahalanobis distance to the nearest class mean (Lee et al. 2018)."""


@add_scorer
class rmds(_Classes):
    """Squared Mahalanobis distance to the nearest class mean, less that to all training pictures as one Gaussian
    (Ren et al. 2021)."""

    def _background(self, moments: Moments) -> None:
        self._all = ball(moments.mean, moments.scatter(moments.mean), self.name)

    def _score(self, rows: Wide) -> Wide:
        whole = self._all(rows)
        return np.asarray(self._nearest(rows) - np.einsum("nd,nd->n", whole, whole))
