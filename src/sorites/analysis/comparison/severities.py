"""Failure severities of two models, with a bootstrap that draws the same samples for both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.analysis.comparison.pairs import Curve, Curves, Ends
from sorites.analysis.comparison.statistics import TIE
from sorites.metrics.half_accuracy import crossing
from sorites.metrics.intervals import share
from sorites.metrics.product_limit import median_severities

Array = NDArray[np.float64]
BOOTSTRAP_DRAWS = 2_000
SEED = 0
# Upper bound on draws x samples held in memory at a time.
CELLS_PER_BATCH = 1 << 22


@dataclass(frozen=True)
class Points:
    """Failure severities of both models under one shift, in its unit: estimates and bootstrap draws.

    A severity beyond the tested range counts as the greatest tested severity.
    """

    base: float
    new: float
    drawn_base: Array
    drawn_new: Array
    flipped: Array
    """The new model's severity minus the base's, with the models swapped for random samples; first as is."""
    top: float
    n: int
    undefined: str = ""
    """Why there is no such severity; empty if there is."""

    def flip_p(self, sign: int) -> float:
        """Return the one-sided p of equal models, for a change in the direction of ``sign``."""
        change = sign * self.flipped
        return float((change >= change[0] - TIE).mean())


# Takes the outcomes of a model, weights of samples (draws x samples) and severities; one value per draw.
Measure = Callable[[Curve, Array, Array], Array]


def half_accuracy_severity(curve: Curve, weights: Array, severities: Array) -> Array:
    """Return the severity at which accuracy is half-way from clean accuracy to chance; see the metric."""
    observed = np.isfinite(curve.right)
    right = weights @ np.where(observed, curve.right, 0.0)
    chance = weights @ curve.chance / weights.sum(axis=1)
    severity: Array = crossing(right, weights @ observed, severities, chance)
    return severity


def failure_severity(curve: Curve, weights: Array, severities: Array) -> Array:
    """Return the severity at which half of the trajectories have failed; see the metric.

    Trajectories that end early are censored, as there; those misclassified when clean count as 0.
    """
    ends = curve.ends
    return median_severities(ends.severity, ends.failed, weights[:, ends.sample])


MEASURES: Mapping[str, Measure] = {
    "half_accuracy_severity": half_accuracy_severity,
    "failure_severity": failure_severity,
}


def failure_severities(curves: Curves, name: str, draws: int = BOOTSTRAP_DRAWS) -> Points:
    """Return the estimates of both models, with bootstrap draws and sign flips of their shared samples."""
    measure, n, top = MEASURES[name], len(curves.base.right), float(curves.severities[-1])
    sides = (curves.base, curves.new)

    def measured(curve: Curve, weights: Array) -> Array:
        return _within(measure(curve, weights, curves.severities), top)

    base, new = (float(measured(side, np.ones((1, n)))[0]) for side in sides)
    stacked = _stacked(*sides)
    rng, batch = np.random.default_rng(SEED), max(1, CELLS_PER_BATCH // n)
    drawn: list[tuple[Array, Array, Array]] = []
    for start in range(0, draws, batch):
        size = min(batch, draws - start)
        weights = rng.multinomial(n, np.full(n, 1 / n), size).astype(np.float64)
        swapped = rng.integers(0, 2, (size, n)).astype(np.float64)
        swapped[0] *= start > 0
        old, other = (np.concatenate([1 - side, side], axis=1) for side in (swapped, 1 - swapped))
        change = measured(stacked, other) - measured(stacked, old)
        drawn.append((measured(sides[0], weights), measured(sides[1], weights), change))
    undefined = _undefined(sides, n) if name == "half_accuracy_severity" else ""
    drawn_base, drawn_new, flipped = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    return Points(base, new, drawn_base, drawn_new, flipped, top, n, undefined)


def _stacked(base: Curve, new: Curve) -> Curve:
    """Return the samples of both models as those of one."""
    ends = Ends(
        np.concatenate([base.ends.severity, new.ends.severity]),
        np.concatenate([base.ends.failed, new.ends.failed]),
        np.concatenate([base.ends.sample, new.ends.sample + len(base.right)]),
    )
    chance = np.concatenate([base.chance, new.chance])
    return Curve(np.concatenate([base.right, new.right]), chance, ends)


def _undefined(sides: Sequence[Curve], n: int) -> str:
    """Return why half-accuracy is undefined: a model is not clearly better than a guess on clean images."""
    for name, curve in zip(("base", "new"), sides, strict=True):
        clean, chance = float(np.nanmean(curve.right[:, 0])), float(curve.chance.mean())
        low, _ = share(clean, n)
        if low is None or low <= chance + TIE:
            found = f"{clean:.1%} of {n} samples, chance {chance:.1%}"
            return f"the clean accuracy of the {name} model ({found}) is not clearly above chance"
    return ""


def _within(values: Array, top: float) -> Array:
    """Clip to the tested range; NaN (nothing correct when clean) becomes 0."""
    return np.minimum(np.nan_to_num(values, nan=0.0, posinf=top), top)
