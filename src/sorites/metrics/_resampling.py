"""The percentile bootstrap of a gap between two ratios that share their images (Efron & Tibshirani 1993, chapter 13)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError

SEED = 0
"""Every bootstrap starts from this seed, so that the same question gets the same answer."""

CELLS = 1 << 22
"""This many indices are drawn at a time."""


def checked_resamples(resamples: int, or_none: bool = True) -> int:
    """Return a number of resamples that gives an interval, or 0 for no interval where ``or_none`` allows it."""
    if resamples < 2 and not (or_none and resamples == 0):
        none = ", or 0 for no interval" if or_none else ""
        raise SoritesError(f"resamples is a number of draws from 2 up{none}, got {resamples}")
    return resamples


def gap(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``hits / rows`` of the common minus that of the uncommon.

    The last axis of ``sums`` holds common rows, common hits, uncommon rows, uncommon hits.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        found: NDArray[np.float64] = sums[..., 1] / sums[..., 0] - sums[..., 3] / sums[..., 2]
    return found


def interval(images: NDArray[np.float64], resamples: int) -> tuple[float, float] | None:
    """Return the 95 % interval of ``gap`` over images (N x 4) drawn with replacement, or None where no draw has both kinds.

    Images are sorted first, so that the order of the rows does not matter.
    """
    if resamples < 1 or not len(images):
        return None
    ordered = images[np.lexsort(images.T)]
    rng = np.random.default_rng(SEED)
    batch = max(1, CELLS // len(ordered))
    drawn = [
        gap(ordered[rng.integers(0, len(ordered), (min(batch, resamples - start), len(ordered)))].sum(axis=1))
        for start in range(0, resamples, batch)
    ]
    values = np.concatenate(drawn)
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def percentile_ranks(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 2.5 % and the 97.5 % point of resampled values, some of which may be infinite, as values that were drawn."""
    ordered = np.sort(values[~np.isnan(values)])
    if not len(ordered):
        return float("inf"), float("inf")
    places = np.clip(np.round(np.array([0.025, 0.975]) * (len(ordered) - 1)).astype(int), 0, len(ordered) - 1)
    return float(ordered[places[0]]), float(ordered[places[1]])
