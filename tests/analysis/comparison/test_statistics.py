"""Paired statistics against SciPy and statsmodels, and their error rates on null data."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from scipy import stats

from sorites.analysis.comparison.statistics import (
    detectable,
    detectable_mean,
    flips,
    holm,
    mcnemar,
    mcnemar_mid,
    power_of,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from statsmodels.stats.contingency_tables import mcnemar as their_mcnemar
    from statsmodels.stats.multitest import multipletests
    from statsmodels.stats.power import normal_power


@pytest.mark.parametrize(
    ("lost", "gained"), [*itertools.product(range(9), range(9)), (40, 61), (300, 240), (1200, 1000)]
)
def test_mcnemar_is_that_of_scipy_and_statsmodels(lost: int, gained: int) -> None:
    theirs = stats.binomtest(lost, lost + gained).pvalue if lost + gained else 1.0
    assert mcnemar(lost, gained) == pytest.approx(theirs, abs=1e-8)
    if lost + gained:
        assert mcnemar(lost, gained) == pytest.approx(
            their_mcnemar([[5, lost], [gained, 7]], exact=True).pvalue, abs=1e-8
        )
    n, fewer = lost + gained, min(lost, gained)
    law = stats.binom(n, 0.5)
    mid = 1.0 if lost == gained else 2 * law.cdf(fewer) - law.pmf(fewer)
    assert mcnemar_mid(lost, gained) == pytest.approx(min(1.0, mid), abs=1e-8)
    assert mcnemar_mid(lost, gained) <= mcnemar(lost, gained)


def test_holm_is_that_of_statsmodels() -> None:
    rng = np.random.default_rng(3)
    for size in (1, 2, 5, 40):
        p = rng.uniform(0, 1, size) ** 3
        assert holm(list(p)) == pytest.approx(list(multipletests(p, method="holm")[1]), abs=1e-8)
    assert holm([0.02, 0.02, 0.9]) == pytest.approx([0.06, 0.06, 0.9])


def test_flips_count_every_outcome_of_few_samples_as_scipy_does() -> None:
    rng = np.random.default_rng(4)
    values = rng.integers(-5, 6, (11, 1)) / 5
    theirs = stats.permutation_test(
        (values[:, 0],), lambda x, axis: x.mean(axis), permutation_type="samples", n_resamples=np.inf
    )
    assert flips(values).p[0] == pytest.approx(theirs.pvalue, abs=1e-8)


def test_flips_of_one_image_per_sample_are_mcnemar() -> None:
    values = np.repeat([1.0, -1.0, 0.0], [31, 14, 200])[:, None]
    assert flips(values).p[0] == pytest.approx(their_mcnemar([[0, 31], [14, 0]], exact=True).pvalue, abs=1e-8)


def test_means_and_errors_are_the_textbook_ones() -> None:
    values = np.random.default_rng(5).normal(0.1, 1, (200, 3))
    found = flips(values)
    assert found.mean == pytest.approx(values.mean(axis=0), abs=1e-8)
    assert found.error == pytest.approx(stats.sem(values), abs=1e-8)
    assert found.p == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=0.02)


def test_the_critical_value_of_one_dial_is_the_normal_point_and_grows_with_independent_dials() -> None:
    rng = np.random.default_rng(6)
    one, same = rng.normal(size=(2000, 1)), rng.normal(size=(2000, 1))
    assert flips(one).critical == pytest.approx(stats.norm.ppf(0.95), abs=0.06)
    assert flips(np.repeat(same, 20, axis=1)).critical == pytest.approx(stats.norm.ppf(0.95), abs=0.06)
    many = flips(rng.normal(size=(2000, 20))).critical
    assert many == pytest.approx(stats.norm.ppf(0.95 ** (1 / 20)), abs=0.08)


def test_power_and_detectable_drop_are_those_of_statsmodels() -> None:
    for n, spread, drop in ((122, 0.4, 0.05), (1000, 0.3, 0.02), (60, 0.5, 0.2)):
        theirs = normal_power(drop / spread, n, 0.05, alternative="larger")
        critical = float(stats.norm.ppf(0.95))
        assert power_of(drop, spread / np.sqrt(n), critical) == pytest.approx(theirs, abs=1e-8)
        least = detectable(spread / np.sqrt(n), critical)
        assert normal_power(least / spread, n, 0.05, alternative="larger") == pytest.approx(0.8, abs=1e-8)


def test_no_difference_is_no_alarm_and_every_sample_lost_is_one() -> None:
    assert not flips(np.zeros((50, 3))).above.any()
    assert flips(np.ones((50, 1))).above.all()
    assert not flips(-np.ones((50, 1))).above.any()
    missing = np.array([[1.0, np.nan]] * 30)
    assert flips(missing).above.tolist() == [True, False]


def test_what_would_be_noticed_is_never_less_than_a_normal_test_needs_or_more_than_there_is() -> None:
    same = flips(np.zeros((9, 1)))
    assert same.critical == 0
    least = detectable_mean(float(same.cautious[0]), same.critical, 0.05)
    assert least == pytest.approx(
        (stats.norm.ppf(0.95) + stats.norm.ppf(0.8)) * float(same.cautious[0]), abs=1e-12
    )
    assert least is not None
    assert least > 1 / 9
    assert detectable_mean(0.5, 2.0, 0.05) is None
    assert detectable_mean(0.1, 2.0, 0.05, most=0.2) is None
