"""Zero-shot accuracy by each half of a decomposition, by PCA's halves and by the whole embedding.

Appendix B and table 3 of the IS-OOD paper. A good decomposition keeps the whole embedding's accuracy in the semantic half, and
leaves the covariate half near chance.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.errors import SoritesError
from sorites.measures._decompose import Decomposition
from sorites.measures._neighbours import directions

Array = NDArray[np.floating]
SHARE = 0.9
"""The share of the variance that the kept principal components account for."""


def zero_shot(images: Array, classes: Array) -> NDArray[np.int64]:
    """Return for each picture the class whose text is nearest by cosine."""
    if images.shape[1] != classes.shape[1]:
        raise SoritesError(f"pictures have {images.shape[1]} dimensions and texts {classes.shape[1]}: not the same space")
    similar = directions(images, "pictures") @ directions(classes, "class texts").T
    return np.asarray(similar.argmax(axis=1), np.int64)


def principal(grid: Array, axis: int) -> Array:
    """Return principal directions (l x kept) of labels x styles x l text features along one axis: 0 the labels, 1 the styles.

    The other axis is averaged out; directions that hold the first 90 % of the variance are kept.
    """
    means = np.asarray(grid, np.float64).mean(axis=1 - axis)
    _, weights, found = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)
    share = np.cumsum(weights**2) / np.sum(weights**2)
    return np.asarray(found[: int(np.searchsorted(share, SHARE)) + 1].T)


def accuracies(halves: Decomposition, images: Array, truth: NDArray[np.integer], classes: Array, grid: Array) -> pl.DataFrame:
    """Return zero-shot accuracy by part: ``whole``, ``semantic``, ``covariate``, ``pca_semantic``, ``pca_covariate``; with n.

    ``images`` are N x l, ``truth`` the place of each picture's class in ``classes`` (C x l texts), and ``grid`` the text
    features that PCA is made from (labels x styles x l).
    """
    meaning, appearance = principal(grid, 0), principal(grid, 1)
    parts = {
        "whole": (images, classes),
        "semantic": (halves.semantic(images), halves.semantic(classes)),
        "covariate": (halves.covariate(images), halves.covariate(classes)),
        "pca_semantic": (images @ meaning, classes @ meaning),
        "pca_covariate": (images @ appearance, classes @ appearance),
    }
    right = [float((zero_shot(*part) == truth).mean()) for part in parts.values()]
    return pl.DataFrame({"part": list(parts), "value": right, "n": [len(truth)] * len(parts)})
