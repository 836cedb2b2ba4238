"""Two-sided 95 % confidence intervals, and notes on their measured coverage."""

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
    """Return ``low`` and ``high`` of a share observed in ``n`` independent rows (Wilson 1927); null where
    ``n`` is 0.
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
    """Return Wilson's interval of a mean over ``n`` samples with several images each.

    The number of images is divided by their design effect, which is between 1 (images of a sample are
    independent) and the images per sample (they are identical). The design effect is estimated (Korn &
    Graubard 1998) and shrunk towards the images per sample, with the weight of one additional sample
    that is wrong throughout. Where few images are wrong the estimate is poor, and where none is,
    samples count. The interval therefore does not jump when the last error disappears. With one image
    per sample it is Wilson's.

    Args:
        value: The mean.
        spread: The variance of the sample means.
        n: The number of samples.
        rows: The number of images.
    """
    varies, size = value * (1 - value), rows / n
    estimate = rows * spread.clip(0) / ((n - 1).clip(1) * varies)
    effect = pl.when(varies > 0).then(estimate.clip(1, None)).otherwise(size)
    effect = pl.min_horizontal(effect, size)
    errors = rows * pl.min_horizontal(value, 1 - value).clip(0) / effect
    return wilson_interval(value, rows / ((errors * effect + size) / (errors + 1)))


def paired_interval(value: pl.Expr, square: pl.Expr, apart: pl.Expr, n: pl.Expr) -> dict[str, pl.Expr]:
    """Return the interval of a mean over ``n`` samples of differences between two outcomes.

    Half a pair is added to each of the four combinations of two outcomes (Agresti & Min 2005), so that
    the interval does not collapse where no outcome differs. Where a sample has several images, its mean
    difference has a smaller square than the share of images that differ; the added pairs are scaled
    accordingly.

    Args:
        value: The mean difference.
        square: The mean square of the samples' differences.
        apart: The mean share of a sample's images on which the outcomes differ.
        n: The number of samples.
    """
    scale = (square * n + 1) / (apart * n + 1)
    middle = value * n / (n + 2 * scale)
    variance = ((square * n + scale) / (n + 2 * scale) - middle**2) / (n + 2 * scale)
    return {name: bound.clip(-1, 1) for name, bound in normal_interval(middle, variance).items()}


# Intervals of single numbers.


Bounds = tuple[float | None, float | None]


def share(value: float, n: float) -> Bounds:
    """Return Wilson's interval of a share observed in ``n`` independent cases, or (None, None) where ``n``
    is 0.
    """
    if n <= 0:
        return None, None
    shrink = 1 + Z**2 / n
    middle = (value + Z**2 / (2 * n)) / shrink
    half = Z / shrink * math.sqrt(value * (1 - value) / n + (Z / (2 * n)) ** 2)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def area(value: float, in_distribution: float, ood: float, variance: float, size: float = 1.0) -> Bounds:
    """Return Newcombe's interval of an AUROC (Statistics in Medicine 2006, method 5), scaled to
    ``variance``.

    Each bound is the area at Z standard errors from ``value``, with the standard error at that bound:
    that of Hanley and McNeil (1982), scaled by the ratio of ``variance`` to theirs at ``value``. The
    interval stays within 0..1 and does not collapse where every OOD image scores above every
    in-distribution image. Where few pairs are misordered the ratio is poorly known; it is shrunk
    towards ``size``, the images per sample, with the weight of one additional misordered image.
    """
    reference_variance = _hanley_mcneil(value, in_distribution, ood)
    ratio = variance / reference_variance if reference_variance > 0 and variance > 0 else size
    misordered = min(value, 1 - value) * min(in_distribution, ood) / max(ratio, 1.0)
    scale = (misordered * ratio + size) / (misordered + 1)

    def excess(candidate: float) -> float:
        return (candidate - value) ** 2 - Z**2 * scale * _hanley_mcneil(candidate, in_distribution, ood)

    return _edge(excess, value, 0.0), _edge(excess, value, 1.0)


def square_and_add(value: float, *parts: Bounds) -> Bounds:
    """Return the interval of a value with several independent sources of error, from the interval of each
    source.

    The distances of the bounds from ``value`` are added as squares (Newcombe 1998; Zou and Donner,
    Statistics in Medicine 2008).
    """
    if any(low is None or high is None for low, high in parts):
        return None, None
    down = math.sqrt(sum(max(value - low, 0.0) ** 2 for low, _ in parts if low is not None))
    up = math.sqrt(sum(max(high - value, 0.0) ** 2 for _, high in parts if high is not None))
    return max(value - down, 0.0), min(value + up, 1.0)


def _hanley_mcneil(value: float, in_distribution: float, ood: float) -> float:
    """Return Hanley and McNeil's variance of an AUROC for these numbers of in-distribution and OOD images."""
    more = (in_distribution + ood) / 2 - 1
    pairs = 1 + more * ((1 - value) / (2 - value) + value / (1 + value))
    return value * (1 - value) * pairs / (in_distribution * ood)


def _edge(excess: Callable[[float], float], inside: float, end: float) -> float:
    """Return where ``excess`` becomes positive between ``inside`` and ``end``, by bisection."""
    low, high = inside, end
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if excess(middle) > 0 else (middle, high)
    return high if inside != end else end


# Intervals whose measured coverage is outside 93 to 97 %.


