"""Two-sided 95 % confidence intervals, and notes on their measured coverage."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core.errors import InvalidOption
from sorites.core.messages import parameter

# The 97.5 % point of the standard normal distribution, for two-sided 95 % intervals.
Z = 1.959963984540054


def wilson_interval(value: pl.Expr, n: pl.Expr, z: pl.Expr | float = Z) -> dict[str, pl.Expr]:
    """Return ``low`` and ``high`` of a share observed in ``n`` independent rows (Wilson 1927); null where
    ``n`` is 0.
    """
    shrink = 1 + z**2 / n
    middle = (value + z**2 / (2 * n)) / shrink
    half = (z / shrink) * (value * (1 - value) / n + (z / (2 * n)) ** 2).sqrt()
    return {
        "low": pl.when(n > 0).then((middle - half).clip(0, 1)),
        "high": pl.when(n > 0).then((middle + half).clip(0, 1)),
    }


def normal_interval(value: pl.Expr, variance: pl.Expr, z: float = Z) -> dict[str, pl.Expr]:
    """Return ``low`` and ``high`` of a normally distributed estimate with a known variance."""
    half = z * variance.clip(0).sqrt()
    return {"low": value - half, "high": value + half}


def clustered_wilson_interval(
    value: pl.Expr,
    spread: pl.Expr,
    n: pl.Expr,
    rows: pl.Expr,
    largest: pl.Expr | None = None,
    z: pl.Expr | float = Z,
) -> dict[str, pl.Expr]:
    """Return Wilson's interval of a mean over ``n`` samples with several images each.

    The number of images is divided by their design effect, which is between 1 (images of a sample are
    independent) and ``largest`` (they are identical). The design effect is estimated (Korn & Graubard
    1998) and shrunk towards ``largest``, with the weight of one additional sample that is wrong
    throughout. Where few images are wrong the estimate is poor, and where none is, samples count. The
    interval therefore does not jump when the last error disappears. With one image per sample it is
    Wilson's.

    Args:
        value: The mean.
        spread: The variance of the sample means.
        n: The number of samples.
        rows: The number of images.
        largest: The design effect of identical images; by default the images per sample.
        z: The normal quantile of the interval.
    """
    varies, size = value * (1 - value), rows / n if largest is None else largest
    estimate = rows * spread.clip(0) / ((n - 1).clip(1) * varies)
    effect = pl.when(varies > 0).then(estimate.clip(1, None)).otherwise(size)
    effect = pl.min_horizontal(effect, size)
    errors = rows * pl.min_horizontal(value, 1 - value).clip(0) / effect
    return wilson_interval(value, rows / ((errors * effect + size) / (errors + 1)), z)


def clustered_share(
    counts: pl.LazyFrame, keys: Sequence[str], hits: str = "hits", rows: str = "rows"
) -> pl.LazyFrame:
    """Return the share of hits of each group, with an interval that respects clusters.

    Every row has the same weight. The variance is that of the ratio of two sums over clusters, and the
    bounds are those of ``clustered_wilson_interval``; with one row per cluster they are Wilson's. All
    sums are of integers, so the order of the rows changes nothing.

    Args:
        counts: One line per group and cluster (``rows.count_samples``), with integer columns.
        keys: The group columns.
        hits: The column with the number of hits of a cluster.
        rows: The column with the number of rows of a cluster.

    Returns:
        The columns ``keys``, ``value``, ``n`` (rows), ``samples`` (clusters), ``low`` and ``high``; value
        and bounds are null where ``n`` is 0.

    Example:
        >>> import polars as pl
        >>> counts = pl.LazyFrame({"model": ["m"] * 4, "hits": [5, 5, 0, 4], "rows": [5, 5, 5, 5]})
        >>> clustered_share(counts, ["model"]).collect().row(0, named=True)["value"]
        0.7
    """
    return share_intervals(cluster_sums(counts, keys, hits, rows), keys)


def cluster_sums(
    counts: pl.LazyFrame, keys: Sequence[str], hits: str = "hits", rows: str = "rows", *further: str
) -> pl.LazyFrame:
    """Return the sums over clusters that ``share_intervals`` needs, and those of the columns ``further``.

    The sums of separate sets of clusters can be added.
    """
    h, r = pl.col(hits).cast(pl.Int64), pl.col(rows).cast(pl.Int64)
    return counts.group_by(keys).agg(
        r.sum().alias("n"),
        (r > 0).sum().cast(pl.Int64).alias("samples"),
        h.sum().alias("hits"),
        (r * r).sum().alias("rr"),
        (h * r).sum().alias("hr"),
        (h * h).sum().alias("hh"),
        *(pl.col(name).sum() for name in further),
    )


def share_intervals(
    sums: pl.LazyFrame, keys: Sequence[str], *further: str, z: pl.Expr | float = Z
) -> pl.LazyFrame:
    """Return the shares and intervals of ``clustered_share`` from the sums of ``cluster_sums``.

    ``z`` is the normal quantile of the intervals.
    """
    n, samples, value = pl.col("n"), pl.col("samples"), pl.col("value")
    shares = sums.with_columns(value=pl.when(n > 0).then(pl.col("hits") / n))
    residual = pl.col("hh") - 2 * value * pl.col("hr") + value**2 * pl.col("rr")
    bounds = clustered_wilson_interval(value, samples * residual / n**2, samples, n, pl.col("rr") / n, z)
    return shares.with_columns(**bounds).select(*keys, "value", "n", "samples", "low", "high", *further)


def paired_interval(
    value: pl.Expr, square: pl.Expr, apart: pl.Expr, n: pl.Expr, z: float = Z
) -> dict[str, pl.Expr]:
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
        z: The normal quantile of the interval.
    """
    scale = (square * n + 1) / (apart * n + 1)
    middle = value * n / (n + 2 * scale)
    variance = ((square * n + scale) / (n + 2 * scale) - middle**2) / (n + 2 * scale)
    return {name: bound.clip(-1, 1) for name, bound in normal_interval(middle, variance, z).items()}


