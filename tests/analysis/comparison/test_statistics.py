"""Paired statistics against SciPy and statsmodels, their bounds, and their error rates on null data."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from sorites.analysis.comparison.rules import parse
from sorites.analysis.comparison.statistics import (
    Support,
    detectable_drop,
    flip_test,
    judgeable,
    mcnemar_mid,
    samples_needed,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from statsmodels.stats.contingency_tables import mcnemar as their_mcnemar

DIFFERENCES = Support((-1.0, 0.0, 1.0))


def column(lost: int, gained: int, n: int) -> np.ndarray:
    return np.repeat([1.0, -1.0, 0.0], [lost, gained, n - lost - gained])[:, None]


@pytest.mark.parametrize(
    ("lost", "gained"), [*itertools.product(range(9), range(9)), (40, 61), (300, 240), (1200, 1000)]
)
def test_mid_p_is_that_of_scipy(lost: int, gained: int) -> None:
    n, fewer = lost + gained, min(lost, gained)
    law = stats.binom(n, 0.5)
    mid = 1.0 if lost == gained else 2 * law.cdf(fewer) - law.pmf(fewer)
    assert mcnemar_mid(lost, gained) == pytest.approx(min(1.0, mid), abs=1e-8)


@pytest.mark.parametrize("n", range(1, 301))
def test_verdicts_of_every_size_are_those_of_the_exact_sign_test(n: int) -> None:
    """The sign test of SciPy decides for every number of images; one lost image never breaks a rule."""
    for lost, gained in itertools.product((0, 1, 2, 4, 5, 6, 8, 11), (0, 1, 3)):
        if lost + gained > n:
            continue
        found = flip_test(column(lost, gained, n), draws=200)
        exact = stats.binom.sf(lost - 1, lost + gained, 0.5) if lost + gained else 1.0
        assert found.judged[0] == (n > 4)
        if not found.judged[0]:
            continue
        assert found.p[0] == pytest.approx(exact, abs=1e-12)
        assert found.broken[0] == (exact <= 0.05) == (found.bound[0] > 0), (lost, gained)
    assert not flip_test(column(1, 0, n), draws=200).broken[0]


@pytest.mark.parametrize("n", [15, 60, 1000])
def test_verdicts_of_every_count_are_those_of_the_exact_sign_test(n: int) -> None:
    for lost, gained in itertools.product(range(16), range(16)):
        if lost + gained > n:
            continue
        found = flip_test(column(lost, gained, n), draws=200)
        exact = stats.binom.sf(lost - 1, lost + gained, 0.5) if lost + gained else 1.0
        assert found.p[0] == pytest.approx(exact, abs=1e-12)
        assert found.broken[0] == (exact <= 0.05) == (found.bound[0] > 0), (lost, gained)


def test_flips_count_every_outcome_of_few_samples_as_scipy_does() -> None:
    values = np.random.default_rng(4).integers(-5, 6, (11, 1)) / 5
    theirs = stats.permutation_test(
        (values[:, 0],),
        lambda x, axis: x.mean(axis),
        permutation_type="samples",
        n_resamples=np.inf,
        alternative="greater",
    )
    assert flip_test(values).p[0] == pytest.approx(theirs.pvalue, abs=1e-8)


def test_the_joint_p_of_few_samples_is_that_of_every_outcome() -> None:
    """Westfall and Young's corrected p, enumerated by a loop over all sign flips."""
    values = np.random.default_rng(5).choice([1.0, -1.0, 0.0], (10, 3), p=[0.6, 0.15, 0.25])
    outcomes = np.array(list(itertools.product((1, -1), repeat=10)))
    sums = outcomes @ values
    p = np.stack([(sums[:, None, i] >= sums[None, :, i]).mean(axis=0) for i in range(3)], axis=1)
    joint = [(p.min(axis=1) <= own + 1e-12).mean() for own in p[0]]
    found = flip_test(values, rate=0.2, draws=2048)
    assert found.p == pytest.approx(p[0], abs=1e-12)
    assert found.p_family == pytest.approx(np.minimum(joint, np.minimum(3 * p[0], 1)), abs=1e-12)


def test_flips_of_one_image_per_sample_are_half_of_mcnemar() -> None:
    theirs = their_mcnemar([[0, 31], [14, 0]], exact=True).pvalue
    assert 2 * flip_test(column(31, 14, 245)).p[0] == pytest.approx(theirs, abs=1e-8)


def test_a_shift_with_too_few_samples_leaves_the_family() -> None:
    """A drop of 42 points is found however many tiny shifts are added."""
    large, few = column(84, 0, 200), np.full((200, 3), np.nan)
    few[:4] = 0.0
    support = Support((-1.02, -0.02, 0.98))
    alone = flip_test(large - 0.02, support=support)
    found = flip_test(np.concatenate([large, few], axis=1) - 0.02, support=support)
    assert alone.broken.tolist() == [True]
    assert found.broken.tolist() == [True, False, False, False]
    assert found.judged.tolist() == [True, False, False, False]
    assert found.bound[0] == pytest.approx(alone.bound[0], abs=1e-12)
    assert np.isfinite(found.bound).all()


