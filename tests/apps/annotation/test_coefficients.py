"""Alpha and kappa against the package krippendorff, scikit-learn, and figures that can be had by hand."""

from __future__ import annotations

import krippendorff
import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from sorites.apps.annotation.agreement import alpha, alpha_weighed, kappa, resampled


def ratings(
    seed: int, people: int = 5, images: int = 200, values: int = 4, missing: float = 0.5
) -> np.ndarray:
    rng = np.random.default_rng(seed)
    ground_truth = rng.integers(0, values, images)
    codes = np.where(
        rng.random((people, images)) < 0.7, ground_truth, rng.integers(0, values, (people, images))
    ).astype(float)
    codes[rng.random(codes.shape) < missing] = np.nan
    return codes


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("level", ["nominal", "interval"])
def test_alpha_is_the_packages(seed: int, level: str) -> None:
    codes = ratings(seed, people=2 + seed, values=2 + seed % 4)
    assert alpha(codes, level == "interval") == pytest.approx(
        krippendorff.alpha(codes, level_of_measurement=level), abs=1e-6
    )


def test_alpha_of_the_example_in_the_book() -> None:
    """Krippendorff, "Computing Krippendorff's Alpha-Reliability", example C: .743 for nominal and
    .849 for interval data.
    """
    none = np.nan
    codes = np.array([
        [1, 2, 3, 3, 2, 1, 4, 1, 2, none, none, none],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, none, 3],
        [none, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, none],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, none],
    ])  # fmt: skip
    assert alpha(codes) == pytest.approx(0.743, abs=5e-4)
    assert alpha(codes, interval=True) == pytest.approx(0.849, abs=5e-4)


@pytest.mark.parametrize("seed", range(5))
def test_kappa_of_two_is_scikit_learns(seed: int) -> None:
    codes = ratings(seed, people=2, missing=0.0)
    assert kappa(codes) == pytest.approx(cohen_kappa_score(*codes), abs=1e-12)


def test_kappa_of_several_weighs_pairs_by_their_images() -> None:
    codes = ratings(3, people=3)
    values, sizes = [], []
    for i, j in ((0, 1), (0, 2), (1, 2)):
        both = ~np.isnan(codes[i]) & ~np.isnan(codes[j])
        values.append(cohen_kappa_score(codes[i][both], codes[j][both]))
        sizes.append(both.sum())
    assert kappa(codes) == pytest.approx(np.average(values, weights=sizes))


def test_where_nothing_differs_there_is_no_coefficient() -> None:
    assert np.isnan(alpha(np.ones((2, 5))))
    assert np.isnan(kappa(np.ones((2, 5))))
    assert np.isnan(alpha(np.full((2, 5), np.nan)))
    assert np.isnan(alpha(np.array([[1.0, np.nan], [np.nan, 2.0]])))
    assert alpha(np.array([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])) == 1.0


@pytest.mark.slow
def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    ground_truth = alpha(ratings(99, people=2, images=200_000, missing=0.0))
    held = 0
    for seed in range(60):
        codes = ratings(seed, people=2, images=150, missing=0.0)
        low, high = resampled(alpha_weighed(codes), codes.shape[1], seed)
        held += low <= ground_truth <= high
    assert 50 <= held <= 60
