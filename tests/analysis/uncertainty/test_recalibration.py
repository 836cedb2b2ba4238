"""Recalibration against loops, scikit-learn and closed forms."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import log_loss
from tests.analysis.uncertainty.test_conformal import CLASSES, seen, source

import sorites
from sorites.analysis.uncertainty.kept import softmax
from sorites.analysis.uncertainty.recalibration import (
    brier_of,
    ece,
    fit_isotonic,
    fit_temperature,
    fit_vector,
    nll_of,
)
from sorites.core import Model
from sorites.core.errors import SoritesError, UnknownName
from sorites.suites.suite import parse


def drawn(seed: int, n: int, classes: int = 4, sharp: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Return logits that are ``sharp`` times too large, and labels drawn from the right ones."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1.5, (n, classes))
    odds = np.exp(logits)
    shares = (odds / odds.sum(axis=1, keepdims=True)).cumsum(axis=1)
    return sharp * logits, (shares < rng.random((n, 1))).sum(axis=1).clip(0, classes - 1)


def single(labels: np.ndarray) -> list[np.ndarray]:
    return [np.array([label]) for label in labels]


def test_nll_and_brier_are_scikit_learns_and_the_sum_over_classes() -> None:
    logits, labels = drawn(0, 300)
    p = softmax(logits)
    assert nll_of(p, single(labels)).mean() == pytest.approx(log_loss(labels, p), abs=1e-9)
    wanted = [sum((p[i, c] - (c == labels[i])) ** 2 for c in range(4)) for i in range(300)]
    np.testing.assert_allclose(brier_of(p, single(labels)), wanted, atol=1e-12)
    # Two accepted classes are one: the same as after their probabilities are added.
    merged = np.stack([p[:, 0] + p[:, 1], p[:, 2], p[:, 3]], axis=1)
    right = [np.array([0, 1]) if label < 2 else np.array([label]) for label in labels]
    places, both = single(np.maximum(labels - 1, 0)), labels < 2
    np.testing.assert_allclose(brier_of(p, right)[both], brier_of(merged, places)[both], atol=1e-12)
    np.testing.assert_allclose(nll_of(p, right), nll_of(merged, places), atol=1e-12)


@pytest.mark.slow
def test_the_temperature_that_was_applied_is_found() -> None:
    logits, labels = drawn(1, 20_000)
    fitted = fit_temperature(logits, single(labels))
    np.testing.assert_allclose(fitted(logits[:5]), softmax(logits[:5] / 3.0), atol=0.02)
    # No temperature of a fine grid has a lower NLL.
    grid = [nll_of(softmax(logits[:2000] / t), single(labels[:2000])).mean() for t in np.linspace(1, 6, 200)]
    few = fit_temperature(logits[:2000], single(labels[:2000]))
    assert nll_of(few(logits[:2000]), single(labels[:2000])).mean() <= min(grid) + 1e-9


def test_vector_scaling_is_the_optimum_of_a_convex_problem() -> None:
    logits, labels = drawn(2, 1500)
    logits = logits * np.array([1.0, 0.5, 2.0, 1.0]) + np.array([0, 1.0, 0, -1.0])
    right = single(labels)
    fitted = nll_of(fit_vector(logits, right)(logits), right).mean()
    assert fitted < nll_of(fit_temperature(logits, right)(logits), right).mean()
    # The gradient vanishes: the mean probability of each class is its share of labels.
    np.testing.assert_allclose(
        fit_vector(logits, right)(logits).mean(axis=0), np.bincount(labels) / 1500, atol=1e-3
    )
    with pytest.raises(SoritesError, match="at least"):
        fit_vector(logits[:3], right[:3])


def test_isotonic_is_scikit_learns() -> None:
    logits, labels = drawn(3, 400)
    p = softmax(logits)
    conf, correct = p.max(axis=1), (p.argmax(axis=1) == labels).astype(float)
    peer = IsotonicRegression(out_of_bounds="clip").fit(conf, correct)
    other, _ = drawn(4, 200)
    found = fit_isotonic(logits, single(labels))(other)
    top = softmax(other).argmax(axis=1)
    wanted = np.clip(peer.predict(softmax(other).max(axis=1)), 1 / 800, 1 - 1 / 800)
    np.testing.assert_allclose(found[np.arange(200), top], wanted, atol=1e-9)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)


def test_calibration_errors_are_loops() -> None:
    rng = np.random.default_rng(5)
    conf = np.round(rng.random(101), 2)
    correct = (rng.random(101) < conf).astype(float)
    gaps = []
    for b in range(15):
        own = [i for i in range(101) if min(int(conf[i] * 15), 14) == b]
        gaps.append(abs(math.fsum(conf[i] - correct[i] for i in own)))
    assert ece(conf, correct) == pytest.approx(math.fsum(gaps) / 101, abs=1e-12)
    ranked = sorted(range(101), key=lambda i: conf[i])
    shared = {c: np.mean(correct[conf == c]) for c in conf}
    parts = [
        abs(sum(conf[i] - shared[conf[i]] for i in ranked if ranked.index(i) * 15 // 101 == b))
        for b in range(15)
    ]
    assert ece(conf, correct, adaptive=True) == pytest.approx(math.fsum(parts) / 101, abs=1e-12)


def test_a_run_is_recalibrated_on_clean_images_and_judged_under_shift(tmp_path: Path) -> None:
    suite = parse({"name": "s", "labels": CLASSES, "shifts": ["brightness"]}, "test")
    run = sorites.run(
        suite,
        source=source(),
        models=[Model("m", seen)],
        out=tmp_path / "run",
        keep_features=True,
        levels=[3],
    )
    answer = sorites.recalibrate(run, methods=["none", "temperature", "vector", "isotonic"])
    assert answer.height == 8
    plain = answer.filter(method="none")
    table = sorites.calibration_error(run).sort("shift")
    ours = plain.sort("shift")
    # conf is stored in float32.
    np.testing.assert_allclose(ours["accuracy"], table["accuracy"], atol=1e-12)
    np.testing.assert_allclose(ours["conf"], table["conf"], atol=1e-6)
    np.testing.assert_allclose(ours["ece"], table["value"], atol=1e-5)
    adaptive = sorites.adaptive_calibration_error(run).sort("shift")
    np.testing.assert_allclose(ours["adaptive_ece"], adaptive["value"], atol=1e-5)
    clean = {row["method"]: row["nll"] for row in answer.filter(shift="clean").to_dicts()}
    assert clean["temperature"] < clean["none"]
    with pytest.raises(UnknownName):
        sorites.recalibrate(run, methods=["platt"])
