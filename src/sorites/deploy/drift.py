"""Two-sample tests: do new images come from the population of the reference images?

Both tests compare a statistic with its distribution over random relabellings of the images, so that their
false-alarm rate is at most the stated one for any distribution and any number of images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Relabellings of a test; the smallest p value is 1 / (1 + this).
SHUFFLES = 1999
SEED = 0
# Rows of each side that the test of features uses.
MAX_ROWS = 500
# Statistics are compared with this tolerance, because sums in another order differ in their last digits.
TIE = 1e-9

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TwoSample:
    """A two-sample test: its statistic, its p value, and the images of both sides."""

    name: str
    statistic: float
    p: float
    reference: int
    new: int


def compare_scores(reference: Array, new: Array, shuffles: int = SHUFFLES) -> TwoSample:
    """Compare scores by the largest difference of their distributions (Kolmogorov and Smirnov).

    Args:
        reference: Scores of reference images.
        new: Scores of new images.
        shuffles: Random relabellings.
    """
    values = np.concatenate([reference, new])
    order = np.argsort(values, kind="stable")
    last_of_ties = np.append(np.diff(values[order]) > 0, True)

    def statistic(is_new: NDArray[np.bool_]) -> Array:
        ranked = is_new[..., order]
        new_share = np.cumsum(ranked, axis=-1) / len(new)
        old_share = np.cumsum(~ranked, axis=-1) / len(reference)
        return np.asarray(np.abs(new_share - old_share)[..., last_of_ties].max(axis=-1))

    return _shuffled("scores", statistic, len(reference), len(new), shuffles)


def compare_features(
    reference: NDArray[np.float32], new: NDArray[np.float32], shuffles: int = SHUFFLES
) -> TwoSample:
    """Compare features by their energy distance, with features scaled by their standard deviation.

    At most ``MAX_ROWS`` rows of each side are used, the first of a random order.

    Args:
        reference: Features of reference images, N x D.
        new: Features of new images, M x D.
        shuffles: Random relabellings.
    """
    rng = np.random.default_rng(SEED)
    parts = [part[rng.permutation(len(part))[:MAX_ROWS]].astype(np.float64) for part in (reference, new)]
    rows = np.concatenate(parts)
    spread = rows.std(axis=0)
    rows = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1)
    squares = np.einsum("nd,nd->n", rows, rows)
    distances = np.sqrt(np.maximum(squares[:, None] + squares - 2 * (rows @ rows.T), 0))
    sizes = len(parts[0]), len(parts[1])
    total = float(distances.sum())

    def statistic(is_new: NDArray[np.bool_]) -> Array:
        chosen = is_new.astype(np.float64)
        inside = np.einsum("...n,...n->...", chosen @ distances, chosen)
        touching = chosen @ distances.sum(axis=1)
        outside = total - 2 * touching + inside
        between = touching - inside
        return np.asarray(
            2 * between / (sizes[0] * sizes[1]) - inside / sizes[1] ** 2 - outside / sizes[0] ** 2
        )

    return _shuffled("features", statistic, *sizes, shuffles)


def _shuffled(
    name: str, statistic: Callable[[NDArray[np.bool_]], Array], reference: int, new: int, shuffles: int
) -> TwoSample:
    is_new = np.arange(reference + new) >= reference
    observed = float(statistic(is_new))
    rng = np.random.default_rng(SEED)
    beyond, block = 0, max(1, (1 << 21) // len(is_new))
    for start in range(0, shuffles, block):
        count = min(block, shuffles - start)
        drawn = rng.permuted(np.tile(is_new, (count, 1)), axis=1)
        beyond += int((statistic(drawn) >= observed - TIE).sum())
    return TwoSample(name, observed, (1 + beyond) / (1 + shuffles), reference, new)
