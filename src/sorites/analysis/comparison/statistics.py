"""Paired tests by sign flips: one-sided p values, family-wise control over shifts, bounds, and power.

All functions take plain arrays. The unit is the sample: its images under a shift are averaged before testing,
so images of one sample are never treated as independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, betaincinv, ndtr, ndtri

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Sign flips of a test, the observed signs included.
FLIPS = 10_000
# Every test uses this seed, so results are reproducible.
SEED = 0
# Number of flips x rows held in memory at a time.
CELLS_PER_BATCH = 1 << 22
# Probability of detecting a detectable drop.
POWER = 0.8
# Sums that differ by less than this count as tied: they are sums of the same fractions in another order.
TIE = 1e-9
# The differences that one image can show between two models: gained, unchanged, lost.
TERNARY = (-1.0, 0.0, 1.0)


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


# --- Which tests are safe, and which shifts have enough samples

# A sign-flip test assumes symmetric differences. It stays valid where rare differences are positive (a few
# images lost against a margin), but not where they are negative and larger than the common positive ones:
# these may not have been seen at all. Below this ratio of the two, the test is guarded.
SAFE_RATIO = 0.8
# Pseudo-samples with the least possible value that guard a test.
GUARDS = 2


@dataclass(frozen=True)
class Support:
    """The values that the excess of one image over the limit can take.

    Attributes:
        values: The possible values, in any order; a value may be repeated.
    """

    values: tuple[float, ...]

    @property
    def least(self) -> float:
        """The least possible excess."""
        return min(self.values)

    @property
    def most(self) -> float:
        """The greatest possible excess."""
        return max(self.values)

    @property
    def guarded(self) -> bool:
        """True if a test of mean excess 0 needs the guard."""
        return not self.safe[0] <= 0 <= self.safe[1]

    @property
    def safe(self) -> tuple[float, float]:
        """The tested means around 0 that need no guard; an empty range (low > high) if 0 itself needs it."""
        positive = [value for value in self.values if value > TIE]
        low = max((value for value in self.values if value <= TIE), default=self.least)
        high = (min(positive, default=0.0) + SAFE_RATIO * self.least) / (1 + SAFE_RATIO)
        return min(low, 0.0), high

    @property
    def null_share(self) -> float | None:
        """The share of outcomes above 0 if the mean is 0; None unless there are two values around 0."""
        if len(set(self.values)) != 2 or not self.least < 0 < self.most:
            return None
        return -self.least / (self.most - self.least)

    def least_p(self, n: NDArray[np.int64]) -> Array:
        """Return the least p that ``n`` samples can reach: that of samples with the greatest excess alone."""
        if self.most <= TIE:
            return np.ones(len(n))
        exact = np.zeros(len(n)) if self.null_share is None else self.null_share ** n.astype(np.float64)
        if not self.guarded:
            return np.asarray(np.maximum(np.exp2(-n.astype(np.float64)), exact))
        flipped = np.floor(np.arange(GUARDS + 1) * -self.least / self.most + TIE)
        shares = np.array([1, 2, 1]) / 4
        by_flips = sum(w * bdtr(np.minimum(k, n), n, 0.5) for w, k in zip(shares, flipped, strict=True))
        return np.asarray(np.maximum(by_flips, exact))


def judgeable(n: Sequence[int] | NDArray[np.int64], rate: float, support: Support) -> Mask:
    """Return which shifts have enough samples to reach their share of the rate of false alarms.

    The share is the rate divided by the number of shifts that are judged. Shifts with too few samples
    therefore leave the family, and do not weaken the test of the others.
    """
    least = support.least_p(np.asarray(n, np.int64))
    if support.most <= TIE:
        # No outcome breaks the rule, so there is nothing to detect.
        return np.asarray(n) > 0
    kept = np.ones(len(least), np.bool_)
    while kept.any() and (worst := least[kept].max()) > rate / kept.sum() * (1 + TIE):
        kept &= least < worst
    return kept


def samples_needed(share: float, support: Support, most: int = 10_000) -> int:
    """Return the least number of samples that reach this share of the rate of false alarms."""
    reached = support.least_p(np.arange(most + 1)) <= share * (1 + TIE)
    return int(reached.argmax()) if reached.any() else most


# --- The test


@dataclass(frozen=True)
class FlipTest:
    """Tests of the mean excess of several shifts over a limit, separately and jointly.

    A shift that is not judged has p 1 and the least possible bound.
    """

    mean: Array
    n: NDArray[np.int64]
    judged: Mask
    p: Array
    """One-sided p of each shift alone."""
    p_family: Array
    """The same, corrected for all judged shifts."""
    bound: Array
    """Lower bounds of the means, which hold jointly; above 0 exactly where ``broken``."""
    rate: float
    levels: Array
    """The greatest p that would break the rule under each shift, if the model lost more images there."""

    @property
    def share(self) -> float:
        """The rate of false alarms divided by the number of judged shifts."""
        return self.rate / max(int(self.judged.sum()), 1)

    @property
    def broken(self) -> Mask:
        """Return which means are above 0, at the stated family-wise rate of false alarms."""
        return np.asarray(self.judged & (self.p_family <= self.rate * (1 + TIE)))


def flip_test(
    excess: Array,
    rate: float = 0.05,
    support: Support | None = None,
    draws: int = FLIPS,
    seed: int = SEED,
    weights: Array | None = None,
) -> FlipTest:
    """Test by sign flips whether the mean excess of each shift is above 0, and bound it from below.

    If two models are equal, the sign of a sample's difference is random, and all its shifts flip together;
    hence the test is exact for any dependence between shifts. With one image per sample and a limit of 0
    it is McNemar's exact one-sided test, and p is computed rather than drawn. The least p over shifts is
    compared with its distribution over flips (Westfall & Young 1993), so shifts with few differences cost
    the others nothing. Outcomes against a fixed limit must also break it by the binomial test. A bound is the
    order statistic of subset means that inverts the test (Hartigan 1969).

    Args:
        excess: Excess over the limit (samples x shifts). NaN: the sample lacks the shift.
        rate: Family-wise rate of false alarms.
        support: Values that the excess of one image can take; default: a difference of two outcomes.
        draws: Number of flips; with few changed samples, each of their outcomes is drawn equally often.
        seed: Seed of the flips.
        weights: Weights of the samples (samples x shifts), of mean 1; default: equal. Flips are as exact with
            weights as without, because the sign of a sample is random whatever it weighs.

    Returns:
        The test; ``broken`` agrees with ``bound > 0`` and with ``p_family <= rate``.
    """
    support = support or Support(TERNARY)
    observed = np.isfinite(excess)
    weight = observed.astype(np.float64) if weights is None else np.where(observed, weights, 0.0)
    values, n = np.where(observed, excess, 0.0) * weight, observed.sum(axis=0)
    mean = values.sum(axis=0) / np.where(n > 0, weight.sum(axis=0), 1.0)
    judged = judgeable(n, rate, support)
    p, p_family, bound = (np.full(len(n), fill) for fill in (1.0, 1.0, support.least))
    levels = np.full(len(n), rate)
    if judged.any():
        sums, counts, guards = _flipped(values[:, judged], weight[:, judged], draws, seed)
        if support.guarded:
            sums, counts = sums + support.least * guards, counts + guards
        drawn_p = _drawn_p(values[:, judged], sums, support)
        p[judged] = drawn_p[0]
        level, p_family[judged] = family(drawn_p, drawn_p[0], rate)
        levels[judged] = levels_of(drawn_p, rate)
        bound[judged] = _bounds(sums, counts, guards, p[judged], level, support)
        for i in np.flatnonzero(judged):
            own = observed[:, i]
            equal = np.ptp(weight[own, i]) <= TIE
            exact = _binomial(excess[own, i], level, support) if equal else None
            if exact is not None:
                p[i], bound[i] = max(p[i], exact[0]), min(bound[i], exact[1])
                p_family[i] = max(p_family[i], min(exact[0] * rate / level, 1.0))
    return FlipTest(mean, n, judged, p, p_family, np.maximum(bound, support.least), rate, levels)


def _flipped(values: Array, weight: Array, draws: int, seed: int) -> tuple[Array, Array, Array]:
    """Return sums of values and weights of samples with a flipped sign (flips x shifts), and of guards.

    A guard weighs as much as the heaviest sample. The first flip is the observed outcome, in which no sign is
    flipped. Equal rows are drawn together, which also makes the result independent of the order of samples.
    """
    rows, copies = np.unique(np.concatenate([values, weight], axis=1), axis=0, return_counts=True)
    changed = (rows[:, : values.shape[1]] != 0).any(axis=1)
    number = int(copies[changed].sum())
    rng = np.random.default_rng(seed)
    if 2 ** min(number, 40) <= draws:
        apart = np.repeat(rows[changed], copies[changed], axis=0)
        rows, copies = (
            np.concatenate([apart, rows[~changed]]),
            np.r_[np.ones(number, np.int64), copies[~changed]],
        )
        signs = _every_outcome(number, copies[number:], draws, rng)
    else:
        order = np.argsort(copies, kind="stable")
        rows, copies = rows[order], copies[order]
        signs = _random_outcomes(copies, draws, rng)
    totals = np.concatenate([part @ rows for part in signs])
    guards = rng.binomial(GUARDS, 0.5, (len(totals), 1)).astype(np.float64)
    guards[0], totals[0] = 0.0, 0.0
    return totals[:, : values.shape[1]], totals[:, values.shape[1] :], guards * weight.max(axis=0)


def _every_outcome(
    number: int, others: NDArray[np.int64], draws: int, rng: np.random.Generator
) -> Iterator[Array]:
    """Yield every flip of ``number`` samples equally often, with random flips of unchanged samples."""
    outcomes = np.tile(np.arange(2**number), draws // 2**number)
    every = (outcomes[:, None] >> np.arange(number)) & 1
    yield np.concatenate([every, rng.binomial(others, 0.5, (len(outcomes), len(others)))], axis=1).astype(
        np.float64
    )


def _random_outcomes(copies: NDArray[np.int64], draws: int, rng: np.random.Generator) -> Iterator[Array]:
    """Yield how many samples of each row are flipped, in batches; rows of one sample come first."""
    single, batch = int((copies == 1).sum()), max(1, CELLS_PER_BATCH // len(copies))
    for start in range(0, draws, batch):
        size = min(batch, draws - start)
        flipped = np.empty((size, len(copies)))
        coins = rng.integers(0, 256, (size, -(-single // 8)), np.uint8)
        flipped[:, :single] = np.unpackbits(coins, axis=1, count=single)
        flipped[:, single:] = rng.binomial(copies[single:], 0.5, (size, len(copies) - single))
        yield flipped


def _drawn_p(values: Array, sums: Array, support: Support) -> Array:
    """Return the p of each shift at each flip; the first row is that of the observed outcome.

    An outcome is as extreme as another if its flipped samples have at most the same sum.
    """
    p = np.empty_like(sums)
    for i, column in enumerate(values.T):
        if not support.guarded and np.isin(column, TERNARY).all():
            changed, gained = int((column != 0).sum()), int((column < 0).sum())
            tails = bdtr(np.arange(changed + 1), changed, 0.5)
            p[:, i] = tails[np.round(sums[:, i]).astype(np.int64) + gained]
        else:
            ordered = np.sort(sums[:, i])
            p[:, i] = np.searchsorted(ordered, sums[:, i] + TIE, side="right") / len(ordered)
    return p


def family(drawn: Array, p: Array, rate: float) -> tuple[float, Array]:
    """Return the level of a single shift that keeps the family-wise rate, and the corrected p of each.

    Args:
        drawn: The p of each shift if the models are equal (draws x shifts).
        p: The observed p of each shift.
        rate: The family-wise rate of false alarms.
    """
    shifts = drawn.shape[1]
    if shifts == 1:
        return rate, p
    least = np.sort(drawn.min(axis=1))
    beyond = least[min(int(rate * len(least) + TIE), len(least) - 1)]
    level = min(max(float(beyond) * (1 - 3 * TIE), rate / shifts), rate)
    joint = np.searchsorted(least, p * (1 + TIE), side="right") / len(least)
    return level, np.maximum(np.minimum(joint, shifts * p), p)


def levels_of(drawn: Array, rate: float) -> Array:
    """Return the level of each shift if it had many changes and the others kept theirs.

    The level in force depends on the p values that the shifts can reach, and a shift with more lost images
    reaches smaller ones. Power has to be computed at that level.
    """
    shifts = drawn.shape[1]
    if shifts == 1:
        return np.array([rate])
    least, second = np.partition(drawn, 1, axis=1)[:, :2].T
    ranks = np.arange(int(rate * len(drawn)) + 1)
    levels = np.empty(shifts)
    for i, column in enumerate(drawn.T):
        others = np.sort(np.where(column > least, least, second))
        spent = np.minimum(others[ranks] * (1 - 3 * TIE), rate - ranks / len(drawn))
        allowed = spent[spent >= np.r_[0.0, others[ranks[:-1]]]]
        levels[i] = max(allowed.max(initial=0.0), rate / shifts)
    return levels


def _binomial(values: Array, level: float, support: Support) -> tuple[float, float] | None:
    """Return p and the lower bound of the mean excess of outcomes with two values, by the binomial test.

    An outcome against a limit, such as correct against 45 %, has values of different size, whose signs are
    not exchangeable: with few samples, sign flips alone raise up to 9 % of false alarms instead of 5 %. The
    binomial test is exact. None if images of a sample were averaged, or if there are more than two values.
    """
    low, high, share = support.least, support.most, support.null_share
    if share is None or not len(values):
        return None
    is_high = np.isclose(values, high, rtol=0, atol=TIE)
    if not np.all(is_high | np.isclose(values, low, rtol=0, atol=TIE)):
        return None
    n, count = len(values), int(is_high.sum())
    if not count:
        return 1.0, low
    p = float(bdtrc(count - 1, n, share))
    # Clopper & Pearson 1934, one-sided; above 0 exactly where p is at most the level.
    least = low + (high - low) * float(betaincinv(count, n - count + 1, level))
    return p, least if p <= level * (1 + TIE) else min(least, 0.0)


def _bounds(sums: Array, counts: Array, guards: Array, p: Array, level: float, support: Support) -> Array:
    """Return the greatest means that the test at this level rejects."""
    least = _inverted(sums, counts, p, level)
    if support.guarded:
        return least
    guarded = _inverted(sums + support.least * guards, counts + guards, None, level)
    low, high = support.safe
    below, above = least <= low + TIE, least > high
    least = np.where(below, np.minimum(least, guarded), least)
    return np.where(above, np.maximum(high, np.minimum(least, guarded)), least)


def _inverted(sums: Array, counts: Array, p: Array | None, level: float) -> Array:
    """Return the order statistics of subset means at which p exceeds the level.

    A mean is rejected unless more than a share ``level`` of the subset means are at most as great. Where p
    at 0 is known exactly, the rank is moved to that side of 0 that agrees with it.
    """
    bounds = np.empty(sums.shape[1])
    for i, (total, count) in enumerate(zip(sums.T, counts.T, strict=True)):
        means = np.where(count > 0, total / np.maximum(count, 1), -np.inf)
        means[(total <= TIE) & (means > 0)] = 0.0
        rank = int(level * len(means) * (1 + TIE))
        if p is not None:
            up_to_0 = int((means <= 0).sum())
            rank = max(rank, up_to_0) if p[i] <= level * (1 + TIE) else min(rank, up_to_0 - 1)
        rank = min(rank, len(means) - 1)
        bounds[i] = np.partition(means, rank)[rank]
    return bounds


# --- Weighted samples

# A detectable drop is stated if no weight differs from 1 by more than this.
_ALMOST_EQUAL = 0.1


def weighted_means(columns: Array, weights: Array) -> Array:
    """Return the weighted mean of each column; NaN is left out."""
    observed = np.isfinite(columns)
    total = np.where(observed, weights, 0.0).sum(axis=0)
    means: Array = np.where(observed, columns * weights, 0.0).sum(axis=0) / total
    return means


def weighted_drops(column: Array, weights: Array) -> Array | None:
    """Return what each sample adds to a mean drop, or None if weights are too unequal to state a power."""
    if np.abs(weights[np.isfinite(column)] - 1).max(initial=0.0) > _ALMOST_EQUAL:
        return None
    return column * weights


# --- Power

# Nodes and weights of a standard normal distribution.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
# Gained images beyond this many standard deviations are ignored.
_TAIL = 8.0
# With fewer samples than this many times those that can reach the level, a detectable drop is near 1 and
# depends on whether a single image is gained.
_TIMES_NEEDED = 3


def detectable_drop(
    column: Array, level: float, margin: float = 0.0, share: float | None = None, several: bool = False
) -> float | None:
    """Return the excess over a margin that is detected with 80 % power, or None if there is none.

    The alternative is a model that gains images as often as equal models would, from the observed changes,
    and loses more: its variance grows with the drop. With one image per sample, the power is that of the
    test itself, summed over the numbers of images lost and gained.

    Args:
        column: Drops of the samples under one shift. NaN: the sample lacks the shift.
        level: The greatest p that breaks the rule.
        margin: The drop that the rule allows.
        share: The share of the rate of false alarms that decides whether there are enough samples; default:
            the level. Unlike the level, it must not depend on the changes: drops would be stated where few
            were seen, and be too small.
        several: Whether samples have several images.

    Returns:
        The excess, or None if no drop is detected with this power, or if there are too few samples to say:
        fewer than three times those that could break the rule at all, or, where samples have several images,
        fewer than 30 that changed.
    """
    drops = column[np.isfinite(column)]
    if len(drops) < _TIMES_NEEDED * samples_needed(share or level, Support(TERNARY)):
        return None
    gained = _gain_rate(drops, level)
    if not several and np.isin(drops, TERNARY).all():
        power = _exact_power(len(drops), gained, level, margin)
    elif np.count_nonzero(drops) >= _ENOUGH:
        power = _normal_power(drops, gained, level, margin)
    else:
        return None
    low, high = 0.0, 1 - 2 * gained - margin
    if high <= 0 or power(high) < POWER:
        return None
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return high


def _gain_rate(drops: Array, level: float) -> float:
    """Return the share of images that equal models would gain.

    The share of samples that change is the median of its posterior under Jeffreys' prior, which is above the
    truth about as often as below it, also where no sample changed (Brown, Cai & DasGupta 2001). Equal
    models gain half of the changes. If a sign test rejects equal models, lost images say nothing about
    this, and the gained ones are counted alone.
    """
    n, lost, gained = len(drops), np.count_nonzero(drops > 0), np.count_nonzero(drops < 0)
    equal = bdtr(gained, lost + gained, 0.5) > level
    counted = drops[drops != 0] if equal else drops[drops < 0]
    size = float(np.abs(counted).mean()) if len(counted) else 1.0
    share = float(betaincinv(len(counted) + 0.5, n - len(counted) + 0.5, 0.5))
    return size * share / 2 if equal else size * share


def _exact_power(n: int, gained: float, level: float, margin: float) -> Callable[[float], float]:
    """Return the power of a test of one image per sample, as a function of the excess over the margin."""
    most = int(min(n, np.ceil(n * gained + _TAIL * np.sqrt(n * gained + 1))))
    counts = np.arange(most + 1)
    weights = np.diff(bdtr(counts, n, gained), prepend=0.0)
    needed = _least_lost(counts, n, level, margin)

    def power(excess: float) -> float:
        share = min((gained + margin + excess) / (1 - gained), 1.0)
        enough = np.where(needed <= n - counts, bdtrc(needed - 1, n - counts, share), 0.0)
        return float(weights @ np.where(needed <= 0, 1.0, enough))

    return power


# Changed samples that the normal approximation needs.
_ENOUGH = 30


def _normal_power(drops: Array, gained: float, level: float, margin: float) -> Callable[[float], float]:
    """Return the power of a test of several images per sample, as a function of the excess over the margin.

    The images of a sample change together: the mean size of a sample's changes grows with their rate as
    that of a beta-binomial distribution with the observed correlation.
    """
    n, size = len(drops), float(np.abs(drops).sum())
    at_once = max(float((drops**2).sum()) / size - gained, 0.0) / (1 - gained)
    critical = -float(ndtri(level))

    def square(rate: float) -> float:
        return rate * (rate + (1 - rate) * at_once)

    def power(excess: float) -> float:
        drop = margin + excess
        second = square(gained) + square(gained + drop)
        flipped = np.sqrt(max(second - 2 * margin * drop + margin**2, 0.0) / n)
        error = np.sqrt(max(second - drop**2, 1e-12) / n)
        return float(ndtr((excess - critical * flipped) / error))

    return power


def _least_lost(gained: NDArray[np.int64], n: int, level: float, margin: float) -> NDArray[np.int64]:
    """Return the least number of lost images that breaks a rule, for each number of gained images."""
    low, high = np.zeros_like(gained) - 1, n - gained + 1
    while (high - low > 1).any():
        middle = (low + high) // 2
        enough = _p_of_counts(np.maximum(middle, 0), gained, n, margin) <= level * (1 + TIE)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def _p_of_counts(lost: NDArray[np.int64], gained: NDArray[np.int64], n: int, margin: float) -> Array:
    """Return the p of a sign-flip test of images lost and gained against a margin.

    Flipped samples have at most the margin as their mean. Without a margin this is exact. With one, the
    number of flipped samples is approximated by a normal distribution, given how many changed ones flip.
    """
    changed = lost + gained
    if margin <= 0:
        return np.asarray(bdtr(gained, changed, 0.5))
    slope = (lost - gained) / np.maximum(changed, 1)
    spread = np.sqrt(np.maximum(n / 4 - slope * (lost - gained) / 4, 0.0))
    centre = gained + margin * (n / 2 - slope * changed / 2)
    reach = (centre[:, None] + margin * spread[:, None] * _NODES) / (1 - margin * slope[:, None])
    tails = bdtr(np.clip(np.floor(reach + TIE), -1, changed[:, None]), changed[:, None], 0.5)
    return np.asarray(np.where(reach < 0, 0.0, tails) @ (_WEIGHTS / _WEIGHTS.sum()))
