"""Distances between two sets of features: Fréchet's of two normal distributions, and that of a
polynomial kernel.

Heusel et al. 2017 (FID) and Binkowski et al. 2018 (KID) take Inception's features; these take those
of any named model.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError

Rows = NDArray[np.floating]
Z = 1.959963984540054
# Half samples from which an interval follows.
HALVINGS = 40


def frechet(one: Rows, other: Rows) -> float:
    """Return |m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)) of two sets of features, N x D and M x D.

    The trace of the root is the sum of singular values of the product of the centred sets, or where
    D is smaller, of the roots of eigenvalues of a symmetric matrix that has those of C1 C2: neither
    needs a matrix root that may come out complex.
    """
    a, b = _checked(one), _checked(other)
    if a.shape[1] != b.shape[1]:
        raise SoritesError(f"expected features of one width, got {a.shape[1]} and {b.shape[1]}")
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
    """Return the unbiased squared distance under the kernel (x y / D + 1)^3; about 0, also below,
    where the sets are alike.
    """
    a, b = _checked(one), _checked(other)
    if a.shape[1] != b.shape[1]:
        raise SoritesError(f"expected features of one width, got {a.shape[1]} and {b.shape[1]}")
    width = a.shape[1]
    inside = [((part @ part.T / width + 1) ** 3, len(part)) for part in (a, b)]
    own = sum((matrix.sum() - np.trace(matrix)) / (n * (n - 1)) for matrix, n in inside)
    return float(own - 2 * ((a @ b.T / width + 1) ** 3).mean())


def with_interval(
    distance: Callable[[Rows, Rows], float], one: Rows, other: Rows, seed: int = 0
) -> tuple[float, float, float]:
    """Return a distance with the bounds of its 95 % interval, by the spread over half samples of both sets.

    With half of the images left out, the variance over halves is that of the whole (the delete-d
    jackknife, Shao & Wu 1989).
    """
    value, rng = distance(one, other), np.random.default_rng(seed)
    if min(len(one), len(other)) < 4:
        return value, float("nan"), float("nan")
    found = []
    for _ in range(HALVINGS):
        parts = [rows[rng.permutation(len(rows))[: max(2, len(rows) // 2)]] for rows in (one, other)]
        found.append(distance(parts[0], parts[1]))
    half = Z * float(np.std(found, ddof=1))
    return value, value - half, value + half


def _checked(rows: Rows) -> NDArray[np.float64]:
    found = np.asarray(rows, np.float64)
    if found.ndim != 2 or len(found) < 2 or not np.isfinite(found).all():
        raise SoritesError(f"expected finite features of two or more images, got shape {found.shape}")
    return found
