"""OOD score as the Mahalanobis distance to the nearest class, where all classes share one covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from sorites.core import Batches, Head, Outputs, add_scorer
from sorites.core.errors import SoritesError, TooFewImages
from sorites.scorers.base import Fitted, Moments, Score, Wide, features_of, scored

# Training images count as constant in a direction with less than this share of the largest
# variance. Such a direction is left out, as the pseudo-inverse of the covariance leaves it out.
FLAT = 1e-10


@dataclass(frozen=True)
class Whitening:
    """A whitening transform: ``shape`` takes differences from ``centre`` to units in which the
    covariance is the identity.
    """

    centre: Wide
    shape: Wide

    def __call__(self, rows: Wide) -> Wide:
        return np.asarray((rows - self.centre) @ self.shape)


def whitening(centre: Wide, covariance: Wide, who: str) -> Whitening:
    """Return the whitening transform of a covariance, without the directions in which it is flat."""
    values, vectors = np.linalg.eigh(covariance)
    used = values > FLAT * max(values[-1], 0)
    if not used.any() or values[-1] <= 0:
        raise SoritesError(
            f"scorer {who}: wanted training images that differ within their classes; give more of each class"
        )
    return Whitening(centre, vectors[:, used] / np.sqrt(values[used]))


class _Classes(Fitted):
    """The base of the Mahalanobis scorers, which holds the whitened class means.

    Training images without a label are not used, and a class without training images has no mean.
    """

    needs: ClassVar = frozenset({"training", "features"})

    def __init__(self) -> None:
        self._whitening: Whitening | None = None

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        moments = Moments()
        for seen in self.training(batches):
            labelled = seen.labels >= 0
            if labelled.any():
                moments.add(seen.features[labelled], seen.labels[labelled])
        if not moments.count:
            raise SoritesError(
                f"scorer {self.name}: wanted training images with labels that the model knows, got none"
            )
        self.fitted["images"] = moments.count
        self.fitted["classes"] = int((moments.counts > 0).sum())
        self._refuse(moments)
        self.note = self._seen(moments)
        self._whitening = whitening(moments.mean, moments.within(), self.name)
        self._means = self._whitening(moments.class_means())
        self._squares = np.einsum("cd,cd->c", self._means, self._means)
        self._background(moments)
        return self

    def _refuse(self, moments: Moments) -> None:
        """Refuse training images whose spread within their classes cannot be told: too few of
        them, or all alike.

        The covariance follows from images minus classes. Of one image per class it is the
        rounding of a difference that should be 0, and distances of 1e18 come of it.
        """
        images, classes = self.fitted["images"], self.fitted["classes"]
        rounding = (
            np.finfo(np.float64).eps
            * len(moments.total)
            * float(np.diag(moments.products).max())
            / moments.count
        )
        if images < 2 * classes or float(np.diag(moments.within()).max()) <= rounding:
            raise TooFewImages(
                f"scorer {self.name}: wanted at least two different training images per class, got"
                f" {images} of {classes} classes; give more with --fit SOURCE, or take a scorer that needs"
                " no classes, such as knn"
            )

    def _seen(self, moments: Moments) -> str:
        """Say where the images are fewer than the directions that a covariance of the features
        that vary has.
        """
        varies = np.diag(moments.scatter(moments.mean))
        free, wide = (
            self.fitted["images"] - self.fitted["classes"],
            int((varies > FLAT * varies.max()).sum()),
        )
        if free >= wide:
            return ""
        return (
            f"{self.name} was fitted on {self.fitted['images']} images of {self.fitted['classes']}"
            f" classes, which show {free} of {wide} directions of the features: images that are OOD in"
            " another direction are not seen"
        )

    def _background(self, moments: Moments) -> None:
        """Fit what the classes are compared with; by default there is nothing."""

    def _nearest(self, rows: Wide) -> Wide:
        """Return the squared distance to the nearest class mean."""
        round_ = self.ready(self._whitening)(rows)
        to_means = self._squares - 2 * (round_ @ self._means.T)
        return np.asarray(np.einsum("nd,nd->n", round_, round_) + to_means.min(axis=1))

    def _score(self, rows: Wide) -> Wide:
        return self._nearest(rows)

    def __call__(self, outputs: Outputs) -> Score:
        used = self.ready(self._whitening)
        return scored(self._score, features_of(outputs, self.name, len(used.centre)))


@add_scorer
class mds(_Classes):
    """Squared Mahalanobis distance to the nearest class mean (Lee et al. 2018)."""


@add_scorer
class rmds(_Classes):
    """Squared Mahalanobis distance to the nearest class mean, minus that to one Gaussian of all
    training images (Ren et al. 2021).
    """

    def _background(self, moments: Moments) -> None:
        self._all = whitening(moments.mean, moments.scatter(moments.mean), self.name)

    def _score(self, rows: Wide) -> Wide:
        whole = self._all(rows)
        return np.asarray(self._nearest(rows) - np.einsum("nd,nd->n", whole, whole))
