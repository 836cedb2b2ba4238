"""Does the model's confidence say how often it is right?

Confidence is cut into equal-width bins, closed below, 1 in the last one. Rows without a confidence are passed over;
the others are taken as independent.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.errors import SoritesError
from sorites.metrics._intervals import normal, wilson
from sorites.metrics._rows import answer, ask, judged
from sorites.table import Table


@add_metric
def calibration_error(table: Table, by: Sequence[str] = ("model", "shift", "severity"), bins: int = 15) -> pl.DataFrame:
    """Expected calibration error: the gap between confidence and accuracy in a bin, averaged over rows (Guo et al., ICML 2017).

    ``accuracy`` and ``conf`` are the means over all rows. The interval linearises the sum of gaps with their signs held; like the
    value itself it lies too high where ``n`` is not large beside ``bins``, since a gap by chance is still a gap.
    """
    binned, keys = _binned(table, by, bins)
    sums = binned.group_by(keys).agg(
        pl.col("n").sum(),
        gap=(pl.col("right") - pl.col("trust")).abs().sum(),
        square=pl.col("square").sum(),
        accuracy=pl.col("right").sum(),
        conf=pl.col("trust").sum(),
    )
    n = pl.col("n")
    means = sums.with_columns(value=pl.col("gap") / n, accuracy=pl.col("accuracy") / n, conf=pl.col("conf") / n)
    bounds = normal(pl.col("value"), (pl.col("square") / n - pl.col("value") ** 2) / n)
    clipped = {name: bound.clip(0, 1) for name, bound in bounds.items()}
    return answer(means.with_columns(**clipped), keys, "value", "n", "low", "high", "accuracy", "conf")


@add_metric
def reliability(table: Table, by: Sequence[str] = ("model",), bins: int = 15) -> pl.DataFrame:
    """Accuracy in each bin of confidence (``bin`` counts from 0), beside the bin's mean ``conf``; Wilson interval."""
    binned, keys = _binned(table, by, bins)
    shares = binned.with_columns(value=pl.col("right") / pl.col("n"), conf=pl.col("trust") / pl.col("n"))
    return answer(
        shares.with_columns(**wilson(pl.col("value"), pl.col("n"))), keys, "value", "n", "low", "high", "conf", then=["bin"]
    )


def _binned(table: Table, by: Sequence[str], bins: int) -> tuple[pl.LazyFrame, list[str]]:
    if bins < 1:
        raise SoritesError(f"bins is a number of bins from 1 up, got {bins}")
    rows, keys = ask(table, by)
    conf, right = pl.col("conf").cast(pl.Float64), pl.col("correct").cast(pl.Float64)
    held = judged(rows).filter(pl.col("conf").is_between(0, 1))
    numbered = held.with_columns(bin=(conf * bins).floor().clip(0, bins - 1).cast(pl.Int32))
    sums = numbered.group_by(*keys, "bin").agg(
        n=pl.len().cast(pl.Int64), right=right.sum(), trust=conf.sum(), square=((right - conf) ** 2).sum()
    )
    return sums, keys
