"""Paired statistics: McNemar's test, its generalisation to clusters of images, Holm's correction, power.

All functions take plain arrays. The unit is the sample: its images under a shift are averaged before testing,
so images of one sample are never treated as independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, ndtr, ndtri

Array = NDArray[np.float64]

# Random sign flips of a test, in addition to the observed signs.
FLIPS = 9_999
# Every test uses this seed, so results are reproducible.
SEED = 0
# Number of signs drawn at a time.
CELLS_PER_BATCH = 1 << 22
# Probability of detecting a detectable drop.
POWER = 0.8


def mcnemar(lost: int, gained: int) -> float:
    """Return McNemar's exact two-sided p: a sign test of the flipped images."""
    n, fewer = lost + gained, min(lost, gained)
    return min(1.0, 2 * float(bdtr(fewer, n, 0.5))) if n else 1.0


def mcnemar_mid(lost: int, gained: int) -> float:
    """Return McNemar's two-sided mid-p, which counts half of the observed outcome.

    It is less conservative than the exact p and keeps its level in practice (Lancaster 1961; Fagerland,
    Lydersen & Laake 2013).
    """
    n, fewer = lost + gained, min(lost, gained)
    if not n:
        return 1.0
    below = float(bdtr(fewer - 1, n, 0.5)) if fewer else 0.0
    here = float(bdtr(fewer, n, 0.5)) - below
    return 1.0 if lost == gained else min(1.0, 2 * below + here)


def holm(values: Sequence[float]) -> list[float]:
    """Return Holm's (1979) corrected p values, in the order of ``values``."""
    p = np.asarray(values, np.float64)
    order = np.argsort(p, kind="stable")
    steps = p[order] * np.arange(len(p), 0, -1)
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(value) for value in corrected]


@dataclass(frozen=True)
class Flips:
    """A test of the means of several columns of differences, separately and jointly."""

    mean: Array
    error: Array
    """The standard error of each mean."""
    cautious: Array
    """The same with half a pair added to each discordant outcome, so that it is positive without flips."""
    p: Array
    """Two-sided p of each column alone."""
    critical: float
    """Critical value of the greatest studentised mean at the stated rate, if no true mean is above 0."""

    @property
    def above(self) -> NDArray[np.bool_]:
        """Return which means are above 0, at the stated family-wise rate of false alarms."""
        return np.asarray(self.mean > self.critical * self.error) & (self.mean > 0)

    @property
    def bound(self) -> Array:
        """Lower bounds of the means, jointly valid at one minus the stated rate."""
        return np.asarray(self.mean - self.critical * self.error)


def flips(columns: Array, rate: float = 0.05, draws: int = FLIPS) -> Flips:
    """Test by sign flips whether the means of columns are 0, and bound the greatest of them.

    If two models are equal, the sign of a sample's difference is random, and all its shifts flip together;
    hence the test is exact for any dependence between shifts. With one image per sample it is McNemar's
    exact test, and p is computed rather than drawn. The critical value is the ``1 - rate`` quantile of the
    greatest studentised mean (Westfall & Young 1993).

    Args:
        columns: Differences (samples x shifts). NaN counts as no difference, and not in n.
        rate: Family-wise rate of false alarms.
        draws: Number of random flips; with fewer possible outcomes, all are enumerated.
    """
    observed_cells = np.isfinite(columns)
    values, n = (
        np.where(observed_cells, columns, 0.0),
        np.maximum(observed_cells.sum(axis=0), 1).astype(np.float64),
    )
    square = (values**2).sum(axis=0) / n
    observed = _studentised(values.sum(axis=0)[None] / n, square, n)[0]
    drawn = np.concatenate([_studentised(signs @ values / n, square, n) for signs in _signs(values, draws)])
    single = np.isin(np.abs(values), (0, 1)).all(axis=0)
    p = np.where(single, _mcnemars(values), (np.abs(drawn) >= np.abs(observed) - 1e-9).mean(axis=0))
    mean = values.sum(axis=0) / n
    error = np.sqrt(np.maximum(square - mean**2, 0.0) / np.maximum(n - 1, 1))
    return Flips(mean, error, _cautious(values, square, n), p, _upper_point(drawn.max(axis=1), rate))


def _cautious(values: Array, square: Array, n: Array) -> Array:
    """Return the standard error of ``paired_interval`` (Agresti & Min 2005)."""
    scale = (square * n + 1) / (np.abs(values).sum(axis=0) + 1)
    more = n + 2 * scale
    spread = (square * n + scale) / more - (values.sum(axis=0) / more) ** 2
    return np.asarray(np.sqrt(np.maximum(spread, 0.0) / more))


def _mcnemars(values: Array) -> Array:
    return np.array([mcnemar(int((column > 0).sum()), int((column < 0).sum())) for column in values.T])


def _studentised(mean: Array, square: Array, n: Array) -> Array:
    """Return means divided by their standard errors.

    Sign flips keep the mean square, so the variance follows from the mean.
    """
    spread = np.maximum(square - mean**2, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        studentised = mean * np.sqrt(np.maximum(n - 1, 1)) / np.sqrt(spread)
    return np.where(np.abs(mean) < 1e-12, 0.0, studentised)


def _signs(values: Array, draws: int) -> list[Array]:
    """Return sign matrices in batches: all outcomes if there are few, else the observed and random signs.

    Samples without any difference do not matter and keep their sign.
    """
    differing = np.flatnonzero((values != 0).any(axis=1))
    if 2 ** min(len(differing), 40) <= draws + 1:
        outcomes = np.arange(2 ** len(differing))
        every = np.ones((len(outcomes), len(values)))
        every[:, differing] = 1 - 2 * ((outcomes[:, None] >> np.arange(len(differing))) & 1)
        return [every]
    rng, batch = np.random.default_rng(SEED), max(1, CELLS_PER_BATCH // len(values))
    sizes = [min(batch, draws - start) for start in range(0, draws, batch)]
    drawn = [2.0 * rng.integers(0, 2, (size, len(values)), np.int8) - 1 for size in sizes]
    return [np.ones((1, len(values))), *drawn]


def _upper_point(values: Array, rate: float) -> float:
    """Return the least value exceeded by at most a share ``rate`` of the outcomes."""
    ordered = np.sort(values)
    return float(ordered[min(len(ordered) - 1, int(np.ceil((1 - rate) * len(ordered) - 1e-9)) - 1)])


def detectable(error: float, critical: float, power: float = POWER) -> float:
    """Return the mean that a test with this standard error and critical value detects with this power."""
    return (critical + float(ndtri(power))) * error


def detectable_mean(error: float, critical: float, rate: float, most: float = 1.0) -> float | None:
    """Return the mean detected with 80 % power, or None if it would exceed ``most``.

    The critical value is at least that of a normal test at this rate, since flips give 0 if no prediction
    differs.
    """
    mean = detectable(error, max(critical, float(ndtri(1 - rate))))
    return mean if mean <= most else None


def power_of(mean: float, error: float, critical: float) -> float:
    """Return the probability that a test detects a true mean."""
    return float(ndtr(mean / error - critical)) if error > 0 else float(mean > 0)
