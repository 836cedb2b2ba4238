"""Calibration of a model's confidence.

Confidence is divided into bins of equal width, closed below; 1 belongs to the last bin. Rows without a
confidence are left out, and all others are treated as independent.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.core.errors import SoritesError
from sorites.core.table import Table
from sorites.metrics.intervals import normal_interval, wilson_interval
from sorites.metrics.rows import answer_frame, judged_rows, select_rows


@add_metric
def calibration_error(
    table: Table, by: Sequence[str] = ("model", "shift", "severity"), bins: int = 15
) -> pl.DataFrame:
    """Expected calibration error: the gap between confidence and accuracy per bin, averaged over rows (Guo
    et al., ICML 2017).

    ``accuracy`` and ``conf`` are the means over all rows. The interval linearises the sum of gaps with
    fixed signs. Like the value itself it is biased high where ``n`` is not much larger than ``bins``,
    because random gaps count too.
    """
    binned, keys = _bin_sums(table, by, bins)
    sums = binned.group_by(keys).agg(
        pl.col("n").sum(),
        gap=(pl.col("right") - pl.col("trust")).abs().sum(),
        square=pl.col("square").sum(),
        accuracy=pl.col("right").sum(),
        conf=pl.col("trust").sum(),
    )
    n = pl.col("n")
    means = sums.with_columns(
        value=pl.col("gap") / n, accuracy=pl.col("accuracy") / n, conf=pl.col("conf") / n
    )
    bounds = normal_interval(pl.col("value"), (pl.col("square") / n - pl.col("value") ** 2) / n)
    clipped = {name: bound.clip(0, 1) for name, bound in bounds.items()}
    return answer_frame(means.with_columns(**clipped), keys, "value", "n", "low", "high", "accuracy", "conf")


@add_metric
def reliability(table: Table, by: Sequence[str] = ("model",), bins: int = 15) -> pl.DataFrame:
    """Accuracy in each ``bin`` of confidence (counted from 0), with the mean ``conf`` of the bin; Wilson
    interval.
    """
    binned, keys = _bin_sums(table, by, bins)
    shares = binned.with_columns(value=pl.col("right") / pl.col("n"), conf=pl.col("trust") / pl.col("n"))
    bounded = shares.with_columns(**wilson_interval(pl.col("value"), pl.col("n")))
    return answer_frame(bounded, keys, "value", "n", "low", "high", "conf", then=["bin"])


def _bin_sums(table: Table, by: Sequence[str], bins: int) -> tuple[pl.LazyFrame, list[str]]:
    """Return the sums per group and bin of confidence, and the group columns."""
    if bins < 1:
        raise SoritesError(f"bins must be at least 1, got {bins}")
    rows, keys = select_rows(table, by)
    conf, correct = pl.col("conf").cast(pl.Float64), pl.col("correct").cast(pl.Float64)
    with_confidence = judged_rows(rows).filter(pl.col("conf").is_between(0, 1))
    numbered = with_confidence.with_columns(bin=(conf * bins).floor().clip(0, bins - 1).cast(pl.Int32))
    sums = numbered.group_by(*keys, "bin").agg(
        n=pl.len().cast(pl.Int64), right=correct.sum(), trust=conf.sum(), square=((correct - conf) ** 2).sum()
    )
    return sums, keys
