"""Exact measures of how well scores separate strange from familiar pictures, from two sorts and one merge.

A larger score is stranger. Ties get half credit in the AUROC; elsewhere a threshold flags every score at or above it (strange
is positive) or at or below it (familiar is positive), so that tied scores stay together. Nothing here knows of a table.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError

Floats = NDArray[np.floating]
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pool:
    """Scores in rising order; ``sample`` numbers the sample of each picture, from 0 up, or is None where all differ."""

    scores: Floats
    sample: Counts | None = None

    @classmethod
    def of(cls, scores: Floats, sample: Counts | None = None) -> Pool:
        """Make a pool of scores in any order; NaN is an error."""
        if np.isnan(scores).any():
            raise SoritesError(f"wanted scores that are numbers, got {int(np.isnan(scores).sum())} NaN among {len(scores)}")
        if sample is None:
            return cls(np.sort(scores))
        order = np.argsort(scores)
        return cls(scores[order], sample[order])

    def __len__(self) -> int:
        return len(self.scores)

    @functools.cached_property
    def samples(self) -> int:
        """The number of different samples in the pool, which is the n of an interval that counts no sample twice."""
        return len(self) if self.sample is None else int(np.count_nonzero(np.bincount(self.sample)))

    @functools.cached_property
    def firsts(self) -> Counts:
        """For each score, the number of scores of the pool strictly below it."""
        places = np.arange(len(self))
        return np.maximum.accumulate(np.where(np.diff(self.scores, prepend=np.nan) == 0, 0, places))


@dataclass(frozen=True, eq=False)
class Pair:
    """Two pools that are both not empty."""

    familiar: Pool
    strange: Pool

    @functools.cached_property
    def below(self) -> Counts:
        """For each strange score, the number of familiar scores strictly below it."""
        return np.searchsorted(self.familiar.scores, self.strange.scores, "left")

    @functools.cached_property
    def up_to(self) -> Counts:
        """For each strange score, the number of familiar scores below it or tied with it."""
        familiar, strange = self.familiar.scores, self.strange.scores
        tied = familiar[np.minimum(self.below, len(familiar) - 1)] == strange
        found = self.below.copy()
        found[tied] = np.searchsorted(familiar, strange[tied], "right")
        return found

    @functools.cached_property
    def flipped(self) -> Pair:
        """The pair with familiar as the positive class: scores change sign and the pools change places."""
        turned = (Pool(-p.scores[::-1], None if p.sample is None else p.sample[::-1]) for p in (self.strange, self.familiar))
        return Pair(*turned)


def pair(familiar: Floats, strange: Floats) -> Pair:
    """Make a pair of two plain arrays of scores."""
    if not len(familiar) or not len(strange):
        raise SoritesError(f"wanted familiar and strange scores, got {len(familiar)} and {len(strange)}")
    return Pair(Pool.of(np.asarray(familiar)), Pool.of(np.asarray(strange)))


def auroc(two: Pair) -> float:
    """Return the chance that a strange picture scores above a familiar one, a tie counted half (Mann and Whitney 1947)."""
    wins = int(two.below.sum()) + int(two.up_to.sum())
    return wins / (2 * len(two.familiar) * len(two.strange))


def average_precision(two: Pair) -> float:
    """Return the mean of the precision at each strange picture's score: the step area under the precision-recall curve."""
    flagged = len(two.strange) - two.strange.firsts
    return float(np.mean(flagged / (flagged + len(two.familiar) - two.below)))


def trapezoid_precision(two: Pair) -> float:
    """Return the area under the precision-recall curve joined by straight lines, from precision 1 at recall 0.

    This area is too large; it is kept for parity with tools that use it.
    """
    many = np.unique(two.strange.scores, return_counts=True)[1]
    last = np.cumsum(many) - 1
    above = len(two.strange) - 1 - last
    here = (above + many) / (above + many + len(two.familiar) - two.below[last])
    over = above + len(two.familiar) - two.up_to[last]
    before = np.where(over > 0, above / np.maximum(over, 1), 1.0)
    return float(np.sum(many * (here + before)) / (2 * len(two.strange)))


def false_alarms(two: Pair, caught: float = 0.95) -> tuple[float, float]:
    """Return the share of familiar pictures above the highest threshold that flags at least ``caught`` of the strange ones.

    The second number is that threshold.
    """
    needed = int(np.ceil(caught * len(two.strange) - 1e-9))
    place = len(two.strange) - needed
    return 1 - float(two.below[place]) / len(two.familiar), float(two.strange.scores[place])


def alarms_between(two: Pair, missed: tuple[float | None, float | None]) -> tuple[float | None, float | None]:
    """Return the shares of familiar pictures above the thresholds that miss these shares of the strange ones, the least first.

    A threshold below every strange score flags every familiar picture, since nothing is known of where it lies.
    """
    low, high = missed
    if low is None or high is None:
        return None, None
    places = int(np.floor(high * len(two.strange))), int(np.floor(low * len(two.strange))) - 1
    least = 1 - float(two.below[min(places[0], len(two.strange) - 1)]) / len(two.familiar)
    return least, 1.0 if places[1] < 0 else 1 - float(two.below[places[1]]) / len(two.familiar)


def placements(two: Pair) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return DeLong's structural components, whose means are both the AUROC.

    They are, for each strange score, the share of familiar scores below it, and for each familiar score the share of strange
    scores above it (ties count half).
    """
    many, size = len(two.strange), len(two.familiar)
    strictly = np.cumsum(np.bincount(two.up_to, minlength=size + 1))[:size]
    at_most = np.cumsum(np.bincount(two.below, minlength=size + 1))[:size]
    return (two.below + two.up_to) / (2 * size), 1 - (strictly + at_most) / (2 * many)


def auroc_variance(two: Pair) -> float:
    """Return DeLong's variance of the AUROC (Biometrics 1988), clustered by sample (Obuchowski, Biometrics 1997).

    It is NaN where a pool has fewer than two samples.
    """
    shown = (two.strange.samples, two.familiar.samples)
    if min(shown) < 2:
        return float("nan")
    value = auroc(two)
    parts = [(part - value) / len(part) for part in placements(two)]
    if two.strange.sample is None or two.familiar.sample is None:
        return sum(n / (n - 1) * float(np.sum(part * part)) for n, part in zip(shown, parts, strict=True))
    ids = (two.strange.sample, two.familiar.sample)
    size = max(int(who.max()) for who in ids) + 1
    sums = [np.bincount(who, part, size) for who, part in zip(ids, parts, strict=True)]
    within = sum(n / (n - 1) * float(np.sum(total * total)) for n, total in zip(shown, sums, strict=True))
    both = np.count_nonzero(np.bincount(ids[0], minlength=size) * np.bincount(ids[1], minlength=size))
    shared = 2 * both / (both - 1) * float(np.sum(sums[0] * sums[1])) if both > 1 else 0.0
    return max(within + shared, 0.0)
