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


BLOCK = 1024
"""The number of pictures compared with all classes at a time: with 21 000 classes, 90 MB of similarities."""
TOP = 5
"""The classes among which the right one counts for the second accuracy."""


def zero_shot(images: Array, classes: Array) -> NDArray[np.int64]:
    """Return for each picture the class whose text is nearest by cosine."""
    return nearest(images, classes, 1)[:, 0]


def nearest(images: Array, classes: Array, count: int = TOP) -> NDArray[np.int64]:
    """Return for each picture the ``count`` classes whose texts are nearest by cosine, best first; all where there are fewer."""
    if images.shape[1] != classes.shape[1]:
        raise SoritesError(f"pictures have {images.shape[1]} dimensions and texts {classes.shape[1]}: not the same space")
    seen, named = directions(images, "pictures"), directions(classes, "class texts")
    parts = [_best(seen[start : start + BLOCK] @ named.T, count) for start in range(0, len(seen), BLOCK)]
    return np.concatenate(parts) if parts else np.empty((0, min(count, len(classes))), np.int64)


def _best(similar: Array, count: int) -> NDArray[np.int64]:
    """Return the places of the largest of each row, best first; the first of equals wins, as with argmax."""
    if count == 1:
        return np.asarray(similar.argmax(axis=1), np.int64)[:, None]
    few = np.sort(np.argpartition(-similar, min(count, similar.shape[1]) - 1, axis=1)[:, :count], axis=1)
    order = np.argsort(-np.take_along_axis(similar, few, axis=1), axis=1, kind="stable")
    return np.asarray(np.take_along_axis(few, order, axis=1), np.int64)


def principal(means: Array) -> Array:
    """Return principal directions (l x kept) of text features, one row per label (or style), the styles (labels) averaged out.

    Directions that hold the first 90 % of the variance are kept.
    """
    rows = np.asarray(means, np.float64)
    _, weights, found = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    share = np.cumsum(weights**2) / np.sum(weights**2)
    return np.asarray(found[: int(np.searchsorted(share, SHARE)) + 1].T)


def accuracies(
    halves: Decomposition, images: Array, truth: NDArray[np.integer], classes: Array, means: tuple[Array, Array]
) -> pl.DataFrame:
    """Return zero-shot accuracy by part: ``whole``, ``semantic``, ``covariate``, ``pca_semantic``, ``pca_covariate``; with n.

    ``value`` is Acc@1 and ``top5`` Acc@5. ``images`` are N x l, ``truth`` the place of each picture's class in ``classes`` (C x l
    texts), and ``means`` the text features that PCA is made from: of each label over the styles, of each style over the labels.
    """
    meaning, appearance = (principal(part) for part in means)
    parts = {
        "whole": (images, classes),
        "semantic": (halves.semantic(images), halves.semantic(classes)),
        "covariate": (halves.covariate(images), halves.covariate(classes)),
        "pca_semantic": (images @ meaning, classes @ meaning),
        "pca_covariate": (images @ appearance, classes @ appearance),
    }
    places = [nearest(*part) == np.asarray(truth)[:, None] for part in parts.values()]
    first, five = (
        [float(right.mean()) for right in rights] for rights in ([p[:, 0] for p in places], [p.any(1) for p in places])
    )
    return pl.DataFrame({"part": list(parts), "value": first, "top5": five, "n": [len(truth)] * len(parts)})
