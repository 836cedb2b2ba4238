"""Measures of two pools of scores against scikit-learn and against their definitions in plain loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from sorites.core.errors import SoritesError
from sorites.metrics import separation
from sorites.metrics.separation import Pair, Pool, pair

SCORES = st.lists(st.integers(-3, 3), min_size=1, max_size=25).map(lambda drawn: np.array(drawn, np.float32))


@settings(deadline=None, max_examples=50)
@given(SCORES, SCORES)
def test_every_number_is_scikit_learns_on_ties(in_distribution: np.ndarray, ood: np.ndarray) -> None:
    two = pair(in_distribution, ood)
    ood_score = np.concatenate([in_distribution, ood])
    is_ood = np.repeat([0, 1], [len(in_distribution), len(ood)])
    assert separation.auroc(two) == pytest.approx(roc_auc_score(is_ood, ood_score))
    for mine, positive, score in (
        (two, is_ood, ood_score),
        (two.flipped, 1 - is_ood, -ood_score),
    ):
        assert separation.average_precision(mine) == pytest.approx(average_precision_score(positive, score))
        precision, recall, _ = precision_recall_curve(positive, score)
        assert separation.trapezoid_precision(mine) == pytest.approx(auc(recall, precision))
        false, true, at = roc_curve(positive, score, drop_intermediate=False)
        first = int(np.argmax(true >= 0.95))
        assert separation.false_alarms(mine) == (pytest.approx(false[first]), pytest.approx(at[first]))


@pytest.mark.parametrize(("in_distribution", "ood"), [([2] * 7, [2] * 4), ([0, 1], [2, 3]), ([2, 3], [0, 1])])
def test_constant_and_separated_scores(in_distribution: list[int], ood: list[int]) -> None:
    two = pair(np.array(in_distribution, float), np.array(ood, float))
    is_ood = [0] * len(in_distribution) + [1] * len(ood)
    assert separation.auroc(two) == roc_auc_score(is_ood, in_distribution + ood)
    assert separation.average_precision(two) == pytest.approx(
        average_precision_score(is_ood, in_distribution + ood)
    )


def test_many_scores_agree() -> None:
    rng = np.random.default_rng(0)
    in_distribution, ood = (
        rng.normal(size=100_000).astype(np.float32),
        rng.normal(1, 2, 100_000).astype(np.float32).round(3),
    )
    theirs = roc_auc_score(np.repeat([0, 1], 100_000), np.concatenate([in_distribution, ood]))
    assert separation.auroc(pair(in_distribution, ood)) == pytest.approx(theirs, abs=1e-12)


def components(in_distribution: np.ndarray, ood: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """DeLong's, by their definition: all pairs."""
    won = (ood[:, None] > in_distribution).astype(float) + (ood[:, None] == in_distribution) / 2
    return won.mean(axis=1), won.mean(axis=0)


@settings(deadline=None)
@given(SCORES.filter(lambda x: len(x) > 1), SCORES.filter(lambda x: len(x) > 1))
def test_variance_is_delongs(in_distribution: np.ndarray, ood: np.ndarray) -> None:
    ten, one = components(in_distribution, ood)
    theirs = ten.var(ddof=1) / len(ood) + one.var(ddof=1) / len(in_distribution)
    assert separation.auroc_variance(pair(in_distribution, ood)) == pytest.approx(theirs, abs=1e-12)
    ids = np.arange(len(in_distribution) + len(ood))
    named = Pair(
        Pool.of(in_distribution, ids[: len(in_distribution)]), Pool.of(ood, ids[len(in_distribution) :])
    )
    assert separation.auroc_variance(named) == pytest.approx(theirs, abs=1e-12)


def test_variance_takes_the_images_of_a_sample_together_as_obuchowski_does() -> None:
    rng = np.random.default_rng(5)
    in_distribution, ood = rng.normal(size=30), rng.normal(1, 1, 24)
    who, whose = rng.integers(0, 9, 30), rng.integers(4, 12, 24)
    ten, one = components(in_distribution, ood)
    area = ten.mean()
    of_ood = {c: float(np.sum(ten[whose == c] - area)) for c in set(whose.tolist())}
    of_in_distribution = {c: float(np.sum(one[who == c] - area)) for c in set(who.tolist())}
    both = set(of_ood) & set(of_in_distribution)
    theirs = sum(v**2 for v in of_ood.values()) * len(of_ood) / (len(of_ood) - 1) / 24**2
    theirs += (
        sum(v**2 for v in of_in_distribution.values())
        * len(of_in_distribution)
        / (len(of_in_distribution) - 1)
        / 30**2
    )
    theirs += (
        2 * sum(of_ood[c] * of_in_distribution[c] for c in both) * len(both) / (len(both) - 1) / (24 * 30)
    )
    two = Pair(Pool.of(in_distribution, who), Pool.of(ood, whose))
    assert separation.auroc_variance(two) == pytest.approx(theirs)


def test_variance_of_one_sample_is_nan() -> None:
    assert np.isnan(separation.auroc_variance(pair(np.array([1.0, 2.0]), np.array([3.0]))))


def test_nan_and_empty_pools_are_refused() -> None:
    with pytest.raises(SoritesError, match="got 1 NaN among 2"):
        pair(np.array([1.0, np.nan]), np.array([1.0]))
    with pytest.raises(SoritesError, match="got 0 and 1"):
        pair(np.array([]), np.array([1.0]))
