"""Paired statistics: McNemar's test, its generalisation to samples with several images, Holm's
correction, and power.

Everything here takes plain arrays. A sample is the unit: its images along a dial are averaged
before anything is tested, so that images of one sample are never taken for independent ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, ndtr, ndtri

Array = NDArray[np.float64]

# Random flips of a test, beside the signs that were seen.
FLIPS = 9_999
# Every test draws its flips from this seed, so that the same question gets the same answer.
SEED = 0
# This many signs are drawn at a time.
CELLS = 1 << 22
# The chance with which a detectable drop is detected.
POWER = 0.8


def mcnemar(lost: int, gained: int) -> float:
    """Return McNemar's exact two-sided p: the sign test of the images that flipped."""
    n, fewer = lost + gained, min(lost, gained)
    return min(1.0, 2 * float(bdtr(fewer, n, 0.5))) if n else 1.0


def mcnemar_mid(lost: int, gained: int) -> float:
    """Return McNemar's two-sided mid-p (Lancaster 1961; Fagerland, Lydersen & Laake 2013): half of
    the seen outcome counts.

    It is less conservative than the exact p, and in practice keeps its level.
    """
    n, fewer = lost + gained, min(lost, gained)
    if not n:
        return 1.0
    below = float(bdtr(fewer - 1, n, 0.5)) if fewer else 0.0
    here = float(bdtr(fewer, n, 0.5)) - below
    return 1.0 if lost == gained else min(1.0, 2 * below + here)


def holm(values: Sequence[float]) -> list[float]:
    """Return Holm's (1979) corrected p values, in the order given."""
    p = np.asarray(values, np.float64)
    order = np.argsort(p, kind="stable")
    steps = p[order] * np.arange(len(p), 0, -1)
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(value) for value in corrected]


@dataclass(frozen=True)
class Flips:
    """A test of the means of several columns of flips: of each alone, and of all together."""

    mean: Array
    error: Array
    """The standard error of each mean."""
    cautious: Array
    """The same with half a pair added to each way in which two verdicts can fall: it is above 0
    where no verdict differs.
    """
    p: Array
    """Two-sided p of each column alone."""
    critical: float
    """The standard errors above 0 that the greatest mean exceeds only at the stated rate, if no
    mean is truly above 0.
    """

    @property
    def above(self) -> NDArray[np.bool_]:
        """Return which means are above 0 at the stated rate of false alarms among all columns together."""
        return np.asarray(self.mean > self.critical * self.error) & (self.mean > 0)

    @property
    def bound(self) -> Array:
        """The lower bound of each mean; all of them hold together at one minus the stated rate."""
        return np.asarray(self.mean - self.critical * self.error)


def flips(columns: Array, rate: float = 0.05, draws: int = FLIPS) -> Flips:
    """Test by flipping signs whether the means of columns (samples x dials) are 0, and find the
    bound of the greatest of them.

    If two models are alike, a sample's difference is as likely to have the other sign; all its
    dials flip together. So the test is exact however the dials are related. With one image per
    sample it is McNemar's exact test, and p is counted out and not drawn. The critical value is the
    ``1 - rate`` point of the greatest studentised mean (Westfall & Young 1993). Where there are
    fewer outcomes than ``draws`` all are counted. A sample that lacks a dial (NaN) counts as no
    difference there, and not in its n.
    """
    held = np.isfinite(columns)
    values, n = np.where(held, columns, 0.0), np.maximum(held.sum(axis=0), 1).astype(np.float64)
    square = (values**2).sum(axis=0) / n
    seen = _studentised(values.sum(axis=0)[None] / n, square, n)[0]
    drawn = np.concatenate([_studentised(signs @ values / n, square, n) for signs in _signs(values, draws)])
    single = np.isin(np.abs(values), (0, 1)).all(axis=0)
    p = np.where(single, _mcnemars(values), (np.abs(drawn) >= np.abs(seen) - 1e-9).mean(axis=0))
    mean = values.sum(axis=0) / n
    error = np.sqrt(np.maximum(square - mean**2, 0.0) / np.maximum(n - 1, 1))
    return Flips(mean, error, _cautious(values, square, n), p, _upper_point(drawn.max(axis=1), rate))


def _cautious(values: Array, square: Array, n: Array) -> Array:
    """Return the standard error behind the interval of a paired difference (Agresti & Min 2005, see
    ``paired_interval``).
    """
    scale = (square * n + 1) / (np.abs(values).sum(axis=0) + 1)
    more = n + 2 * scale
    spread = (square * n + scale) / more - (values.sum(axis=0) / more) ** 2
    return np.asarray(np.sqrt(np.maximum(spread, 0.0) / more))


def _mcnemars(values: Array) -> Array:
    return np.array([mcnemar(int((column > 0).sum()), int((column < 0).sum())) for column in values.T])


def _studentised(mean: Array, square: Array, n: Array) -> Array:
    """Return means over their standard errors.

    Flips leave the mean square as it is, so that the spread follows from the mean.
    """
    spread = np.maximum(square - mean**2, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = mean * np.sqrt(np.maximum(n - 1, 1)) / np.sqrt(spread)
    return np.where(np.abs(mean) < 1e-12, 0.0, found)


def _signs(values: Array, draws: int) -> list[Array]:
    """Return the signs of samples in parts: every outcome where there are few, else those that were
    seen and random ones.

    Samples without any difference keep their sign: they count for nothing.
    """
    moved = np.flatnonzero((values != 0).any(axis=1))
    if 2 ** min(len(moved), 40) <= draws + 1:
        places = np.arange(2 ** len(moved))
        every = np.ones((len(places), len(values)))
        every[:, moved] = 1 - 2 * ((places[:, None] >> np.arange(len(moved))) & 1)
        return [every]
    rng, batch = np.random.default_rng(SEED), max(1, CELLS // len(values))
    sizes = [min(batch, draws - start) for start in range(0, draws, batch)]
    drawn = [2.0 * rng.integers(0, 2, (size, len(values)), np.int8) - 1 for size in sizes]
    return [np.ones((1, len(values))), *drawn]


def _upper_point(values: Array, rate: float) -> float:
    """Return the least value that at most a share ``rate`` of the outcomes exceed."""
    ordered = np.sort(values)
    return float(ordered[min(len(ordered) - 1, int(np.ceil((1 - rate) * len(ordered) - 1e-9)) - 1)])


def detectable(error: float, critical: float, power: float = POWER) -> float:
    """Return the mean that a test with this standard error and critical value finds with the given power."""
    return (critical + float(ndtri(power))) * error


def noticed(error: float, critical: float, rate: float, most: float = 1.0) -> float | None:
    """Return the mean that is found in four of five cases, or None where it would have to be
    greater than ``most``.

    The critical value is at least that of a normal test at this rate: where no verdict differs,
    flips give none.
    """
    found = detectable(error, max(critical, float(ndtri(1 - rate))))
    return found if found <= most else None


def power_of(mean: float, error: float, critical: float) -> float:
    """Return the chance that a true mean is found by a test with this standard error and critical value."""
    return float(ndtr(mean / error - critical)) if error > 0 else float(mean > 0)
