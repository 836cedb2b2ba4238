"""Coefficients of agreement of any number of people: Krippendorff's alpha and Cohen's kappa, with intervals over pictures.

Krippendorff, "Content Analysis", chapter 12; Cohen, "A coefficient of agreement for nominal scales", 1960. Both are computed from
sums over pictures, so that an interval by resampling takes only other weights of the pictures.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
LEVEL = 0.95
CELLS = 4_000_000
"""The most weights that are drawn at a time."""
Array = NDArray[np.float64]
Weighed = Callable[[Array], Array]
"""From weights (one row per resample, one column per picture) to a value per resample; NaN where nothing could differ."""


def alpha(codes: Array, interval: bool = False) -> float:
    """Return Krippendorff's alpha of codes: one row per person, one column per picture, NaN where there is no answer."""
    return _once(alpha_weighed(codes, interval), codes)


def kappa(codes: Array) -> float:
    """Return the mean of Cohen's kappa over pairs of people, weighed by how many pictures both answered."""
    return _once(kappa_weighed(codes), codes)


def _once(weighed: Weighed, codes: Array) -> float:
    return float(weighed(np.ones((1, codes.shape[1])))[0]) if codes.shape[1] else float("nan")


def alpha_weighed(codes: Array, interval: bool = False) -> Weighed:
    """Return alpha as a function of weights: 1 less the disagreement seen over the one expected by chance."""
    values = np.unique(codes[~np.isnan(codes)])
    counts = np.stack([(codes == value).sum(axis=0) for value in values], axis=1).astype(float) if values.size else None
    if counts is None:
        return _nothing
    size = counts.sum(axis=1)
    counts[size < 2] = 0.0  # a picture that one person answered says nothing
    size[size < 2] = 0.0
    apart = (values[:, None] - values[None, :]) ** 2 if interval else 1.0 - np.eye(len(values))
    within = ((counts @ apart) * counts).sum(axis=1) / np.maximum(size - 1, 1)

    def weighed(weights: Array) -> Array:
        n, margins = weights @ size, weights @ counts
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = ((margins @ apart) * margins).sum(axis=1) / (n * (n - 1))
            return np.where(expected > 0, 1 - (weights @ within) / n / expected, np.nan)

    return weighed


def kappa_weighed(codes: Array) -> Weighed:
    """Return the mean kappa of pairs as a function of weights."""
    pairs = [(both, one, other) for one, other in combinations(codes, 2) if (both := ~np.isnan(one) & ~np.isnan(other)).any()]

    def weighed(weights: Array) -> Array:
        total, weight = np.zeros(len(weights)), np.zeros(len(weights))
        for both, one, other in pairs:
            value, n = _kappas(one[both], other[both], weights[:, both])
            known = ~np.isnan(value)
            total[known] += (value * n)[known]
            weight[known] += n[known]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(weight > 0, total / weight, np.nan)

    return weighed


def _kappas(one: Array, other: Array, weights: Array) -> tuple[Array, Array]:
    """Return Cohen's kappa of two people for each row of weights, and the pictures that it stands on."""
    values = np.unique(np.concatenate([one, other]))
    first, second = (some[:, None] == values[None, :] for some in (one, other))
    n = weights.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        same = weights @ (one == other) / n
        chance = ((weights @ first) * (weights @ second)).sum(axis=1) / n**2
        return np.where(chance < 1, (same - chance) / (1 - chance), np.nan), n


def _nothing(weights: Array) -> Array:
    return np.full(len(weights), np.nan)


def resampled(weighed: Weighed, n: int, seed: int = 0) -> tuple[float, float]:
    """Return the interval of a coefficient over ``n`` pictures drawn again with replacement; NaN where it mostly has no value."""
    if n < 2:
        return float("nan"), float("nan")
    rng, rows = np.random.default_rng(seed), max(1, CELLS // n)
    drawn = [
        weighed(rng.multinomial(n, np.full(n, 1 / n), min(rows, RESAMPLES - start)).astype(float))
        for start in range(0, RESAMPLES, rows)
    ]
    found = np.concatenate(drawn)
    found = found[~np.isnan(found)]
    if found.size < RESAMPLES / 2:
        return float("nan"), float("nan")
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