# Intervals of single numbers.


Bounds = tuple[float | None, float | None]
Array = NDArray[np.float64]


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


def clustered_size(hits: Array, rows: Array) -> float:
    """Return the effective number of independent rows behind the share ``sum(hits) / sum(rows)``.

    Args:
        hits: The number of hits of each cluster.
        rows: The number of rows of each cluster.
    """
    total, clusters = float(rows.sum()), int(np.count_nonzero(rows))
    if not clusters:
        return 0.0
    value, largest = float(hits.sum()) / total, float((rows * rows).sum()) / total
    square = float(np.sum((hits - value * rows) ** 2))
    variance = clusters / max(clusters - 1, 1) * square / total**2
    return min(max(effective_size(value, variance, total, largest), total / largest), total)


def effective_size(value: float, variance: float, rows: float, largest: float) -> float:
    """Return the number of independent rows whose share would have this variance.

    The design effect, the ratio of ``variance`` to that of independent rows, is at least 1 and is shrunk
    towards ``largest`` with the weight of one error, as in ``clustered_wilson_interval``.

    Args:
        value: The share.
        variance: Its variance, from the influence of each cluster.
        rows: The number of rows.
        largest: The design effect of identical rows in each cluster.
    """
    varies = value * (1 - value)
    effect = max(rows * variance / varies, 1.0) if varies > 0 and variance > 0 else largest
    errors = rows * min(value, 1 - value) / effect
    return rows / ((errors * effect + largest) / (errors + 1))


def clustered_share_bounds(hits: Array, rows: Array) -> Bounds:
    """Return the interval of ``clustered_share`` for one group, given arrays with one entry per cluster."""
    size = clustered_size(hits, rows)
    return share(float(hits.sum() / rows.sum()), size) if size > 0 else (None, None)


