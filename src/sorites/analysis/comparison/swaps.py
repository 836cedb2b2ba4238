"""Paired tests of two detectors by swapping them sample by sample: p values, bounds and power.

mAP, precision and recall are not means over samples, so signs of differences cannot be flipped. The detectors
are swapped instead: for a random half of the samples, all boxes of one detector take the place of those of
the other, and both values are computed again. If the detectors are equally good, every swap is as likely as
the observed outcome, so the test is exact for any number of draws and any dependence between shifts, classes
and sizes, which are all swapped together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from sorites.analysis.comparison.statistics import (
    POWER,
    TERNARY,
    Support,
    family,
    judgeable,
    levels_of,
    samples_needed,
)

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
# How often each sample counts, the samples of the base detector first (2 x samples, draws).
Counts = NDArray[np.uint8]

# Swaps of a test, the observed outcome included.
SWAPS = 2_000
# Random halves of the samples, for intervals.
RESAMPLES = 1_000
# Samples that are swapped one at a time, to see how large their changes are.
SINGLES = 400
SEED = 0
# Values that differ by less than this count as tied: they are computed in single precision.
TIE = 2e-6
# Changed samples that the normal approximation of the power needs.
ENOUGH = 30
# With fewer samples than this many times those that can reach the level, no detectable drop is stated.
TIMES_NEEDED = 3


@dataclass(frozen=True)
class Plan:
    """Weights of the samples on each side, in every draw of a comparison.

    Attributes:
        samples: The number of samples.
        swapped: Whether a sample is swapped (samples x swaps); the first swap is none.
        resampled: How often a sample is drawn (samples x resamples).
        single: The samples that are swapped one at a time.
    """

    samples: int
    swapped: NDArray[np.uint8]
    resampled: NDArray[np.uint8]
    single: NDArray[np.int64]

    def counts(self) -> Counts:
        """Return the counts of both sides: of the first side in all draws, then of the second."""
        alone = np.zeros((self.samples, len(self.single)), np.uint8)
        alone[self.single, np.arange(len(self.single))] = 1
        swapped = np.concatenate([self.swapped, alone], axis=1)
        drawn, none = self.resampled, np.zeros_like(self.resampled)
        first = np.concatenate(
            [np.concatenate([1 - swapped, drawn], axis=1), np.concatenate([swapped, none], 1)]
        )
        second = np.concatenate(
            [np.concatenate([swapped, none], axis=1), np.concatenate([1 - swapped, drawn], 1)]
        )
        return np.concatenate([first, second], axis=1)

    def split(self, values: NDArray[np.floating]) -> Draws:
        """Split the values of ``counts`` into the draws of one cell."""
        first, second = np.split(np.asarray(values, np.float64), 2)
        swaps, singles = self.swapped.shape[1], len(self.single)
        drop = first - second
        return Draws(
            float(first[0]),
            float(second[0]),
            drop[:swaps],
            (drop[0] - drop[swaps : swaps + singles]) / 2,
            first[swaps + singles :],
            second[swaps + singles :],
        )


def plan_of(samples: int, resampled: NDArray[np.uint8], swaps: int = SWAPS, seed: int = SEED) -> Plan:
    """Return the draws of a comparison of this many samples."""
    rng = np.random.default_rng(seed)
    swapped = rng.integers(0, 2, (swaps, samples), np.uint8).T.copy()
    swapped[:, 0] = 0
    single = np.sort(rng.permutation(samples)[:SINGLES])
    return Plan(samples, swapped, resampled, single)


@dataclass(frozen=True)
class Draws:
    """One quantity of both detectors in one cell: a shift, and perhaps a class and a size.

    Attributes:
        base: The value of the base detector.
        new: The value of the new detector.
        swapped: The base's value minus the new one's under each swap; the first is as observed.
        single: What single samples contribute to the drop: half of its change if they are swapped.
        drawn_base: The base's value in each resample.
        drawn_new: The new detector's value in the same resamples.
    """

    base: float
    new: float
    swapped: Array
    single: Array
    drawn_base: Array
    drawn_new: Array

    @property
    def drop(self) -> float:
        """The value of the base minus that of the new detector."""
        return self.base - self.new

    @property
    def defined(self) -> bool:
        """True if both detectors have a value."""
        return bool(np.isfinite(self.drop))


def mean_draws(parts: Sequence[Draws]) -> Draws:
    """Return the mean over settings or shifts, draw by draw."""

    def mean(name: str) -> Array:
        return np.asarray(np.mean([getattr(part, name) for part in parts], axis=0))

    base, new = (float(np.mean([getattr(part, name) for part in parts])) for name in ("base", "new"))
    return Draws(base, new, *(mean(name) for name in ("swapped", "single", "drawn_base", "drawn_new")))


@dataclass(frozen=True)
class SwapTest:
    """Tests whether the drops of several cells exceed a margin, separately and jointly.

    A cell that is not judged has p 1 and no bound (minus infinity).
    """

    drop: Array
    n: NDArray[np.int64]
    judged: Mask
    p: Array
    p_family: Array
    bound: Array
    """Lower bounds of the drops, which hold jointly; above the margin exactly where ``broken``."""
    rate: float
    levels: Array
    """The greatest p that would break the rule in each cell, if the detector lost more there."""

    @property
    def share(self) -> float:
        """The rate of false alarms divided by the number of judged cells."""
        return self.rate / max(int(self.judged.sum()), 1)

    @property
    def broken(self) -> Mask:
        """Return which drops exceed the margin, at the stated family-wise rate of false alarms."""
        return np.asarray(self.judged & (self.p_family <= self.rate))


def swap_test(
    cells: Sequence[Draws], n: Sequence[int], rate: float, margin: float = 0.0, sign: int = 1
) -> SwapTest:
    """Test whether the drop of each cell exceeds a margin, and bound it from below.

    With a margin of 0 the test is exact. Otherwise the distribution of swaps, which has mean 0, is moved to
    the margin; its spread includes the drop itself, so that the test is slightly conservative where drops are
    large. The least p over cells is compared with its distribution over swaps (Westfall & Young 1993).

    Args:
        cells: The draws of each cell; those without a value are not judged.
        n: The number of samples of each cell that have an object or a box of it.
        rate: Family-wise rate of false alarms.
        margin: The drop that is allowed.
        sign: 1 to test drops, -1 to test gains.
    """
    defined = np.array([cell.defined for cell in cells], bool)
    counts = np.where(defined, np.asarray(n, np.int64), 0)
    judged = judgeable(counts, rate, Support(TERNARY)) & defined
    drop = np.array([sign * cell.drop for cell in cells], np.float64)
    p, p_family, bound = (np.full(len(cells), fill) for fill in (1.0, 1.0, -np.inf))
    levels = np.full(len(cells), rate)
    if judged.any():
        # A swap without a value is at least as extreme as any other.
        swapped = np.stack(
            [np.nan_to_num(sign * cells[i].swapped, nan=np.inf) for i in np.flatnonzero(judged).tolist()]
        )
        observed = swapped[:, 0] - margin
        p[judged] = _observed_p(swapped, observed)
        drawn = np.stack([_ranked_p(row) for row in swapped], axis=1)
        level, p_family[judged] = family(drawn, p[judged], rate)
        levels[judged] = levels_of(drawn, rate)
        bound[judged] = swapped[:, 0] - _critical(swapped, level)
    return SwapTest(drop, np.asarray(n, np.int64), judged, p, p_family, bound, rate, levels)


def _observed_p(swapped: Array, observed: Array) -> Array:
    """Return the share of swaps with at least the observed excess; the first swap is the outcome itself."""
    beyond = (swapped[:, 1:] >= observed[:, None] - TIE).sum(axis=1)
    return np.asarray((1 + beyond) / swapped.shape[1])


def _ranked_p(row: Array) -> Array:
    """Return the p that each swap would have if it had been observed."""
    ordered = np.sort(row)
    return np.asarray((len(row) - np.searchsorted(ordered, row - TIE, side="left")) / len(row))


def _critical(swapped: Array, level: float) -> Array:
    """Return the excess over the margin that has to be exceeded for a p of at most this level."""
    draws = swapped.shape[1]
    allowed = int(level * draws * (1 + 1e-9)) - 1
    if allowed < 0:
        return np.full(len(swapped), np.inf)
    ordered = np.sort(swapped[:, 1:], axis=1)[:, ::-1]
    return np.asarray(ordered[:, min(allowed, draws - 2)] + TIE)


def resampled_bound(cell: Draws, excess: Callable[[Array, Array], Array], share: float) -> float:
    """Return the lower bound of a function of both values, from random halves of the samples.

    The values on halves vary as much as those on other samples of the full size would (delete-half
    jackknife). As mAP of fewer samples is biased high, each side is moved to its value first.
    """
    sides = []
    for value, drawn in ((cell.base, cell.drawn_base), (cell.new, cell.drawn_new)):
        finite = drawn[np.isfinite(drawn)]
        sides.append(drawn - (finite.mean() - value if len(finite) else 0.0))
    values = excess(*sides)
    known = values[np.isfinite(values)]
    return float(np.quantile(known, share, method="lower")) if len(known) else -np.inf


def detectable(
    cell: Draws,
    samples: int,
    level: float,
    margin: float = 0.0,
    share: float | None = None,
    sign: int = 1,
    worth: float | None = None,
) -> float | None:
    """Return the excess over a margin that is detected with 80 % power, or None if none can be stated.

    The alternative is a detector that gains as often as equal detectors would, from the observed changes, and
    loses more objects: the variance of the drop grows with the drop, in proportion to what one object is
    worth. The power is that of the test in a normal approximation.

    Args:
        cell: The draws of the cell.
        samples: The number of samples that have an object or a box of the cell.
        level: The greatest p that breaks the rule.
        margin: The drop that the rule allows.
        share: The share of the rate of false alarms that decides whether there are enough samples.
        sign: 1 for drops, -1 for gains.
        worth: What one object adds to the value; None takes the mean size of the changes of samples, for
            means over settings, whose objects are lost together.

    Returns:
        The excess, or None with fewer samples than three times those that could break the rule at all, or
        fewer than 30 (of 400 that were looked at) whose swap changes the value.
    """
    single = sign * cell.single[np.isfinite(cell.single)]
    changed = np.abs(single) > TIE
    if samples < TIMES_NEEDED * samples_needed(share or level, Support(TERNARY)) or changed.sum() < ENOUGH:
        return None
    finite = cell.swapped[1:][np.isfinite(cell.swapped[1:])]
    equal = float(_observed_p(sign * cell.swapped[None], np.array([sign * cell.swapped[0]]))[0]) > level
    second = float(finite @ finite) / len(finite)
    variance = _variance(cell, second)
    if not equal:
        share_gained = 2 * float((single[single < 0] ** 2).sum() / (single**2).sum())
        second, variance = second * share_gained, variance * share_gained
    size = float((single**2).sum() / np.abs(single).sum()) if worth is None else worth
    critical = -float(ndtri(level))

    def power(excess: float) -> float:
        drop = margin + excess
        grown = size * drop
        error = np.sqrt(max(variance + grown - drop**2 / samples, 1e-12))
        return float(ndtr((excess - critical * np.sqrt(max(second + grown, 0.0))) / error))

    low, high = 0.0, 1.0 - margin
    if power(high) < POWER:
        return None
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return high


def _variance(cell: Draws, swapped: float) -> float:
    """Return the variance of the drop over resamples, or that of swaps if there are none."""
    drops = cell.drawn_base - cell.drawn_new
    known = drops[np.isfinite(drops)]
    return float(known.var()) if len(known) > 1 else swapped
