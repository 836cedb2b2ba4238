import numpy as np
import pytest
from scipy.stats import binomtest, norm

from sorites.metrics import intervals as bounds
from sorites.metrics import separation
from sorites.metrics.intervals import Z
from sorites.metrics.separation import Pair, Pool, pair


@pytest.mark.parametrize(("right", "n"), [(0, 5), (3, 7), (7, 7), (40, 100)])
def test_share_is_wilsons(right: int, n: int) -> None:
    theirs = binomtest(right, n).proportion_ci(0.95, method="wilson")
    assert bounds.share(right / n, n) == pytest.approx((theirs.low, theirs.high))
    assert bounds.share(0.5, 0) == (None, None)


@pytest.mark.parametrize(("value", "in_distribution", "ood"), [(0.7, 20, 30), (0.5, 8, 5), (0.93, 200, 40)])
def test_area_solves_newcombes_equation(value: float, in_distribution: int, ood: int) -> None:
    for bound in bounds.area(value, in_distribution, ood, 0.0):
        assert bound is not None
        more = (in_distribution + ood) / 2 - 1
        error = (
            bound
            * (1 - bound)
            * (1 + more * ((1 - bound) / (2 - bound) + bound / (1 + bound)))
            / (in_distribution * ood)
        )
        assert abs(bound - value) == pytest.approx(Z * error**0.5)


def test_area_does_not_collapse_at_its_ends_and_mirrors() -> None:
    low, high = bounds.area(1.0, 10, 10, 0.0)
    assert high == 1.0
    assert low is not None
    assert 0.6 < low < 0.95
    assert bounds.area(0.0, 10, 10, 0.0) == pytest.approx((0.0, 1 - low))


@pytest.mark.parametrize(
    ("apart", "in_distribution", "ood"), [(0.0, 15, 10), (1.0, 30, 30), (2.5, 20, 30), (3.5, 100, 25)]
)
def test_area_covers_the_truth(apart: float, in_distribution: int, ood: int) -> None:
    rng = np.random.default_rng(1)
    ground_truth = norm.cdf(apart / 2**0.5)
    held = 0
    for _ in range(500):
        two = pair(rng.normal(size=in_distribution), rng.normal(apart, 1, ood))
        low, high = bounds.area(separation.auroc(two), in_distribution, ood, separation.auroc_variance(two))
        held += low <= ground_truth <= high  # type: ignore[operator]
    assert held / 500 > 0.925


def test_images_of_one_sample_are_not_independent() -> None:
    rng = np.random.default_rng(2)
    ground_truth, samples = norm.cdf(1 / (2 * (0.81 + 0.19)) ** 0.5), 25
    who = np.arange(samples).repeat(6)
    held = 0
    for _ in range(400):
        pools = [
            rng.normal(0, 0.9, samples).repeat(6) + rng.normal(0, 0.19**0.5, samples * 6) + shift
            for shift in (0, 1)
        ]
        two = Pair(Pool.of(pools[0], who), Pool.of(pools[1], who + 100))
        low, high = bounds.area(separation.auroc(two), 150, 150, separation.auroc_variance(two))
        held += low <= ground_truth <= high  # type: ignore[operator]
    assert 0.92 < held / 400 < 0.985


def test_the_area_does_not_jump_at_a_perfect_score() -> None:
    """Five samples of fifteen images on each side count as five where no pair is in the wrong order."""
    who = np.arange(5).repeat(15)
    in_distribution = Pool.of(np.linspace(0, 1, 75), who)
    above = np.linspace(2, 3, 75)
    moved = np.where(np.arange(75) == 0, 0.95, above)
    perfect, nearly = (Pair(in_distribution, Pool.of(scores, who + 5)) for scores in (above, moved))
    lows = [
        bounds.area(separation.auroc(two), 75, 75, separation.auroc_variance(two), 15)[0]
        for two in (perfect, nearly)
    ]
    few = bounds.area(1.0, 5, 5, 0.0)[0]
    assert lows[0] == pytest.approx(few, abs=0.03)  # type: ignore[arg-type]
    assert abs(lows[1] - lows[0]) < 0.06  # type: ignore[operator]


def test_square_and_add_is_pythagoras() -> None:
    assert bounds.square_and_add(0.5, (0.4, 0.6), (0.5, 0.9)) == pytest.approx(
        (0.4, 0.5 + (0.01 + 0.16) ** 0.5)
    )
    assert bounds.square_and_add(0.5, (0.1, 0.9), (0.1, 0.9)) == (0.0, 1.0)
    assert bounds.square_and_add(0.5, (0.4, 0.6), (None, None)) == (None, None)


def test_a_threshold_that_may_lie_below_all_ood_images_has_no_bounds() -> None:
    two = pair(np.arange(20.0), np.array([5.0, 8.0, 11.0]))
    assert separation.alarms_between(two, (0.0, 0.4)) == (None, None)
    assert separation.alarms_between(two, (0.33, 0.4)) == (None, None)
    assert separation.alarms_between(two, (None, None)) == (None, None)
    assert separation.alarms_between(two, (0.34, 0.4)) == (1 - 8 / 20, 1 - 5 / 20)
    assert separation.alarms_between(two, (0.34, 0.99)) == (1 - 11 / 20, 1 - 5 / 20)