def clustered_difference_bounds(first: tuple[Array, Array], second: tuple[Array, Array]) -> Bounds:
    """Return the interval of the difference of two shares of the same clusters, each of (hits, rows).

    The distances of the bounds of both shares are added as squares, less their correlation (Zou and
    Donner, Statistics in Medicine 2008). It is 0 if no cluster has rows of both; then the interval is
    Newcombe's (1998) for clusters.
    """
    (hits, rows), (other_hits, other_rows) = first, second
    value, other = hits.sum() / rows.sum(), other_hits.sum() / other_rows.sum()
    (low, high), (other_low, other_high) = (clustered_share_bounds(*side) for side in (first, second))
    if low is None or high is None or other_low is None or other_high is None:
        return None, None
    one, two = hits - value * rows, other_hits - other * other_rows
    scale = math.sqrt(float(one @ one) * float(two @ two))
    r = float(one @ two) / scale if scale > 0 else 0.0
    down, up = (
        math.sqrt(max(a * a + b * b - 2 * r * a * b, 0.0))
        for a, b in ((value - low, other_high - other), (high - value, other - other_low))
    )
    gap = float(value - other)
    return max(gap - down, -1.0), min(gap + up, 1.0)


def clustered_mean(values: Array, clusters: NDArray[np.integer]) -> tuple[float, float | None, float | None]:
    """Return the mean of rows with its interval over clusters (t with one degree of freedom less than
    clusters).

    Args:
        values: One number per row.
        clusters: The cluster of each row, numbered from 0.

    Returns:
        The mean and its bounds, which are None below two clusters.

    Example:
        >>> import numpy as np
        >>> value, low, high = clustered_mean(np.array([1.0, 1.0, 3.0, 3.0]), np.array([0, 0, 1, 1]))
        >>> value, round(high, 2)
        (2.0, 14.71)
    """
    value = math.fsum(values) / len(values)
    return value, *influence_bounds(value, np.bincount(clusters, values - value) / len(values))


def influence_bounds(value: float, influence: Array) -> Bounds:
    """Return the interval of an estimate from the influence of each cluster on it; (None, None) below two
    clusters.

    Args:
        value: The estimate.
        influence: The total influence of each cluster: value + sum(influence) is the first-order
            expansion of the estimate. Clusters without rows are left out.
    """
    m = len(influence)
    if m < 2:
        return None, None
    centred = influence - influence.mean()
    half = t_quantile(m - 1) * math.sqrt(m / (m - 1) * math.fsum(np.sort(centred * centred)))
    return value - half, value + half


