"""Conformity scores of classes, and thresholds: split conformal prediction.

A class is in the prediction set of an image if its score is at most the threshold, which is a quantile of the
scores of the correct classes of calibration images. Where an image accepts several classes, its score is the
lowest of theirs: the set covers it if it contains one of them.

- ``thr``: 1 - p (Sadinle, Lei and Wasserman, JASA 2019);
- ``aps``: the probability of all likelier classes plus a random share of its own (Romano, Sesia and Candès,
  NeurIPS 2020);
- ``raps``: the same plus a penalty for each rank beyond the fifth (Angelopoulos et al., ICLR 2021).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# RAPS: the penalty per rank, and the rank beyond which it is paid; those of its paper for ImageNet.
PENALTY, FREE_RANKS = 0.01, 5


def thr(probabilities: Array, draw: Array) -> Array:
    """Return 1 - p of each class."""
    return 1 - probabilities


def aps(probabilities: Array, draw: Array) -> Array:
    """Return the probability of all likelier classes plus ``draw`` of the class itself.

    Of equally likely classes, the first counts as the likelier one.
    """
    order = np.argsort(-probabilities, axis=1, kind="stable")
    sorted_ = np.take_along_axis(probabilities, order, axis=1)
    before = np.cumsum(sorted_, axis=1) - sorted_
    scores = np.empty_like(probabilities)
    np.put_along_axis(scores, order, before + draw[:, None] * sorted_, axis=1)
    return scores


def raps(probabilities: Array, draw: Array) -> Array:
    """Return ``aps`` plus a penalty for each rank beyond the fifth."""
    order = np.argsort(-probabilities, axis=1, kind="stable")
    penalties = PENALTY * np.maximum(np.arange(1, probabilities.shape[1] + 1) - FREE_RANKS, 0)
    scores = aps(probabilities, draw)
    at_rank = np.take_along_axis(scores, order, axis=1) + penalties
    np.put_along_axis(scores, order, at_rank, axis=1)
    return scores


METHODS: Mapping[str, Callable[[Array, Array], Array]] = {"thr": thr, "aps": aps, "raps": raps}


def of_answers(scores: Array, right: Sequence[NDArray[np.int64]]) -> Array:
    """Return the lowest score of the correct classes of each image."""
    counts = np.fromiter(map(len, right), np.int64, len(right))
    rows = np.repeat(np.arange(len(right)), counts)
    flat = scores[rows, np.concatenate([*right, np.zeros(0, np.int64)])]
    lowest: Array = np.minimum.reduceat(flat, np.cumsum(counts) - counts)
    return lowest


def threshold(scores: Array, alpha: float) -> float:
    """Return the quantile of calibration scores that covers a further exchangeable image with probability
    1 - alpha at least; infinite if there are too few.

    Example:
        >>> threshold(np.arange(1.0, 20.0), 0.1), threshold(np.arange(3.0), 0.1)
        (18.0, inf)
    """
    rank = math.ceil((len(scores) + 1) * (1 - alpha) - 1e-12)
    return float(np.partition(scores, rank - 1)[rank - 1]) if rank <= len(scores) else math.inf


def weighted_thresholds(
    scores: Array, near: Array, asked: Array, bandwidth: float, alpha: float, batch: int = 256
) -> Array:
    """Return a threshold for each image from calibration images weighted by their distance to it.

    The weight of a calibration image is exp(-|difference of the two distances| / bandwidth), that of the
    image itself 1 (Barber et al., Annals of Statistics 2023). Infinite if the calibration images
    near it weigh too little.

    Args:
        scores: The scores of calibration images.
        near: Their distances.
        asked: The distances of the images.
        bandwidth: The scale of the weights.
        alpha: The share that may be missed.
        batch: Images at a time.
    """
    order = np.argsort(scores, kind="stable")
    scores, near = scores[order], near[order]
    ends = np.append(scores, np.inf)
    found = np.empty(len(asked))
    for start in range(0, len(asked), batch):
        part = asked[start : start + batch, None]
        weights = np.exp(-np.abs(part - near) / bandwidth)
        below = np.cumsum(weights, axis=1)
        needed = (1 - alpha) * (below[:, -1:] + 1) - 1e-12
        found[start : start + batch] = ends[(below < needed).sum(axis=1)]
    return found
