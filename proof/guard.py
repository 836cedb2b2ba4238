"""The guard: do its promises hold on fresh draws of the population that it was made on?

Samples are drawn whose scores and errors rise with the severity, with correlated images of each sample. Half of
them choose a threshold, the other half estimates its rates, as ``sorites guard`` does. The true rates follow from
400,000 fresh images. A promise with confidence 95 % may be broken in 5 % of the guards, and 95 % intervals must
contain the true rate in at least 95 % of them, up to the error of the simulation. Tests of drift on unchanged
images may raise false alarms at the stated rate.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from proof._lines import Line
from sorites.analysis.guard.rules import Choose, Scored, parse_rule, rate
from sorites.deploy.drift import compare_features, compare_scores

GUARDS, SAMPLES, FRESH = 1000, 300, 100_000
SEVERITIES = (0.0, 1.0, 2.0, 3.0)
# Three standard errors of a share of 5 % of the simulated guards.
SLACK = 3 * float(np.sqrt(0.05 * 0.95 / GUARDS))
RULES = {"tpr=0.95": 0.0, "risk=0.35": 0.05, "beyond=fog:2": 0.05}


def run() -> Iterator[Line]:
    rng = np.random.default_rng(2026)
    fresh = drawn(rng, FRESH)
    for at, allowed in RULES.items():
        yield from _promises(at, allowed, rng, fresh)
    yield from _drift(rng)


def drawn(rng: np.random.Generator, samples: int) -> Scored:
    """Draw samples at all severities."""
    count = len(SEVERITIES)
    own, severity = np.repeat(rng.normal(0, 1, samples), count), np.tile(SEVERITIES, samples)
    score = own + severity + rng.gumbel(0, 0.4, len(own))
    wrong = rng.random(len(own)) < 1 / (1 + np.exp(2.5 - score))
    clean = severity == 0
    sample = np.repeat(np.arange(samples), count)
    shift = np.where(clean, "clean", "fog")
    return Scored(score, wrong, np.ones(len(own), bool), clean, sample, shift, severity)


def true_rates(images: Scored, threshold: float) -> tuple[float, float, float]:
    """Return the alarm rate of clean images, the risk of all, and the power at or beyond severity 2."""
    alarm = images.score > threshold
    past = images.severity >= 2
    return float(alarm[images.clean].mean()), float(images.wrong[~alarm].mean()), float(alarm[past].mean())


def _promises(at: str, allowed: float, rng: np.random.Generator, fresh: Scored) -> Iterator[Line]:
    choose: Choose = parse_rule(at, 0.9, 0.95)
    broken, inside, alarms = 0, [0, 0], []
    for _ in range(GUARDS):
        chosen, held_out = drawn(rng, SAMPLES // 2), drawn(rng, SAMPLES // 2)
        threshold = choose(chosen).threshold
        alarm, risk, power = true_rates(fresh, threshold)
        broken += {"tpr": False, "risk": risk > 0.35, "beyond": power < 0.9}[at.partition("=")[0]]
        alarms.append(alarm)
        flagged = held_out.score > threshold
        quiet = ~flagged
        estimates = (
            (rate(flagged[held_out.clean], held_out.sample[held_out.clean]), alarm),
            (rate(held_out.wrong[quiet], held_out.sample[quiet]), risk),
        )
        for i, (estimate, truth) in enumerate(estimates):
            assert estimate.low is not None
            assert estimate.high is not None
            inside[i] += estimate.low <= truth <= estimate.high
    mean = float(np.mean(alarms))
    if at.startswith("tpr"):
        error = float(np.std(alarms)) / GUARDS**0.5
        yield Line(f"{at}: mean alarm rate of clean images, %", 100 * mean, most=100 * (0.05 + 3 * error))
    else:
        yield Line(
            f"{at}: guards whose promise is broken, %", 100 * broken / GUARDS, most=100 * (allowed + SLACK)
        )
    for name, count in zip(("clean alarm rate", "risk"), inside, strict=True):
        yield Line(
            f"{at}: intervals with the true {name}, %", 100 * count / GUARDS, least=100 * (0.95 - SLACK)
        )


def _drift(rng: np.random.Generator) -> Iterator[Line]:
    def features(count: int) -> NDArray[np.float32]:
        return (rng.normal(0, 1, (count, 8)) ** 3).astype(np.float32)

    scores = np.mean(
        [compare_scores(rng.gumbel(0, 1, 200), rng.gumbel(0, 1, 80), 399).p <= 0.05 for _ in range(GUARDS)]
    )
    energy = np.mean([compare_features(features(60), features(40), 199).p <= 0.05 for _ in range(GUARDS)])
    most = 100 * (0.05 + SLACK)
    yield Line("drift of scores at 5 %: false alarms, %", 100 * float(scores), most=most)
    yield Line("drift of features at 5 %: false alarms, %", 100 * float(energy), most=most)