def with_mean_interval(means: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with ``low`` and ``high``, the interval of a mean of values that may be skewed.

    Student's interval misses the mean of few skewed values too often. Hall's monotone transformation removes
    the skewness of the studentised mean (Hall 1992, J. R. Statist. Soc. B 54).

    Args:
        means: Rows with ``value``, its standard ``error``, the ``skew`` of the values and their number
            ``n``. The bounds are null where the value is not finite or there are fewer than two values.
    """
    numbers = means.select(pl.col("value", "error", "skew", "n").cast(pl.Float64).fill_null(math.nan))
    value, error, skew, n = numbers.to_numpy().T
    quantiles = np.array([t_quantile(max(count - 1, 1)) for count in n])
    third = np.nan_to_num(skew) / np.sqrt(np.maximum(n, 1))
    third = np.where(np.abs(third) < 1e-6, 1e-6, third)

    def back(t: Array) -> Array:
        return np.asarray(3 / third * (np.cbrt(1 + third * (t - third / 6)) - 1))

    known = np.isfinite(value) & np.isfinite(error)
    ends = {"low": back(quantiles), "high": back(-quantiles)}
    return means.with_columns(
        pl.Series(name, np.where(known, value - error * end, math.nan), pl.Float64).fill_nan(None)
        for name, end in ends.items()
    )


def t_quantile(freedom: float, level: float = 0.975) -> float:
    """Return a point of Student's t distribution, by default that of 97.5 %."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, level))


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
        shares: The percentage of intervals that contain the true value, by size; NaN where not simulated.
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


_BIASED = Coverage(
    (92.0, 97.2, 95.0), "of ten classes; it allows for the bias of mAP with few objects per class"
)

_FEW_ERRORS = "it is conservative where few images are misclassified"
_FEW_DIFFER = "it is conservative where few outcomes differ"

NOTED: dict[str, Coverage] = {
    "f1_at_tpr95": Coverage((95.5, 97.7, 96.5), "the threshold is uncertain with few images"),
    "f1": Coverage((98.6, 96.8, 96.6), _FEW_ERRORS),
    "aupr_in": Coverage((97.6, 94.7, 94.9), _FEW_ERRORS),
    "aupr_out": Coverage((98.1, 94.6, 94.8), _FEW_ERRORS),
    "aupr_out_trapz": Coverage((97.3, 94.7, 94.8), _FEW_ERRORS),
    "scod": Coverage((91.9, 94.8, 93.8), "few samples have few errors"),
    "near_far": Coverage((99.4, 98.6, 98.0), "sets are taken to err together"),
    "level_map": Coverage((97.5, 95.5, 94.5), "a cell has few images"),
    "reliability": Coverage((97.7, 96.8, 95.1), "a bin has few images"),
    "failure_severity": Coverage((98.1, 96.1, 94.7), "few samples have few order statistics", "shift"),
    "paired_difference": Coverage((97.7, 96.1, 94.2), _FEW_DIFFER),
    "disagreement": Coverage((97.6, 97.4, 96.3), _FEW_DIFFER),
    "on_the_line": Coverage((97.7, 97.2, 94.8), "errors of models and of samples are added up"),
    "box_confusion": Coverage((97.7, 95.7, 94.7), _FEW_ERRORS),
    "box_fpr95": Coverage((math.nan, 98.6, 97.4), "the threshold is uncertain with few boxes"),
    "unknown_flagged": Coverage((math.nan, 98.4, 97.5), "the threshold is uncertain with few boxes"),
    "box_failure_severity": Coverage((97.8, 95.3, 95.4), "few samples have few order statistics"),
    "grid_kept": Coverage((97.1, 95.9, 95.5), "it is conservative where few objects are lost"),
    "box_failure_contour": Coverage((97.6, 97.3, 97.5), "resampled curves cross half at few severities"),
    **dict.fromkeys(("map", "map_numbers", "mean_map", "dial_map", "map_drop", "grid_map"), _BIASED),
    **dict.fromkeys(("mean_map_numbers", "tide", "mean_tide"), _BIASED),
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
    known = [pair for pair in zip(coverage.shares, coverage.sizes, strict=True) if not math.isnan(pair[0])]
    shares, runs = (_listed([f"{pair[k]:.0f}" for pair in known]) for k in (0, 1))
    shares = f"{shares} % of simulated runs of {runs} samples"
    return f"the 95 % intervals of {metric} contain the true value in {shares}: {coverage.why}"


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


# Percentile bootstrap over clusters (Efron & Tibshirani 1993, ch. 13).

# Every bootstrap starts from this seed, so that results are reproducible.
SEED = 0

# Bootstrap weights drawn at a time.
WEIGHTS_PER_BATCH = 1 << 21


def checked_resamples(resamples: int, or_none: bool = True) -> int:
    """Return ``resamples`` if it is at least 2, or 0 (no interval) where ``or_none`` allows it."""
    if resamples < 2 and not (or_none and resamples == 0):
        none = ", or 0 for no interval" if or_none else ""
        raise InvalidOption(
            "resamples", f"{parameter('resamples')} must be at least 2{none}, got {resamples}"
        )
    return resamples


def cluster_bootstrap(
    counts: Array,
    statistic: Callable[[Array], Array],
    resamples: int = 1000,
    repeats: NDArray[np.integer] | None = None,
) -> tuple[float, float]:
    """Return the 95 % interval of a statistic of sums over clusters, by resampling clusters.

    Clusters with equal counts are interchangeable, so a resample draws how often each distinct line of
    counts occurs (multinomial) instead of drawing clusters. This has the same distribution and costs
    resamples x distinct lines. Lines are sorted first, so the order of the clusters does not matter. The
    percentiles are expanded for few clusters (``expanded_percentiles``).

    Args:
        counts: The sufficient statistics of each cluster, clusters x columns.
        statistic: Maps sums (resamples x columns) to values, which may be infinite; NaN is left out.
        resamples: The number of resamples.
        repeats: How many clusters each line of ``counts`` stands for, where equal lines are already
            merged; by default one.

    Returns:
        The bounds; (inf, inf) where no resample has a value.

    Example:
        >>> import numpy as np
        >>> counts = np.array([[1.0, 2.0], [2.0, 2.0]] * 50)  # hits and rows of 100 samples
        >>> low, high = cluster_bootstrap(counts, lambda sums: sums[:, 0] / sums[:, 1])
        >>> 0.65 < low < 0.75 < high < 0.85
        True
    """
    lines, weights = _distinct(counts, repeats)
    clusters = int(weights.sum())
    rng, batch = np.random.default_rng(SEED), max(1, WEIGHTS_PER_BATCH // max(len(lines), 1))
    values = []
    for start in range(0, resamples if clusters else 0, batch):
        drawn = rng.multinomial(clusters, weights / clusters, min(batch, resamples - start))
        # Not a matrix product: on small matrices its threads cost more than they save.
        values.append(statistic(np.einsum("rl,lc->rc", drawn.astype(np.float64), lines)))
    return percentile_ranks(np.concatenate(values) if values else np.empty(0), clusters)


def _distinct(counts: Array, repeats: NDArray[np.integer] | None) -> tuple[Array, NDArray[np.int64]]:
    """Return the distinct lines in ascending order and how often each occurs."""
    names = [f"{k}" for k in range(counts.shape[1])]
    times = np.ones(len(counts), np.int64) if repeats is None else repeats
    frame = pl.DataFrame(counts, schema=names).with_columns(pl.Series("times", times, pl.Int64))
    distinct = frame.group_by(names).agg(pl.col("times").sum()).sort(names)
    return distinct.select(names).to_numpy().astype(np.float64), distinct["times"].to_numpy()


def expanded_percentiles(clusters: int) -> tuple[float, float]:
    """Return the percentiles that correct a bootstrap for its ``clusters`` (Hesterberg 2015, section 5.3).

    Resampled estimates vary too little by the factor sqrt((n - 1) / n) and lack the tails of Student's
    t; both are compensated by percentiles further out. With many clusters they are 2.5 % and 97.5 %.
    """
    if clusters < 2:
        return 0.025, 0.975
    reach = t_quantile(clusters - 1) * math.sqrt(clusters / (clusters - 1))
    tail = 0.5 * math.erfc(reach / math.sqrt(2))
    return tail, 1 - tail


def percentile_ranks(values: Array, clusters: int | None = None) -> tuple[float, float]:
    """Return the 2.5 % and 97.5 % points of resampled values (possibly infinite) without interpolation.

    With ``clusters``, the percentiles are expanded for that number of resampled clusters.
    """
    ordered = np.sort(values[~np.isnan(values)])
    if not len(ordered):
        return float("inf"), float("inf")
    shares = np.array((0.025, 0.975) if clusters is None else expanded_percentiles(clusters))
    indexes = np.clip(np.round(shares * (len(ordered) - 1)).astype(int), 0, len(ordered) - 1)
    return float(ordered[indexes[0]]), float(ordered[indexes[1]])
