"""Conformity scores against loops, and the coverage that split conformal prediction promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from sorites.analysis.uncertainty.conformal import promised_range
from sorites.analysis.uncertainty.scores import METHODS, of_answers, threshold, weighted_thresholds

Array = NDArray[np.float64]


def drawn(rng: np.random.Generator, n: int, classes: int = 8) -> tuple[Array, NDArray[np.int64]]:
    """Return probabilities of images, and labels that follow others: a model that is overconfident."""
    truth = rng.dirichlet(np.full(classes, 0.4), n)
    labels = (truth.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, classes - 1)
    sharpened = truth**2 + 1e-9
    return sharpened / sharpened.sum(axis=1, keepdims=True), labels


def by_loop(method: str, p: Array, u: float) -> list[float]:
    """The scores of the papers, class by class, in float64."""
    ranked = sorted(range(len(p)), key=lambda c: (-p[c], c))
    scores = [0.0] * len(p)
    for rank, c in enumerate(ranked, 1):
        before = math.fsum(p[other] for other in ranked[: rank - 1])
        adaptive = before + u * p[c]
        scores[c] = {
            "thr": 1 - p[c],
            "aps": adaptive,
            "raps": adaptive + 0.01 * max(0, rank - 5),
        }[method]
    return scores


@pytest.mark.parametrize("method", METHODS)
def test_scores_are_those_of_the_papers(method: str) -> None:
    rng = np.random.default_rng(1)
    p, _ = drawn(rng, 200)
    p[:20] = np.round(p[:20], 1)  # ties
    u = rng.random(200)
    wanted = [by_loop(method, p[i], u[i]) for i in range(200)]
    np.testing.assert_allclose(METHODS[method](p, u), wanted, atol=1e-9, rtol=0)


def test_an_image_with_several_right_classes_has_the_lowest_of_their_scores() -> None:
    scores = np.array([[0.3, 0.1, 0.7], [0.5, 0.2, 0.9]])
    right = [np.array([0, 2]), np.array([2])]
    np.testing.assert_array_equal(of_answers(scores, right), [0.3, 0.9])


@pytest.mark.parametrize("method", METHODS)
def test_coverage_is_as_promised_on_exchangeable_images_over_200_draws(method: str) -> None:
    rng = np.random.default_rng(2)
    draws, calibration, tested = 200, 200, 200
    p, labels = drawn(rng, draws * (calibration + tested))
    scores = METHODS[method](p, rng.random(len(p)))[np.arange(len(p)), labels].reshape(draws, -1)
    covered = [(one[calibration:] <= threshold(one[:calibration], 0.1)).mean() for one in scores]
    assert np.mean(covered) == pytest.approx(0.9, abs=0.015)
    # The coverage given the calibration images varies as it should (beta, plus the test images' own error).
    low, high = promised_range(0.1, calibration)
    spread = math.sqrt(((high - low) / 3.92) ** 2 + 0.09 / tested)
    assert np.std(covered) == pytest.approx(spread, rel=0.2)


def test_too_few_calibration_images_give_all_classes() -> None:
    assert threshold(np.arange(8.0), 0.1) == math.inf
    assert threshold(np.arange(9.0), 0.1) == 8.0


def test_weighted_thresholds_are_the_weighted_quantile() -> None:
    rng = np.random.default_rng(3)
    scores, near, asked = rng.random(60), rng.normal(0, 1, 60), rng.normal(0, 2, 15)
    found = weighted_thresholds(scores, near, asked, 0.7, 0.2, batch=4)
    for i, at in enumerate(asked):
        weights = [math.exp(-abs(at - d) / 0.7) for d in near]
        total = math.fsum(weights) + 1
        wanted = math.inf
        for s in sorted(scores):
            if math.fsum(w for w, own in zip(weights, scores, strict=True) if own <= s) / total >= 0.8:
                wanted = s
                break
        assert found[i] == wanted
    # Equal weights of 1 are the plain threshold.
    plain = weighted_thresholds(scores, np.zeros(60), np.zeros(1), 1.0, 0.2)
    assert plain.tolist() == [threshold(scores, 0.2)]


def test_weights_that_say_nothing_cover_at_least_as_promised() -> None:
    rng = np.random.default_rng(4)
    covered = []
    for _ in range(100):
        p, labels = drawn(rng, 300)
        scores = METHODS["aps"](p, rng.random(300))[np.arange(300), labels]
        near = rng.normal(0, 1, 300)
        limits = weighted_thresholds(scores[:200], near[:200], near[200:], 0.3, 0.1)
        covered.append((scores[200:] <= limits).mean())
    assert 0.885 < np.mean(covered) < 0.96
