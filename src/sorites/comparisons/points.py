"""Find how far each dial may be turned before each of two models fails: the bootstrap draws the same samples for both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.comparisons.pairs import Curves
from sorites.metrics.half import crossing

Array = NDArray[np.float64]
DRAWS = 2_000
SEED = 0
CELLS = 1 << 22


@dataclass(frozen=True)
class Points:
    """The failure points of both models on one dial, in its unit: as seen, and as drawn. Beyond the dial counts as its top."""

    base: float
    new: float
    drawn_base: Array
    drawn_new: Array
    top: float
    n: int


Measure = Callable[[Array, Array, Array], Array]
"""Takes verdicts (samples x severities), how often each sample was drawn (draws x samples) and severities."""


def half_accuracy(right: Array, weights: Array, severities: Array) -> Array:
    """Return where accuracy has come down to half of the clean accuracy, as the metric of that name."""
    held = np.isfinite(right)
    found: Array = crossing(weights @ np.where(held, right, 0.0), weights @ held, severities)
    return found


def failure_point(right: Array, weights: Array, severities: Array) -> Array:
    """Return the median of the least severities judged wrong, as the metric of that name: 0 where clean is wrong already."""
    wrong = np.where(np.isfinite(right), right < 1, False)
    first = np.where(wrong.any(axis=1), severities[wrong.argmax(axis=1)], np.inf)
    order = np.argsort(first, kind="stable")
    counted = np.cumsum(weights[:, order], axis=1)
    total = counted[:, -1:]
    lower, upper = (np.argmax(counted >= rank, axis=1) for rank in ((total + 1) // 2, total // 2 + 1))
    points = first[order]
    return np.asarray((points[lower] + points[upper]) / 2)


MEASURES: Mapping[str, Measure] = {"half_accuracy": half_accuracy, "failure_point": failure_point}


def points(curves: Curves, name: str, draws: int = DRAWS) -> Points:
    """Return the points of both models, and those of bootstrap draws over samples that both models share."""
    measure, n, top = MEASURES[name], len(curves.base), float(curves.severities[-1])
    rng, batch = np.random.default_rng(SEED), max(1, CELLS // n)
    once = np.ones((1, n))
    seen = [float(_within(measure(side, once, curves.severities), top)[0]) for side in (curves.base, curves.new)]
    drawn: tuple[list[Array], list[Array]] = ([], [])
    for start in range(0, draws, batch):
        weights = rng.multinomial(n, np.full(n, 1 / n), min(batch, draws - start)).astype(np.float64)
        for held, side in zip(drawn, (curves.base, curves.new), strict=True):
            held.append(_within(measure(side, weights, curves.severities), top))
    return Points(seen[0], seen[1], np.concatenate(drawn[0]), np.concatenate(drawn[1]), top, n)


def _within(values: Array, top: float) -> Array:
    """Set what lies beyond the dial to its top, and what has no value (nothing right when clean) to 0."""
    return np.minimum(np.nan_to_num(values, nan=0.0, posinf=top), top)