@dataclass(frozen=True)
class Coverage:
    """The measured coverage of a metric's 95 % intervals in simulated runs of three sizes.

    Attributes:
        shares: The percentage of intervals that contain the true value, by size.
        why: The reason why it is not 95 %.
        pooled_over: A column; the note only applies to answers that are not grouped by it.
        sizes: The number of samples of the simulated runs.
    """

    shares: tuple[float, float, float]
    why: str
    pooled_over: str = ""
    sizes: tuple[int, int, int] = (20, 100, 1000)

    @property
    def below(self) -> float:
        """The number of samples below which the note is needed."""
        off = [
            size
            for size, share in zip((*self.sizes[1:], float("inf")), self.shares, strict=True)
            if not 93 <= share <= 97
        ]
        return max(off, default=0)


_WIDE_SHARE = Coverage((99.8, 97.6, 96.5), "it treats an average precision as a share and is conservative")
_THRESHOLD = Coverage((99.9, 99.6, 96.0), "the threshold is uncertain with few images")
_FEW_OBJECTS = Coverage(
    (89.5, 94.5, 95.0), "bootstrap resamples of few images vary too little", sizes=(20, 100, 500)
)
_SKEWED = Coverage((87.5, 93.3, 94.0), "the mean of few skewed values is not normally distributed")

NOTED: dict[str, Coverage] = {
    "calibration_error": Coverage((19.9, 45.1, 94.5), "random gaps count too, so the value is biased high"),
    "failure_severity": Coverage(
        (91.3, 91.3, 89.5), "it treats the shifts of one sample as independent", "shift"
    ),
    "attribute_gap": Coverage((90.7, 94.5, 91.4), "the percentile bootstrap is somewhat too narrow"),
    "aurc": Coverage((88.4, 94.2, 96.0), "the area is not normally distributed with few images"),
    "f1_at_tpr95": Coverage((92.2, 92.0, 94.5), "it treats the threshold as fixed"),
    "paired_difference": Coverage((97.8, 95.7, 94.8), "it is conservative where few outcomes differ"),
    "disagreement": Coverage((98.0, 97.3, 96.4), "it is conservative where few outcomes differ"),
    **dict.fromkeys(("map", "map_numbers", "mean_map", "dial_map", "map_drop", "tide"), _FEW_OBJECTS),
    "mean_degree": _SKEWED,
    "lens_degree": _SKEWED,
    **dict.fromkeys(("aupr_in", "aupr_out", "aupr_in_trapz", "aupr_out_trapz"), _WIDE_SHARE),
    **dict.fromkeys(("fpr95_ood_pos", "fpr95_id_pos"), _THRESHOLD),
}


def interval_note(metric: str, answer: pl.DataFrame) -> str:
    """Return a sentence about the coverage of an answer's intervals; "" where it is near 95 %.

    For answers with several metrics, such as that of ``ood``, the notes of each are joined.
    """
    if metric not in NOTED and "metric" in answer.columns:
        parts = [
            interval_note(name, rows)
            for (name,), rows in answer.group_by("metric", maintain_order=True)
            if name in NOTED
        ]
        return "; ".join(part for part in parts if part)
    coverage = NOTED.get(metric)
    if coverage is None or coverage.pooled_over in answer.columns or not {"low", "n"} <= set(answer.columns):
        return ""
    sizes = answer.filter(pl.col("low").is_not_null() | pl.col("high").is_not_null())["n"]
    if not len(sizes) or min(sizes) >= coverage.below:
        return ""
    (small, middle, large), (few, more, most) = (f"{share:.0f}" for share in coverage.shares), coverage.sizes
    shares = f"{small}, {middle} and {large} % of simulated runs of {few}, {more} and {most} samples"
    return f"the 95 % intervals of {metric} contain the true value in {shares}: {coverage.why}"


# Percentile bootstrap of the gap between two ratios over the same images (Efron & Tibshirani 1993, ch. 13).

# Every bootstrap starts from this seed, so that results are reproducible.
SEED = 0

# Indices drawn at a time.
INDICES_PER_BATCH = 1 << 22


def checked_resamples(resamples: int, or_none: bool = True) -> int:
    """Return ``resamples`` if it is at least 2, or 0 (no interval) where ``or_none`` allows it."""
    if resamples < 2 and not (or_none and resamples == 0):
        none = ", or 0 for no interval" if or_none else ""
        raise SoritesError(f"resamples must be at least 2{none}, got {resamples}")
    return resamples


def gap(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``hits / rows`` of the common attributes minus that of the uncommon ones.

    The last axis of ``sums`` contains common rows, common hits, uncommon rows, uncommon hits.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        difference: NDArray[np.float64] = sums[..., 1] / sums[..., 0] - sums[..., 3] / sums[..., 2]
    return difference


def interval(images: NDArray[np.float64], resamples: int) -> tuple[float, float] | None:
    """Return the 95 % interval of ``gap`` over images (N x 4) drawn with replacement, or None if no draw
    has both kinds.

    Images are sorted first, so that the order of the rows does not matter.
    """
    if resamples < 1 or not len(images):
        return None
    ordered = images[np.lexsort(images.T)]
    rng = np.random.default_rng(SEED)
    batch = max(1, INDICES_PER_BATCH // len(ordered))
    gaps = [
        gap(ordered[rng.integers(0, len(ordered), (min(batch, resamples - start), len(ordered)))].sum(axis=1))
        for start in range(0, resamples, batch)
    ]
    values = np.concatenate(gaps)
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def percentile_ranks(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 2.5 % and 97.5 % points of resampled values (possibly infinite) without interpolation."""
    ordered = np.sort(values[~np.isnan(values)])
    if not len(ordered):
        return float("inf"), float("inf")
    indexes = np.clip(
        np.round(np.array([0.025, 0.975]) * (len(ordered) - 1)).astype(int), 0, len(ordered) - 1
    )
    return float(ordered[indexes[0]]), float(ordered[indexes[1]])
