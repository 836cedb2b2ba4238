"""OOD scores from the Mahalanobis distance to the nearest class mean; all classes share one covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from sorites.core import Batches, Head, Outputs, add_scorer
from sorites.core.errors import SoritesError, TooFewImages
from sorites.core.messages import option
from sorites.scorers.base import Fitted, Moments, Score, Wide, features_of, scored

# Directions with less than this share of the largest variance are treated as constant and left out, as in a
# pseudo-inverse of the covariance.
MIN_RELATIVE_VARIANCE = 1e-10


@dataclass(frozen=True)
class Whitening:
    """A whitening transform: ``shape`` maps deviations from ``centre`` to units with identity covariance."""

    centre: Wide
    shape: Wide

    def __call__(self, rows: Wide) -> Wide:
        return np.asarray((rows - self.centre) @ self.shape)


def whitening(centre: Wide, covariance: Wide, scorer: str) -> Whitening:
    """Return the whitening transform of a covariance without its constant directions."""
    values, vectors = np.linalg.eigh(covariance)
    varying = values > MIN_RELATIVE_VARIANCE * max(values[-1], 0)
    if not varying.any() or values[-1] <= 0:
        raise SoritesError(
            f"scorer {scorer}: expected training images that differ within their classes; use more images"
            " of each class"
        )
    return Whitening(centre, vectors[:, varying] / np.sqrt(values[varying]))


class _ClassMeans(Fitted):
    """Base class of the Mahalanobis scorers: it holds the whitened class means.

    Training images without a label are ignored, and a class without training images has no mean.
    """

    needs: ClassVar = frozenset({"training", "features"})

    def __init__(self) -> None:
        self._whitening: Whitening | None = None

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        moments = Moments()
        for batch in self.training(batches):
            labelled = batch.labels >= 0
            if labelled.any():
                moments.add(batch.features[labelled], batch.labels[labelled])
        if not moments.count:
            raise SoritesError(
                f"scorer {self.name}: expected training images with labels of the model's classes, got none"
            )
        self.fitted["images"] = moments.count
        self.fitted["classes"] = int((moments.counts > 0).sum())
        self._check_spread(moments)
        self.note = self._note_few_images(moments)
        self._whitening = whitening(moments.mean, moments.within(), self.name)
        self._means = self._whitening(moments.class_means())
        self._squares = np.einsum("cd,cd->c", self._means, self._means)
        self._fit_background(moments)
        return self

    def _check_spread(self, moments: Moments) -> None:
        """Raise an error if the covariance within classes cannot be estimated.

        With one image per class, or with identical images, the covariance is only rounding error, and
        distances of 1e18 would follow.
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
                f"scorer {self.name}: expected at least two different training images per class, got"
                f" {images} of {classes} classes; use more with {option('fit', 'SOURCE')}, or use a scorer"
                " without class means, such as knn"
            )

    def _note_few_images(self, moments: Moments) -> str:
        """Return a warning if there are fewer images than dimensions of the varying features, else ""."""
        varies = np.diag(moments.scatter(moments.mean))
        degrees_of_freedom, dimensions = (
            self.fitted["images"] - self.fitted["classes"],
            int((varies > MIN_RELATIVE_VARIANCE * varies.max()).sum()),
        )
        if degrees_of_freedom >= dimensions:
            return ""
        return (
            f"{self.name} was fitted on {self.fitted['images']} images of {self.fitted['classes']}"
            f" classes, which span {degrees_of_freedom} of {dimensions} directions of the features:"
            " images that are OOD only in other directions are not detected"
        )

    def _fit_background(self, moments: Moments) -> None:
        """Fit the distribution that class distances are compared with; the default has none."""

    def _nearest(self, rows: Wide) -> Wide:
        """Return the squared distance to the nearest class mean."""
        whitened = self.ready(self._whitening)(rows)
        to_means = self._squares - 2 * (whitened @ self._means.T)
        return np.asarray(np.einsum("nd,nd->n", whitened, whitened) + to_means.min(axis=1))

    def _score(self, rows: Wide) -> Wide:
        return self._nearest(rows)

    def __call__(self, outputs: Outputs) -> Score:
        whitening = self.ready(self._whitening)
        return scored(self._score, features_of(outputs, self.name, len(whitening.centre)))


@add_scorer
class mds(_ClassMeans):
    """Squared Mahalanobis distance to the nearest class mean (Lee et al. 2018)."""


@add_scorer
class rmds(_ClassMeans):
    """Squared Mahalanobis distance to the nearest class mean minus that to a single Gaussian (Ren et al.
    2021).
    """

    def _fit_background(self, moments: Moments) -> None:
        self._all = whitening(moments.mean, moments.scatter(moments.mean), self.name)

    def _score(self, rows: Wide) -> Wide:
        whitened = self._all(rows)
        return np.asarray(self._nearest(rows) - np.einsum("nd,nd->n", whitened, whitened))
