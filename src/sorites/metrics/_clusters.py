"""Measure how well features of pictures cluster by class, and map them in two dimensions. NumPy alone, but for t-SNE.

Features are compared by cosine unless told otherwise: a dark or a washed-out picture gives shorter feature vectors, so that
Euclidean distances would measure the exposure beside the class. Under cosine every feature vector is first made unit length, and
centroids and maps are made of those. Nothing here is a metric: features are not in the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from sorites.errors import UnknownName

Array = NDArray[np.float64]
DISTANCES = ("cosine", "euclidean")
TSNE_STEPS, TSNE_PERPLEXITY, TSNE_LEAST = 500, 30.0, 10
"""The steps and the greatest perplexity of t-SNE, and the fewest points that are worth a map."""


def prepared(features: NDArray[np.floating], distance: str = "cosine") -> Array:
    """Return features (N x D) as double precision, of unit length where they are compared by cosine; zeros stay zeros."""
    if distance not in DISTANCES:
        raise UnknownName("distance of features", distance, DISTANCES, f"There are {' and '.join(DISTANCES)}.")
    rows = np.asarray(features, np.float64)
    if distance == "euclidean":
        return rows
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1)


def distances(rows: Array, distance: str = "cosine") -> Array:
    """Return the distances (N x N) between all pairs of prepared features; the cosine distance is 1 minus the cosine."""
    found: Array = cdist(rows, rows) if distance == "euclidean" else np.clip(1 - rows @ rows.T, 0, 2)
    np.fill_diagonal(found, 0)
    return found


def silhouette(apart: Array, labels: NDArray[np.integer]) -> tuple[float, float | None] | None:
    """Return the mean silhouette (Rousseeuw 1987) and its standard error, or None with fewer than two classes or no pair.

    A picture's silhouette is (b - a) / max(a, b): a is its mean distance to the others of its class, b that to the nearest other
    class; it is 0 for the only picture of a class. The error is the jackknife's over pictures, which holds although silhouettes
    share their neighbours; it is None where a class cannot be spared.
    """
    places = np.unique(labels, return_inverse=True)[1]
    counts = np.bincount(places)
    n, rows = len(places), np.arange(len(places))
    if len(counts) < 2 or len(counts) == n:
        return None
    sums = np.stack([apart[:, places == k].sum(axis=1) for k in range(len(counts))], axis=1)
    inside = sums[rows, places] / np.maximum(counts[places] - 1, 1)
    nearest = _Nearest.of(sums, places, counts)
    value = float(_silhouettes(inside, nearest.first, counts[places]).mean())
    left_out = np.array([_without(k, apart, places, counts, sums, nearest, inside) for k in range(n)])
    if not np.isfinite(left_out).all():
        return value, None
    return value, float(np.sqrt((n - 1) / n * np.sum((left_out - left_out.mean()) ** 2)))


@dataclass(frozen=True)
class _Nearest:
    """Each picture's mean distance to the nearest other class, which class that is, and the distance to the second nearest."""

    first: Array
    which: NDArray[np.integer]
    second: Array

    @classmethod
    def of(cls, sums: Array, places: NDArray[np.integer], counts: NDArray[np.integer]) -> _Nearest:
        rows, others = np.arange(len(places)), sums / counts
        others[rows, places] = np.inf
        which = others.argmin(axis=1)
        first = others[rows, which].copy()
        others[rows, which] = np.inf
        return cls(first, which, others.min(axis=1))


def _silhouettes(inside: Array, outside: Array, counts: NDArray[np.integer]) -> Array:
    widest = np.maximum(inside, outside)
    found: Array = np.where((counts > 1) & (widest > 0), (outside - inside) / np.where(widest > 0, widest, 1), 0.0)
    return found


def _without(
    k: int, apart: Array, places: NDArray[np.integer], counts: NDArray[np.integer], sums: Array, nearest: _Nearest, inside: Array
) -> float:
    """Return the mean silhouette without picture ``k``: only distances to its class change."""
    of, left = places[k], counts[places[k]] - 1
    if left == 0 and len(counts) == 2:
        return float("nan")
    nearer = sums[:, of] - apart[:, k]
    same = places == of
    within = np.where(same, nearer / max(left - 1, 1), inside)
    rest = np.where(nearest.which == of, nearest.second, nearest.first)
    beyond = np.where(same, nearest.first, np.minimum(rest, nearer / left if left else np.inf))
    keep = np.arange(len(places)) != k
    return float(_silhouettes(within, beyond, np.where(same, left, counts[places]))[keep].mean())


def nearest_centroid(rows: Array, labels: NDArray[np.integer]) -> tuple[float, int] | None:
    """Return the share of pictures that are nearest to the centroid of their own class, and how many were judged.

    Each picture is left out of its own centroid, so that chance stays chance; the only picture of a class is not judged.
    Distances are Euclidean between prepared features and the mean of a class. None without two classes or a picture to judge.
    """
    places = np.unique(labels, return_inverse=True)[1]
    counts = np.bincount(places)
    judged = counts[places] > 1
    if len(counts) < 2 or not judged.any():
        return None
    centroids = np.stack([rows[places == k].mean(axis=0) for k in range(len(counts))])
    apart = cdist(rows, centroids)
    own = np.arange(len(rows)), places
    apart[own] *= counts[places] / np.maximum(counts[places] - 1, 1)
    return float((apart.argmin(axis=1) == places)[judged].mean()), int(judged.sum())


def principal_map(rows: Array) -> tuple[Array, Array]:
    """Return the first two principal components of features (N x 2) and the share of the variance along each.

    The sign of a component is such that its greatest loading is positive, so that the same features give the same map.
    """
    centred = rows - rows.mean(axis=0)
    left, size, right = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    total = float((size**2).sum()) or 1.0
    found = (left * size * signs)[:, :2]
    return np.pad(found, ((0, 0), (0, 2 - found.shape[1]))), size[:2] ** 2 / total


def neighbour_map(rows: Array) -> Array | None:
    """Return t-SNE's map of features (N x 2; van der Maaten & Hinton 2008), or None without scikit-learn or for few points.

    It starts from the principal components, with a fixed seed, a fixed number of steps and one thread: several threads wait for
    each other longer than so small a map takes. Keep N to some hundreds: 300 points take about a second.
    """
    if len(rows) < TSNE_LEAST:
        return None
    try:
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits
    except ImportError:
        return None
    perplexity = min(TSNE_PERPLEXITY, (len(rows) - 1) / 3)
    with threadpool_limits(1):
        found: Array = TSNE(perplexity=perplexity, init="pca", random_state=0, max_iter=TSNE_STEPS).fit_transform(rows)
    return found
