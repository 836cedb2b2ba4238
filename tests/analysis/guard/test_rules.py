"""Rules that choose a threshold, against closed forms and simulations of fresh draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sorites.analysis.guard.rules import (
    Costs,
    Scored,
    by_accepted,
    by_cost,
    by_risk,
    by_severity,
    effective,
    parse_rule,
    rate,
    read_costs,
)
from sorites.core.errors import InvalidOption, SoritesError, TooFewImages


def drawn(rng: np.random.Generator, samples: int, severities: tuple[float, ...] = (0, 1, 2)) -> Scored:
    """Draw samples whose scores and errors rise with the severity; images of a sample are correlated."""
    own = np.repeat(rng.normal(0, 1, samples), len(severities))
    severity = np.tile(np.array(severities, np.float64), samples)
    score = own + severity + rng.normal(0, 0.5, len(own))
    wrong = rng.random(len(own)) < 1 / (1 + np.exp(2 - score))
    return Scored(
        score,
        wrong,
        np.ones(len(own), bool),
        severity == 0,
        np.repeat(np.arange(samples), len(severities)),
        np.where(severity == 0, "clean", "fog"),
        np.where(severity == 0, np.nan, severity),
    )


def test_rates_have_the_exact_interval_of_independent_images() -> None:
    hits = np.arange(40) < 9
    found = rate(hits, np.arange(40))
    exact = stats.binomtest(9, 40).proportion_ci(method="exact")
    assert (found.value, found.low, found.high) == pytest.approx((9 / 40, exact.low, exact.high))
    assert rate(hits[:0], np.arange(0)).value is None
    assert effective(np.repeat(np.arange(7), 3)) == pytest.approx(7)
    twice = rate(np.repeat(hits, 2), np.repeat(np.arange(40), 2))
    assert (twice.low, twice.high) == pytest.approx((exact.low, exact.high))


def test_accepted_share_is_kept_on_average_and_follows_its_beta_distribution() -> None:
    rng = np.random.default_rng(0)
    accepted = []
    for _ in range(400):
        chosen = by_accepted(drawn(rng, 39, (0,)), 0.9)
        accepted.append(stats.norm.cdf(chosen.threshold, scale=np.sqrt(1.25)))
    # The 36th of 39 order statistics: Beta(36, 4).
    assert np.mean(accepted) == pytest.approx(0.9, abs=0.008)
    assert stats.kstest(accepted, stats.beta(36, 4).cdf).pvalue > 0.001
    with pytest.raises(TooFewImages):
        by_accepted(drawn(rng, 8, (0,)), 0.9)


def test_risk_is_kept_with_its_confidence_although_images_of_a_sample_are_correlated() -> None:
    rng = np.random.default_rng(1)
    fresh = drawn(rng, 40_000)
    over = 0
    for _ in range(60):
        threshold = by_risk(drawn(rng, 150), 0.25, 0.9).threshold
        over += fresh.wrong[fresh.score <= threshold].mean() > 0.25
    assert stats.binomtest(int(over), 60, 0.1, alternative="greater").pvalue > 0.01
    with pytest.raises(SoritesError, match="lowest"):
        by_risk(drawn(rng, 100), 0.001, 0.9)


def test_power_is_kept_with_its_confidence_and_alarms_are_few() -> None:
    rng = np.random.default_rng(2)
    fresh = drawn(rng, 40_000)
    past = fresh.where((fresh.shift == "fog") & (fresh.severity >= 2))
    flagged = [
        float((past.score > by_severity(drawn(rng, 120), "fog", 2, 0.8, 0.9).threshold).mean())
        for _ in range(100)
    ]
    below = sum(share < 0.8 for share in flagged)
    assert stats.binomtest(below, 100, 0.1, alternative="greater").pvalue > 0.01
    assert np.mean(flagged) < 0.9
    for name in ("clean", "rain"):
        with pytest.raises(SoritesError, match="it has fog"):
            by_severity(drawn(rng, 120), name, 0, 0.8, 0.9)


def test_beyond_needs_images_there_and_enough_of_them() -> None:
    rng = np.random.default_rng(3)
    with pytest.raises(SoritesError, match="no shift"):
        by_severity(drawn(rng, 50), "rain", 1, 0.9, 0.95)
    with pytest.raises(SoritesError, match="only to 2"):
        by_severity(drawn(rng, 50), "fog", 3, 0.9, 0.95)
    with pytest.raises(TooFewImages, match="29"):
        by_severity(drawn(rng, 20), "fog", 1, 0.9, 0.95)


def test_cost_equals_an_exhaustive_search(tmp_path: Path) -> None:
    images = drawn(np.random.default_rng(4), 60)
    costs = Costs(missed=5, false_alarm=1, caught=0.5, shares={"clean": 3, "fog": 1})
    weights = np.where(images.shift == "clean", 0.75 / 60, 0.25 / 120)

    def total(threshold: float) -> float:
        alarm = images.score > threshold
        return float((weights * np.where(alarm, np.where(images.wrong, 0.5, 1), images.wrong * 5.0)).sum())

    tried = [-np.inf, *images.score]
    assert total(by_cost(images, costs).threshold) == pytest.approx(min(map(total, tried)))
    never = by_cost(images, Costs(missed=0, false_alarm=1))
    assert never.threshold >= images.score.max()
    always = by_cost(images, Costs(missed=1, false_alarm=0, caught=0))
    assert always.threshold < images.score[images.wrong].min()
    path = tmp_path / "costs.toml"
    path.write_text("missed = 3\nfalse_alarm = 1\n[shares]\nclean = 1\n")
    assert read_costs(path).shares == {"clean": 1}
    path.write_text("missed = 3\n")
    with pytest.raises(SoritesError, match="false_alarm"):
        read_costs(path)


@pytest.mark.parametrize("at", ["tpr", "tpr=1", "risk=x", "beyond=fog", "beyond=fog:far", "fpr=0.1"])
def test_other_rules_are_refused(at: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_rule(at, 0.9, 0.95)
    assert caught.value.fields["name"] == "at"
