"""Average precision at 101 recalls; the draws of a bootstrap over samples, and its interval.

Only matches raise the curve, so that only they are followed: of all other boxes it is enough to know how many stand before each
match.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.metrics._scenes import Floats, Ints

RECALLS: Floats = np.linspace(0.0, 1.0, 101)
"""Precision is read at these recalls, which are those of pycocotools to the last bit."""

SEED = 0


@dataclass(frozen=True)
class Events:
    """The matches of one class by falling confidence, with boxes that count other than their kind."""

    at: Ints
    """The number of boxes of the list up to each one, itself included."""
    sample: Ints
    hit: NDArray[np.bool_]
    more: NDArray[np.int8]
    """1 where it counts and is not in the list, -1 where it is in the list and does not count."""


def average_precision(events: Events, truths: int) -> float:
    """Return the mean over 101 recalls of the greatest precision at that recall or a greater one."""
    if not truths:
        return float("nan")
    hits = np.cumsum(events.hit)
    seen = events.at + np.cumsum(events.more)
    precision = np.maximum.accumulate((hits / (seen + np.spacing(1.0)))[::-1])[::-1]
    places = np.searchsorted(hits / truths, RECALLS, side="left")
    reached = places < len(hits)
    return float(np.sum(precision[places[reached]]) / len(RECALLS))


def drawn(samples: int, resamples: int) -> NDArray[np.uint8]:
    """Return how often each sample stands in each resample (samples x resamples), always the same draws."""
    rng = np.random.default_rng(SEED)
    counts = np.empty((samples, resamples), np.uint8)
    for k in range(resamples):
        counts[:, k] = np.bincount(rng.integers(0, samples, samples), minlength=samples)
    return counts


def interval(values: NDArray[np.floating], value: float) -> tuple[float | None, float | None]:
    """Return the 95 % percentile interval of resampled values, moved so that their mean stands at the value.

    A resample holds some pictures twice, which raises the average precision of classes with few things; so resamples lie above
    the value, and only their spread says how sure it is.
    """
    some = values[np.isfinite(values)].astype(np.float64)
    if not len(some) or not np.isfinite(value):
        return None, None
    low, high = np.percentile(some, [2.5, 97.5]) - some.mean() + value
    return min(float(low), value), max(float(high), value)
