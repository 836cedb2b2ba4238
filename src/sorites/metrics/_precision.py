"""Average precision at 101 recalls, and the same for many resamples of the pictures at once.

Only matches raise the curve, so that only they are followed: of all other boxes it is enough to know how many stand before each
match. A resample changes how often each picture counts and no match, so that it is a matter of weighted sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.metrics._scenes import Floats, Ints

RECALLS: Floats = np.linspace(0.0, 1.0, 101)
"""Precision is read at these recalls, which are those of pycocotools to the last bit."""

SEED = 0
CELLS = 1 << 23
"""This many numbers are held at a time by each step of a bootstrap, and twice as many weights."""

LONG = 300
"""From this length on, rows are accumulated one by one."""

Weights = NDArray[np.float32]
"""samples x resamples: how often each sample counts."""


@dataclass(frozen=True)
class Events:
    """The matches of one class by falling confidence, with boxes that count other than their kind."""

    at: Ints
    """How many boxes of the list stand up to each, itself included."""
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


class Bench:
    """The weights of a bootstrap, and room for its sums, used over and over: fresh memory would cost more than the sums."""

    def __init__(self, counts: NDArray[np.uint8]) -> None:
        self._counts = counts
        self._block: tuple[slice, Weights] | None = None
        self._room: dict[str, NDArray[np.float32]] = {}

    def __call__(self, name: str, rows: int, columns: int) -> NDArray[np.float32]:
        held = self._room.get(name)
        if held is None or held.size < rows * columns:
            held = self._room[name] = np.empty(rows * columns, np.float32)
        return held[: rows * columns].reshape(rows, columns)

    def blocks(self, longest: int) -> list[slice]:
        """Return the resamples in slices for which ``longest`` rows fit into memory."""
        width = max(1, min(CELLS // max(longest, 1), 2 * CELLS // max(len(self._counts), 1)))
        return [slice(start, start + width) for start in range(0, self._counts.shape[1], width)]

    def weights(self, block: slice) -> Weights:
        """Return how often each sample counts in some resamples; the last are kept."""
        if self._block is None or self._block[0] != block:
            self._block = block, self._counts[:, block].astype(np.float32)
        return self._block[1]


def resampled(
    listed: Ints, variants: Sequence[Events], truths: Ints, weights: Weights, bench: Bench
) -> list[NDArray[np.float32]]:
    """Return the average precision of each variant for each resample, NaN where a resample holds no truth.

    ``listed`` and ``truths`` are the samples of the boxes in the list, by falling confidence, and of the true boxes.
    """
    total = _taken(weights, truths, bench("own", len(truths), weights.shape[1])).sum(axis=0)
    cuts = np.unique(np.concatenate([variant.at for variant in variants] or [np.zeros(0, np.int64)]))
    before = _sums(listed, cuts, weights)
    _accumulate(np.add, before)
    return [_curve(variant, before, np.searchsorted(cuts, variant.at), total, weights, bench) for variant in variants]


def _sums(listed: Ints, cuts: Ints, weights: Weights) -> NDArray[np.float32]:
    """Return the weights of the boxes between one cut and the next."""
    from scipy.sparse import csr_array

    step = np.searchsorted(cuts, np.arange(1, len(listed) + 1), "left")
    rows = np.searchsorted(step, np.arange(len(cuts) + 1), "left")
    shares = csr_array((np.ones(rows[-1], np.float32), listed[: rows[-1]], rows), shape=(len(cuts), len(weights)))
    sums: NDArray[np.float32] = shares @ weights
    return sums


def _curve(
    events: Events, before: NDArray[np.float32], place: Ints, total: NDArray[np.float32], weights: Weights, bench: Bench
) -> NDArray[np.float32]:
    shape = len(events.at), weights.shape[1]
    if not shape[0]:
        return np.where(total > 0, np.float32(0), np.float32(np.nan))
    precision = _taken(before, place, bench("seen", *shape))
    if events.more.any():
        extra = _taken(weights, events.sample, bench("own", *shape))
        extra *= events.more[:, None]
        _accumulate(np.add, extra)
        precision += extra
    hits = _taken(weights, events.sample, bench("own", *shape))
    if not events.hit.all():
        hits *= events.hit[:, None]
    _accumulate(np.add, hits)
    np.maximum(precision, np.float32(0.5), out=precision)  # where nothing was seen yet, there is no hit either
    np.divide(hits, precision, out=precision)
    _accumulate(np.maximum, precision[::-1])
    hits *= np.float32(len(RECALLS) - 1)
    hits /= np.maximum(total, 1)
    np.floor(hits, out=hits)
    area = precision[0] * (hits[0] + 1)
    steps = np.subtract(hits[1:], hits[:-1], out=bench("steps", shape[0] - 1, shape[1]))
    area += np.einsum("kb,kb->b", steps, precision[1:])
    return np.where(total > 0, area / len(RECALLS), np.float32(np.nan)).astype(np.float32)


def _taken(rows: NDArray[np.float32], which: Ints, out: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.take(rows, which, axis=0, out=out, mode="clip")


def _accumulate(how: np.ufunc, rows: NDArray[np.float32]) -> None:
    """Accumulate rows in place: along the first axis NumPy's own is slower than a loop over long rows."""
    if len(rows) < 2:
        return
    if rows.shape[1] < LONG:
        how.accumulate(rows, axis=0, out=rows)
        return
    last = rows[0]
    for row in rows[1:]:
        last = how(row, last, out=row)


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