@pytest.mark.parametrize(("rate", "least"), [(0.05, 5), (0.01, 7)])
def test_the_least_number_of_samples_is_that_of_the_sign_test(rate: float, least: int) -> None:
    assert samples_needed(rate, DIFFERENCES) == least
    assert judgeable([least - 1], rate, DIFFERENCES).tolist() == [False]
    assert judgeable([least], rate, DIFFERENCES).tolist() == [True]
    assert judgeable([200, least], rate, DIFFERENCES).tolist() == [True, False]
    assert judgeable([least] * 24, rate, DIFFERENCES).tolist() == [False] * 24
    assert flip_test(np.ones((least, 1)), rate).broken[0]


@pytest.mark.parametrize("images", [1, 3])
def test_bound_p_and_verdict_agree_for_any_limit(images: int) -> None:
    rng = np.random.default_rng(6)
    for _ in range(150):
        n, shifts = int(rng.integers(3, 60)), int(rng.integers(1, 6))
        share = rng.uniform(0, 0.5, shifts)[None, :, None]
        drawn = rng.random((n, shifts, images))
        drops = (1.0 * (drawn < share) - 1.0 * (drawn > 0.9)).mean(axis=2)
        drops[rng.random((n, shifts)) < 0.1] = np.nan
        limit = float(rng.choice([0.0, 0.02, 0.3, -0.05]))
        support = Support((-1 - limit, -limit, 1 - limit))
        found = flip_test(drops - limit, 0.05, support, draws=500)
        assert np.array_equal(found.broken, found.bound > 0)
        assert np.array_equal(found.broken, found.judged & (found.p_family <= 0.05 * (1 + 1e-9)))
        assert (found.p_family >= found.p).all()
        assert (found.bound >= support.least).all()


def test_no_order_of_samples_changes_a_number() -> None:
    rng = np.random.default_rng(7)
    values = rng.integers(-3, 4, (80, 5)) / 3
    one, two = flip_test(values), flip_test(values[rng.permutation(80)])
    for name in ("p", "p_family", "bound", "levels"):
        assert np.array_equal(getattr(one, name), getattr(two, name))


def test_no_difference_is_no_alarm_and_every_sample_lost_is_one() -> None:
    assert not flip_test(np.zeros((50, 3))).broken.any()
    assert flip_test(np.ones((50, 1))).broken.all()
    assert not flip_test(-np.ones((50, 1))).broken.any()
    missing = flip_test(np.array([[1.0, np.nan]] * 30))
    assert missing.broken.tolist() == [True, False]
    assert missing.judged.tolist() == [True, False]


Draw = Callable[[np.random.Generator], np.ndarray]


def alarms(draw: Draw, limit: float, nulls: int = 150, draws: int = 300) -> float:
    """Return the share of simulated families of shifts in which a rule breaks."""
    rng, support = np.random.default_rng(8), Support((-1 - limit, -limit, 1 - limit))
    return float(
        np.mean([flip_test(draw(rng) - limit, 0.05, support, draws, i).broken.any() for i in range(nulls)])
    )


def changes(n: int, shifts: int, lost: float, gained: float, images: int = 1) -> Draw:
    """Return a simulation of images lost and gained, with correlated shifts and images of a sample."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        parts = [np.sqrt(share) * rng.normal(size=size) for share, size in (
            (0.5, (n, 1, 1)), (0.25, (n, shifts, 1)), (0.25, (n, shifts, images)))]  # fmt: skip
        z = parts[0] + parts[1] + parts[2]
        return (1.0 * (z > stats.norm.isf(lost)) - 1.0 * (z < stats.norm.ppf(gained))).mean(axis=2)

    return draw


@pytest.mark.parametrize("images", [1, 4])
@pytest.mark.parametrize(
    ("n", "shifts", "churn"), [(15, 8, 0.2), (60, 1, 0.02), (60, 1, 0.2), (30, 24, 0.2), (122, 8, 0.05)]
)
def test_equal_models_raise_alarm_at_most_at_the_stated_rate(
    n: int, shifts: int, churn: float, images: int
) -> None:
    assert alarms(changes(n, shifts, churn / 2, churn / 2, images), 0.0) <= 0.05 + 3 * 0.0178


@pytest.mark.parametrize(
    ("n", "shifts", "limit", "gained"),
    [(15, 1, 0.02, 0.0), (60, 1, 0.02, 0.0), (122, 8, 0.02, 0.09), (300, 1, 0.1, 0.05), (60, 1, -0.02, 0.02),
     (122, 1, -0.02, 0.02), (60, 1, 0.4, 0.2)],
)  # fmt: skip
def test_a_drop_at_the_limit_raises_alarm_at_most_at_the_stated_rate(
    n: int, shifts: int, limit: float, gained: float
) -> None:
    lost = gained + limit
    assert alarms(changes(n, shifts, lost, gained), limit) <= 0.05 + 3 * 0.0178


def stated_drops(n: int, churn: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the drops stated for every outcome of two equal models, and the probability of each."""
    stated, weights = [], []
    for changed in range(int(stats.binom.ppf(0.999, n, churn)) + 1):
        for lost in range(changed + 1):
            drop = detectable_drop(column(lost, changed - lost, n)[:, 0], 0.05)
            stated.append(np.nan if drop is None else drop)
            weights.append(stats.binom.pmf(changed, n, churn) * stats.binom.pmf(lost, changed, 0.5))
    return np.array(stated), np.array(weights)


