"""Two pools of scores, against scikit-learn and against the definitions in plain loops."""

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
def test_every_number_is_scikit_learns_on_ties(familiar: np.ndarray, strange: np.ndarray) -> None:
    two = pair(familiar, strange)
    strangeness = np.concatenate([familiar, strange])
    is_strange = np.repeat([0, 1], [len(familiar), len(strange)])
    assert separation.auroc(two) == pytest.approx(roc_auc_score(is_strange, strangeness))
    for mine, positive, score in (
        (two, is_strange, strangeness),
        (two.flipped, 1 - is_strange, -strangeness),
    ):
        assert separation.average_precision(mine) == pytest.approx(average_precision_score(positive, score))
        precision, recall, _ = precision_recall_curve(positive, score)
        assert separation.trapezoid_precision(mine) == pytest.approx(auc(recall, precision))
        false, true, at = roc_curve(positive, score, drop_intermediate=False)
        first = int(np.argmax(true >= 0.95))
        assert separation.false_alarms(mine) == (pytest.approx(false[first]), pytest.approx(at[first]))


@pytest.mark.parametrize(("familiar", "strange"), [([2] * 7, [2] * 4), ([0, 1], [2, 3]), ([2, 3], [0, 1])])
def test_constant_and_separated_scores(familiar: list[int], strange: list[int]) -> None:
    two = pair(np.array(familiar, float), np.array(strange, float))
    is_strange = [0] * len(familiar) + [1] * len(strange)
    assert separation.auroc(two) == roc_auc_score(is_strange, familiar + strange)
    assert separation.average_precision(two) == pytest.approx(
        average_precision_score(is_strange, familiar + strange)
    )


def test_many_scores_agree() -> None:
    rng = np.random.default_rng(0)
    familiar, strange = (
        rng.normal(size=100_000).astype(np.float32),
        rng.normal(1, 2, 100_000).astype(np.float32).round(3),
    )
    theirs = roc_auc_score(np.repeat([0, 1], 100_000), np.concatenate([familiar, strange]))
    assert separation.auroc(pair(familiar, strange)) == pytest.approx(theirs, abs=1e-12)


def components(familiar: np.ndarray, strange: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """DeLong's, by their definition: all pairs."""
    won = (strange[:, None] > familiar).astype(float) + (strange[:, None] == familiar) / 2
    return won.mean(axis=1), won.mean(axis=0)


@settings(deadline=None)
@given(SCORES.filter(lambda x: len(x) > 1), SCORES.filter(lambda x: len(x) > 1))
def test_variance_is_delongs(familiar: np.ndarray, strange: np.ndarray) -> None:
    ten, one = components(familiar, strange)
    theirs = ten.var(ddof=1) / len(strange) + one.var(ddof=1) / len(familiar)
    assert separation.auroc_variance(pair(familiar, strange)) == pytest.approx(theirs, abs=1e-12)
    ids = np.arange(len(familiar) + len(strange))
    named = Pair(Pool.of(familiar, ids[: len(familiar)]), Pool.of(strange, ids[len(familiar) :]))
    assert separation.auroc_variance(named) == pytest.approx(theirs, abs=1e-12)


def test_variance_takes_the_pictures_of_a_sample_together_as_obuchowski_does() -> None:
    rng = np.random.default_rng(5)
    familiar, strange = rng.normal(size=30), rng.normal(1, 1, 24)
    who, whose = rng.integers(0, 9, 30), rng.integers(4, 12, 24)
    ten, one = components(familiar, strange)
    area = ten.mean()
    of_strange = {c: float(np.sum(ten[whose == c] - area)) for c in set(whose.tolist())}
    of_familiar = {c: float(np.sum(one[who == c] - area)) for c in set(who.tolist())}
    both = set(of_strange) & set(of_familiar)
    theirs = sum(v**2 for v in of_strange.values()) * len(of_strange) / (len(of_strange) - 1) / 24**2
    theirs += sum(v**2 for v in of_familiar.values()) * len(of_familiar) / (len(of_familiar) - 1) / 30**2
    theirs += 2 * sum(of_strange[c] * of_familiar[c] for c in both) * len(both) / (len(both) - 1) / (24 * 30)
    two = Pair(Pool.of(familiar, who), Pool.of(strange, whose))
    assert separation.auroc_variance(two) == pytest.approx(theirs)


def test_one_sample_says_nothing_of_the_spread() -> None:
    assert np.isnan(separation.auroc_variance(pair(np.array([1.0, 2.0]), np.array([3.0]))))


def test_nan_and_empty_pools_are_refused() -> None:
    with pytest.raises(SoritesError, match="got 1 NaN among 2"):
        pair(np.array([1.0, np.nan]), np.array([1.0]))
    with pytest.raises(SoritesError, match="got 0 and 1"):
        pair(np.array([]), np.array([1.0]))
