"""Calibration of a model's confidence.

Confidence is divided into bins of equal width, closed below; 1 belongs to the last bin. Rows without a
confidence are left out. Intervals are over samples, however many rows a sample has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.core.errors import InvalidOption
from sorites.core.messages import parameter
from sorites.core.table import Table
from sorites.metrics.intervals import cluster_sums, share_intervals
from sorites.metrics.rows import SAMPLE, SAMPLE_HASH, answer_frame, judged_rows, select_rows

# Confidences up to this far above 1 are rounding errors of a softmax and count as 1.
ROUNDING = 1e-5


@add_metric
def calibration_error(
    table: Table, by: Sequence[str] = ("model", "shift", "severity"), bins: int = 15
) -> pl.DataFrame:
    """Expected calibration error: the gap between confidence and accuracy per bin, averaged over rows (Guo
    et al., ICML 2017).

    ``accuracy`` and ``conf`` are the means over all rows. The value is biased high where ``n`` is not
    much larger than ``bins``, because random gaps count too: ``chance`` is the value that a perfectly
    calibrated model would be expected to show on these samples. There is no interval: near ``chance``
    none has a known coverage.
    """
    counts, keys = _counts(table, by, bins)
    return _error(counts, keys)


def _error(counts: pl.LazyFrame, keys: list[str]) -> pl.DataFrame:
    """Return the mean gap between confidence and accuracy of bins, and that of a calibrated model."""
    rows, gap, gaps = pl.col("rows"), pl.col("gap"), pl.col("hits") - pl.col("trust")
    of_bins = counts.group_by(*keys, "bin").agg(
        pl.col("rows", "hits", "trust").sum(),
        gap=gaps.sum(),
        gg=(gaps**2).sum(),
        gr=(gaps * rows).sum(),
        rr=(rows**2).sum(),
        samples=pl.len(),
    )
    # The gap of a bin varies over samples about its mean; a normal variable about 0 has this mean size.
    mean = gap / rows
    centred = (pl.col("gg") - 2 * mean * pl.col("gr") + mean**2 * pl.col("rr")).clip(0)
    several, few = pl.col("samples") > 1, pl.col("samples") / (pl.col("samples") - 1)
    variance = pl.when(several).then(few * centred).otherwise("gg")
    totals = of_bins.group_by(keys).agg(
        n=rows.sum().round().cast(pl.Int64),
        value=gap.abs().sum() / rows.sum(),
        accuracy=pl.col("hits").sum() / rows.sum(),
        conf=pl.col("trust").sum() / rows.sum(),
        chance=(variance * (2 / math.pi)).sqrt().sum() / rows.sum(),
    )
    return answer_frame(totals, keys, "value", "n", "accuracy", "conf", "chance")


@add_metric
def adaptive_calibration_error(
    table: Table, by: Sequence[str] = ("model", "shift", "severity"), bins: int = 15
) -> pl.DataFrame:
    """Calibration error with bins of equally many rows instead of equal width (Nixon et al. 2019); columns as
    in ``calibration_error``.

    Rows with equal confidence are in equal parts in the bins that they lie in, so that their order does not
    matter.
    """
    counts, keys = _counts(table, by, bins, adaptive=True)
    return _error(counts, keys)


@add_metric
def reliability(table: Table, by: Sequence[str] = ("model",), bins: int = 15) -> pl.DataFrame:
    """Accuracy in each ``bin`` of confidence (counted from 0), with the mean ``conf`` of the bin; the
    interval is over samples.
    """
    counts, keys = _counts(table, by, bins)
    columns = [*keys, "bin"]
    shares = share_intervals(cluster_sums(counts, columns, "hits", "rows", "trust"), columns, "trust")
    return answer_frame(
        shares.with_columns(conf=pl.col("trust") / pl.col("n")),
        keys, "value", "n", "low", "high", "conf", then=["bin"],
    )  # fmt: skip


def _counts(
    table: Table, by: Sequence[str], bins: int, adaptive: bool = False
) -> tuple[pl.LazyFrame, list[str]]:
    """Return the rows, correct rows and summed confidence of each group, bin and sample, and the group
    columns; with ``adaptive``, bins have equally many rows.
    """
    if bins < 1:
        raise InvalidOption("bins", f"{parameter('bins')} must be at least 1, got {bins}")
    rows, keys = select_rows(table, by)
    conf = pl.col("conf").cast(pl.Float64)
    with_confidence = judged_rows(rows).filter(conf.is_between(0, 1 + ROUNDING))
    clipped = with_confidence.with_columns(conf=conf.clip(0, 1))
    if adaptive:
        numbered = _equal_bins(clipped, keys, bins)
    else:
        place = (conf * bins).floor().clip(0, bins - 1).cast(pl.Int32)
        numbered = clipped.with_columns(bin=place, part=pl.lit(1, pl.Int64))
    part = pl.col("part")
    counts = numbered.group_by(*keys, "bin", SAMPLE_HASH.alias(SAMPLE)).agg(
        rows=part.sum(), hits=(part * pl.col("correct")).sum(), trust=(part * conf).sum()
    )
    return counts, keys


def _equal_bins(rows: pl.LazyFrame, keys: list[str], bins: int) -> pl.LazyFrame:
    """Return the rows with bins of equally many rows of each group.

    Rows with equal confidence that lie in several bins are in each of them with the same ``part``, so that
    their order does not matter.
    """
    n, first = pl.len().over(keys), pl.col("conf").rank("min").over(keys).cast(pl.Int64) - 1
    tied = pl.len().over(*keys, "conf").cast(pl.Int64)
    last = first + tied - 1
    placed = rows.with_columns(
        n=n.cast(pl.Int64),
        first=first,
        tied=tied,
        bin=pl.int_ranges(first * bins // n, last * bins // n + 1),
    ).explode("bin")
    # The places from ceil(b n / bins) up to ceil((b + 1) n / bins) are those of bin b.
    start, end = ((pl.col("n") * (pl.col("bin") + more) + bins - 1) // bins for more in (0, 1))
    inside = pl.min_horizontal(end, pl.col("first") + pl.col("tied")) - pl.max_horizontal(start, "first")
    parts = placed.with_columns(part=inside / pl.col("tied"), bin=pl.col("bin").cast(pl.Int32))
    # With fewer rows than bins, some bins are empty.
    return parts.filter(pl.col("part") > 0)