@pytest.mark.parametrize("n", [15, 30, 60, 122])
@pytest.mark.parametrize("churn", [0.01, 0.02, 0.05])
def test_the_median_stated_drop_is_detected_with_80_percent_power(n: int, churn: float) -> None:
    """The power of the sign test, summed over all numbers of lost and gained images by SciPy."""
    stated, weights = stated_drops(n, churn)
    order = np.argsort(stated)
    drop = stated[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)]
    lost, gained = (part.ravel() for part in np.indices((n + 1, n + 1)))
    lost, gained = lost[lost + gained <= n], gained[lost + gained <= n]
    shares = (churn / 2 + drop, churn / 2, 1 - churn - drop)
    chance = stats.multinomial.pmf(np.stack([lost, gained, n - lost - gained], axis=1), n, shares)
    power = chance[stats.binom.cdf(gained, lost + gained, 0.5) <= 0.05].sum()
    assert 0.75 <= power <= 0.85


def flip_p(lost: int, gained: int, n: int, limit: float) -> float:
    """Return the exact p of a sign-flip test against a limit, over flipped images of each kind."""
    of_lost, of_gained = np.arange(lost + 1)[:, None], np.arange(gained + 1)[None, :]
    weight = stats.binom.pmf(of_lost, lost, 0.5) * stats.binom.pmf(of_gained, gained, 0.5)
    unchanged = np.ceil((of_lost - of_gained) / limit - of_lost - of_gained - 1e-9)
    return float((weight * stats.binom.sf(unchanged - 1, n - lost - gained, 0.5)).sum())


@pytest.mark.parametrize(("n", "gained"), [(60, 0.05), (122, 0.02), (300, 0.01)])
def test_a_detectable_drop_beyond_a_limit_is_detected(n: int, gained: float) -> None:
    """The power at the drop stated for the expected number of gained images, from exact p values."""
    same, limit = column(round(n * gained), round(n * gained), n)[:, 0], 0.02
    drop = detectable_drop(same, 0.05, limit)
    assert drop is not None
    power, share = 0.0, (gained + limit + drop) / (1 - gained)
    for count in range(int(stats.binom.ppf(0.999, n, gained)) + 1):
        enough = next(lost for lost in range(n) if flip_p(lost, count, n, limit) <= 0.05)
        power += stats.binom.pmf(count, n, gained) * stats.binom.sf(enough - 1, n - count, share)
    assert power == pytest.approx(0.8, abs=0.05)


def test_nothing_is_detectable_with_few_images() -> None:
    assert detectable_drop(np.zeros(14), 0.05) is None
    assert detectable_drop(np.zeros(15), 0.05) is not None
    assert detectable_drop(np.full(3, np.nan), 0.05) is None
    assert detectable_drop(np.zeros(60), 0.05, several=True) is None, "no image of several changed"
    fractions = np.r_[0.25, -0.25, np.zeros(50)]
    assert detectable_drop(fractions, 0.05) is None, "too few changed samples with several images"


@pytest.mark.parametrize("limit", [0.1, 0.3, 0.45, 0.5, 0.55, 0.7, 0.9])
def test_a_fixed_limit_raises_no_more_false_alarms_than_stated(limit: float) -> None:
    """The accuracy is exactly the limit; every outcome is tried and weighed by its probability."""
    support = parse(f"accuracy.rain < {100 * limit:g}").support
    for n in (8, 16, 30):
        alarms = 0.0
        for hits in range(n + 1):
            outcomes = np.r_[np.ones(hits), np.zeros(n - hits)]
            test = flip_test((limit - outcomes)[:, None], 0.05, support, draws=2000)
            alarms += float(stats.binom.pmf(hits, n, limit)) * bool(test.broken[0])
            assert bool(test.broken[0]) == bool(test.bound[0] > 0)
        assert alarms <= 0.05 + 1e-9


def test_weights_leave_the_test_exact() -> None:
    """With every flip drawn equally often, p is the share of flips with at least the observed weighted sum."""
    drops, weights = np.array([1.0, 1, 1, -1, 1, 0, 1]), np.array([3.0, 0.5, 0.5, 2, 0.25, 0.5, 0.25])
    found = flip_test(drops[:, None], weights=weights[:, None])
    signs = np.array(list(itertools.product([1, -1], repeat=len(drops))))
    sums = signs @ (drops * weights)
    assert found.p.item() == pytest.approx((sums >= sums[0] - 1e-9).mean(), abs=2e-3)
    assert found.mean.item() == pytest.approx(sums[0] / weights.sum())
    equal = [flip_test(drops[:, None], weights=given) for given in (None, np.ones((len(drops), 1)))]
    assert equal[0].p == equal[1].p
    assert equal[0].bound == equal[1].bound
