"""Tests of drift: statistics against SciPy, their false-alarm rate, and their power."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist

from sorites.deploy.drift import compare_features, compare_scores


def test_statistics_and_p_values_equal_scipy() -> None:
    rng = np.random.default_rng(0)
    one, other = np.round(rng.normal(0, 1, 60), 1), np.round(rng.normal(0.4, 1, 45), 1)
    found = compare_scores(one, other)
    assert found.statistic == pytest.approx(stats.ks_2samp(one, other).statistic)
    untied = rng.normal(0, 1, 30), rng.normal(0.5, 1, 30)
    assert compare_scores(*untied).p == pytest.approx(stats.ks_2samp(*untied).pvalue, abs=0.03)
    left, right = rng.normal(0, 1, (30, 4)).astype(np.float32), rng.normal(0.3, 1, (20, 4)).astype(np.float32)
    both = np.concatenate([left, right]).astype(np.float64)
    left_, right_ = np.split((both - both.mean(0)) / both.std(0), [30])
    energy = 2 * cdist(left_, right_).mean() - cdist(left_, left_).mean() - cdist(right_, right_).mean()
    assert compare_features(left, right).statistic == pytest.approx(energy)


def test_false_alarms_are_at_most_as_frequent_as_stated() -> None:
    rng = np.random.default_rng(1)
    draws = 200
    scores = sum(compare_scores(rng.random(40), rng.random(25), 199).p <= 0.05 for _ in range(draws))
    features = sum(
        compare_features(rng.random((25, 5)).astype(np.float32), rng.random((20, 5)).astype(np.float32), 99).p
        <= 0.05
        for _ in range(draws)
    )
    for alarms in (scores, features):
        assert stats.binomtest(alarms, draws, 0.05, alternative="greater").pvalue > 0.001


def test_a_change_of_features_that_leaves_their_mean_is_found() -> None:
    rng = np.random.default_rng(2)
    one, other = rng.normal(0, 1, (150, 6)), rng.normal(0, 1, (150, 6)) * np.repeat([0.5, 1.6], 3)
    assert compare_features(one.astype(np.float32), other.astype(np.float32)).p < 0.01
    assert compare_scores(one[:, 0], other[:, 5]).p < 0.05
