"""Two-sided 95 % intervals as polars expressions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core.errors import SoritesError

# The 97.5 % point of the standard normal distribution, for two-sided 95 % intervals.
Z = 1.959963984540054


def wilson_interval(value: pl.Expr, n: pl.Expr) -> dict[str, pl.Expr]:
    """Return ``low`` and ``high`` of a share observed in ``n`` independent rows (Wilson 1927); both
    are null where ``n`` is 0.
    """
    shrink = 1 + Z**2 / n
    middle = (value + Z**2 / (2 * n)) / shrink
    half = (Z / shrink) * (value * (1 - value) / n + (Z / (2 * n)) ** 2).sqrt()
    return {
        "low": pl.when(n > 0).then((middle - half).clip(0, 1)),
        "high": pl.when(n > 0).then((middle + half).clip(0, 1)),
    }


def normal_interval(value: pl.Expr, variance: pl.Expr) -> dict[str, pl.Expr]:
    """Return ``low`` and ``high`` of a normally distributed estimate with a known variance."""
    half = Z * variance.clip(0).sqrt()
    return {"low": value - half, "high": value + half}


def clustered_wilson_interval(
    value: pl.Expr, spread: pl.Expr, n: pl.Expr, rows: pl.Expr
) -> dict[str, pl.Expr]:
    """Return Wilson's interval of a mean over ``n`` samples whose own means of verdicts have the
    variance ``spread``.

    ``rows`` verdicts are divided by their design effect, which lies between 1 (images of a sample
    are independent) and the verdicts per sample (they are all alike). It is estimated (Korn &
    Graubard 1998), and drawn towards the verdicts per sample as by one more sample that is wrong
    throughout: where few verdicts are wrong, little is known of how they fall, and where none is,
    samples count. So the interval does not jump where the last wrong verdict becomes right. With
    one verdict per sample it is Wilson's.
    """
    varies, size = value * (1 - value), rows / n
    estimate = rows * spread.clip(0) / ((n - 1).clip(1) * varies)
    effect = pl.when(varies > 0).then(estimate.clip(1, None)).otherwise(size)
    effect = pl.min_horizontal(effect, size)
    seen = rows * pl.min_horizontal(value, 1 - value).clip(0) / effect
    return wilson_interval(value, rows / ((seen * effect + size) / (seen + 1)))


def paired_interval(value: pl.Expr, square: pl.Expr, apart: pl.Expr, n: pl.Expr) -> dict[str, pl.Expr]:
    """Return the interval of a mean over ``n`` samples of differences between two verdicts, whose
    mean square is ``square``.

    Half a pair is added to each of the four ways in which two verdicts can fall (Agresti & Min
    2005), so that the interval does not collapse where no verdict differs. ``apart`` is the mean
    share of a sample's images on which the verdicts differ. Where a sample has several images,
    its mean difference has a smaller square than that; the added pairs are scaled alike.
    """
    scale = (square * n + 1) / (apart * n + 1)
    middle = value * n / (n + 2 * scale)
    variance = ((square * n + scale) / (n + 2 * scale) - middle**2) / (n + 2 * scale)
    return {name: bound.clip(-1, 1) for name, bound in normal_interval(middle, variance).items()}


# 95 % intervals of single numbers, for estimates that are not polars expressions.


Bounds = tuple[float | None, float | None]


def share(value: float, n: float) -> Bounds:
    """Return Wilson's interval of a share observed in ``n`` independent cases, or None twice where
    ``n`` is 0.
    """
    if n <= 0:
        return None, None
    shrink = 1 + Z**2 / n
    middle = (value + Z**2 / (2 * n)) / shrink
    half = Z / shrink * math.sqrt(value * (1 - value) / n + (Z / (2 * n)) ** 2)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def area(value: float, in_distribution: float, ood: float, variance: float, size: float = 1.0) -> Bounds:
    """Return Newcombe's interval of an AUROC (Statistics in Medicine 2006, method 5), scaled to ``variance``.

    Each bound is the area that lies Z standard errors from ``value``, where the standard error is
    the one at that bound: Hanley and McNeil's (1982), scaled by the ratio of ``variance`` to theirs
    at ``value``. So the interval stays inside 0..1 and does not collapse where every OOD
    image scores above every in-distribution one. Where hardly a pair is in the wrong order little is
    known of that ratio: it is drawn towards ``size``, the images per sample, as by one more
    image in the wrong order.
    """
    theirs = _hanley_mcneil(value, in_distribution, ood)
    ratio = variance / theirs if theirs > 0 and variance > 0 else size
    seen = min(value, 1 - value) * min(in_distribution, ood) / max(ratio, 1.0)
    scale = (seen * ratio + size) / (seen + 1)

    def beyond(candidate: float) -> float:
        return (candidate - value) ** 2 - Z**2 * scale * _hanley_mcneil(candidate, in_distribution, ood)

    return _edge(beyond, value, 0.0), _edge(beyond, value, 1.0)


def square_and_add(value: float, *parts: Bounds) -> Bounds:
    """Return the interval of a number with several causes of error that are independent, from the
    interval that each alone gives.

    The distances of the ends from ``value`` are added as squares (Newcombe 1998; Zou and Donner,
    Statistics in Medicine 2008).
    """
    if any(low is None or high is None for low, high in parts):
        return None, None
    down = math.sqrt(sum(max(value - low, 0.0) ** 2 for low, _ in parts if low is not None))
    up = math.sqrt(sum(max(high - value, 0.0) ** 2 for _, high in parts if high is not None))
    return max(value - down, 0.0), min(value + up, 1.0)


def _hanley_mcneil(value: float, in_distribution: float, ood: float) -> float:
    """Return Hanley and McNeil's variance of an AUROC of ``value`` with these numbers of in-distribution
    and OOD images.
    """
    more = (in_distribution + ood) / 2 - 1
    pairs = 1 + more * ((1 - value) / (2 - value) + value / (1 + value))
    return value * (1 - value) * pairs / (in_distribution * ood)


def _edge(beyond: Callable[[float], float], inside: float, end: float) -> float:
    """Find by bisection where ``beyond`` turns positive between ``inside`` and ``end``."""
    low, high = inside, end
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(middle) > 0 else (middle, high)
    return high if inside != end else end


# Intervals that hold the truth in less or more than 93 to 97 % of simulated runs, and what is said beside
# their numbers.


@dataclass(frozen=True)
class Coverage:
    """The per cent of 95 % intervals that held the truth in runs of three sizes, and why it is not 95."""

    shares: tuple[float, float, float]
    why: str
    pooled_over: str = ""
    """A column; the note is for answers that are not grouped by it."""
    sizes: tuple[int, int, int] = (20, 100, 1000)
    """The samples of the simulated runs."""

    @property
    def below(self) -> float:
        """The number of samples below which the note is needed: the least size from which all
        shares are near 95 %.
        """
        off = [
            size
            for size, share in zip((*self.sizes[1:], float("inf")), self.shares, strict=True)
            if not 93 <= share <= 97
        ]
        return max(off, default=0)


_WIDE_SHARE = Coverage(
    (99.8, 97.6, 96.5), "it takes an average precision for a share, and is wider than it need be"
)
_THRESHOLD = Coverage((99.9, 99.6, 96.0), "few images say little of where the threshold lies")
_FEW_OBJECTS = Coverage((89.5, 94.5, 95.0), "resamples of few images vary too little", sizes=(20, 100, 500))
_SKEWED = Coverage((87.5, 93.3, 94.0), "the mean of few skewed numbers is not normal")

NOTED: dict[str, Coverage] = {
    "calibration_error": Coverage(
        (19.9, 45.1, 94.5), "a gap by chance is still a gap, so the value is too high"
    ),
    "failure_severity": Coverage(
        (91.3, 91.3, 89.5), "it takes the shifts of one sample for independent", "shift"
    ),
    "attribute_gap": Coverage((90.7, 94.5, 91.4), "a percentile bootstrap is somewhat too narrow"),
    "aurc": Coverage((88.4, 94.2, 96.0), "the area of few images is not normal"),
    "f1_at_tpr95": Coverage((92.2, 92.0, 94.5), "it holds the threshold fixed"),
    "paired_difference": Coverage((97.8, 95.7, 94.8), "it does not collapse where hardly a verdict differs"),
    "disagreement": Coverage((98.0, 97.3, 96.4), "it does not collapse where hardly a verdict differs"),
    **dict.fromkeys(("map", "map_numbers", "mean_map", "dial_map", "map_drop", "tide"), _FEW_OBJECTS),
    "mean_degree": _SKEWED,
    "lens_degree": _SKEWED,
    **dict.fromkeys(("aupr_in", "aupr_out", "aupr_in_trapz", "aupr_out_trapz"), _WIDE_SHARE),
    **dict.fromkeys(("fpr95_ood_pos", "fpr95_id_pos"), _THRESHOLD),
}


def interval_note(metric: str, answer: pl.DataFrame) -> str:
    """Say in how many runs of this size the intervals of an answer hold the truth; empty where that
    is near 95 %.

    An answer that holds several numbers, as that of ``ood``, is asked about each of them.
    """
    if metric not in NOTED and "metric" in answer.columns:
        parts = [
            interval_note(name, some)
            for (name,), some in answer.group_by("metric", maintain_order=True)
            if name in NOTED
        ]
        return "; ".join(part for part in parts if part)
    found = NOTED.get(metric)
    if found is None or found.pooled_over in answer.columns or not {"low", "n"} <= set(answer.columns):
        return ""
    sizes = answer.filter(pl.col("low").is_not_null() | pl.col("high").is_not_null())["n"]
    if not len(sizes) or min(sizes) >= found.below:
        return ""
    (small, middle, large), (few, more, most) = (f"{share:.0f}" for share in found.shares), found.sizes
    held = f"{small}, {middle} and {large} % of simulated runs of {few}, {more} and {most} samples"
    return f"the 95 % intervals of {metric} hold the truth in {held}: {found.why}"


# The percentile bootstrap of a gap between two ratios that share their images (Efron & Tibshirani 1993,
# chapter 13).


# Every bootstrap starts from this seed, so that the same question gets the same answer.
SEED = 0

# This many indices are drawn at a time.
CELLS = 1 << 22


def checked_resamples(resamples: int, or_none: bool = True) -> int:
    """Return a number of resamples that gives an interval, or 0 for no interval where ``or_none``
    allows it.
    """
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
    """Return the 95 % interval of ``gap`` over images (N x 4) drawn with replacement, or None where
    no draw has both kinds.

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
    """Return the 2.5 % and the 97.5 % point of resampled values, some of which may be infinite, as
    values that were drawn.
    """
    ordered = np.sort(values[~np.isnan(values)])
    if not len(ordered):
        return float("inf"), float("inf")
    places = np.clip(np.round(np.array([0.025, 0.975]) * (len(ordered) - 1)).astype(int), 0, len(ordered) - 1)
    return float(ordered[places[0]]), float(ordered[places[1]])
