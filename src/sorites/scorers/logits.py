"""OOD scores computed from the logits alone."""

from __future__ import annotations

import numpy as np

from sorites.core import Outputs, add_scorer
from sorites.scorers.base import Score, Wide, above, class_logits_of, logits_of, logsumexp, scored, whole

# Confidences of boxes are clipped to this range before their odds are taken.
CONFIDENCES = (1e-12, 1 - 1e-7)


@add_scorer
def msp(outputs: Outputs, temperature: float = 1.0) -> Score:
    """Log-odds against the top class, which rank images like the maximum softmax probability (Hendrycks and
    Gimpel 2017).

    log((1 - p) / p) has the same order as 1 - p but does not saturate in float32 where a model is
    confident. For a box whose classes do not exclude each other, p is the sigmoid of its largest logit; for a
    box without logits, it is its confidence.
    """
    above(temperature, 0, "msp", "temperature")
    if outputs.logits is None and outputs.boxes is not None:
        confidence = np.array([max(box.conf or 0.0 for box in boxes) for boxes in outputs.boxes])
        p = np.clip(confidence, *CONFIDENCES)
        return np.asarray((np.log1p(-p) - np.log(p)) / temperature, np.float32)
    if outputs.independent:
        return scored(lambda logits: -logits.max(axis=1) / temperature, class_logits_of(outputs, "msp"))
    return scored(lambda logits: odds(logits / temperature), logits_of(outputs, "msp"))


@add_scorer
def max_logit(outputs: Outputs) -> Score:
    """Negative largest logit (Hendrycks et al. 2022)."""
    return scored(lambda logits: -logits.max(axis=1), class_logits_of(outputs, "max_logit"))


@add_scorer
def energy(outputs: Outputs, temperature: float = 1.0) -> Score:
    """Free energy, -T log sum exp(logit / T) (Liu et al. 2020)."""
    above(temperature, 0, "energy", "temperature")
    return scored(
        lambda logits: -temperature * logsumexp(logits / temperature), class_logits_of(outputs, "energy")
    )


@add_scorer
def entropy(outputs: Outputs) -> Score:
    """Entropy of the softmax, -sum p log p, in nats (Shannon 1948)."""

    def of_softmax(logits: Wide) -> Wide:
        log_p = logits - logsumexp(logits)[:, None]
        return np.asarray(-(np.exp(log_p) * np.maximum(log_p, -1e30)).sum(axis=1))

    return scored(of_softmax, logits_of(outputs, "entropy"))


@add_scorer
def gen(outputs: Outputs, gamma: float = 0.1, top: int = 100) -> Score:
    """Generalised entropy: the sum of (p (1 - p))^gamma over the ``top`` largest probabilities (Liu et al.
    2023).
    """
    above(gamma, 0, "gen", "gamma")
    max_classes = whole(top, "gen", "top")

    def entropy(logits: Wide) -> Wide:
        count = min(max_classes, logits.shape[1])
        likely = np.partition(logits, -count, axis=1)[:, -count:] - logsumexp(logits)[:, None]
        with np.errstate(divide="ignore"):
            unlikely = np.log(-np.expm1(np.minimum(likely, 0)))
        return np.asarray(np.exp(gamma * (likely + unlikely)).sum(axis=1))

    return scored(entropy, logits_of(outputs, "gen"))


vars(gen)["ranges"] = {"gamma": (0.01, 0.1, 0.5, 1, 2, 5, 10), "top": (10, 50, 100, 200, 500, 1000)}


def odds(logits: Wide) -> Wide:
    """Return log((1 - p) / p) of the top class."""
    rows = np.arange(len(logits))
    predicted = logits.argmax(axis=1)
    others = logits.copy()
    others[rows, predicted] = -np.inf
    return np.asarray(logsumexp(others) - logits[rows, predicted])
