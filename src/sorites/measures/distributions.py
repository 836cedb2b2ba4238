"""Distances between two sets of features: the Fréchet distance and the kernel distance.

FID (Heusel et al. 2017) and KID (Binkowski et al. 2018) use Inception's features; these accept the
features of any model.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError

Rows = NDArray[np.floating]
Z = 1.959963984540054
# Random half samples for an interval.
HALF_SAMPLES = 40


def frechet(one: Rows, other: Rows) -> float:
    """Return |m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)) of two sets of features, N x D and M x D.

    The trace of the root is the sum of the singular values of the product of the centred sets or, for
    small D, of the square roots of the eigenvalues of a symmetric matrix with the spectrum of C1 C2.
    Neither needs a matrix square root, which may be complex.
    """
    a, b = _check_pair(one, other)
    first, second = a - a.mean(0), b - b.mean(0)
    scale = (len(a) - 1) * (len(b) - 1)
    if min(len(a), len(b)) <= a.shape[1]:
        root = np.linalg.svd(first @ second.T, compute_uv=False).sum() / np.sqrt(scale)
    else:
        values, vectors = np.linalg.eigh(first.T @ first)
        half = vectors * np.sqrt(values.clip(0)) @ vectors.T
        root = np.sqrt(np.linalg.eigvalsh(half @ (second.T @ second) @ half).clip(0)).sum() / np.sqrt(scale)
    spread = (first**2).sum() / (len(a) - 1) + (second**2).sum() / (len(b) - 1)
    return float(max(0.0, ((a.mean(0) - b.mean(0)) ** 2).sum() + spread - 2 * root))


def kernel(one: Rows, other: Rows) -> float:
    """Return the unbiased squared kernel distance with (x y / D + 1)^3; near 0, possibly negative, for
    similar sets.
    """
    a, b = _check_pair(one, other)
    width = a.shape[1]
    kernel_matrices = [((part @ part.T / width + 1) ** 3, len(part)) for part in (a, b)]
    within = sum((matrix.sum() - np.trace(matrix)) / (n * (n - 1)) for matrix, n in kernel_matrices)
    return float(within - 2 * ((a @ b.T / width + 1) ** 3).mean())


def with_interval(
    distance: Callable[[Rows, Rows], float], one: Rows, other: Rows, seed: int = 0
) -> tuple[float, float, float]:
    """Return a distance and its 95 % interval, from the spread over half samples of both sets.

    When half of the images are left out, the variance over half samples equals that of the whole set
    (delete-d jackknife, Shao & Wu 1989).
    """
    value, rng = distance(one, other), np.random.default_rng(seed)
    if min(len(one), len(other)) < 4:
        return value, float("nan"), float("nan")
    distances = []
    for _ in range(HALF_SAMPLES):
        parts = [rows[rng.permutation(len(rows))[: max(2, len(rows) // 2)]] for rows in (one, other)]
        distances.append(distance(parts[0], parts[1]))
    half_width = Z * float(np.std(distances, ddof=1))
    return value, value - half_width, value + half_width


def _check_pair(one: Rows, other: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, b = _check(one), _check(other)
    if a.shape[1] != b.shape[1]:
        raise SoritesError(f"expected features of one width, got {a.shape[1]} and {b.shape[1]}")
    return a, b


def _check(rows: Rows) -> NDArray[np.float64]:
    features = np.asarray(rows, np.float64)
    if features.ndim != 2 or len(features) < 2 or not np.isfinite(features).all():
        raise SoritesError(f"expected finite features of two or more images, got shape {features.shape}")
    return features
