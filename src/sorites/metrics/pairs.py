"""Two models on the same pictures: what one is right about more often than the other.

Pictures differ more than models do. Two models whose intervals overlap may still be told apart picture by picture, so an order of
models follows from their paired difference and not from the intervals of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import polars as pl

from sorites.core import CLEAN, add_metric
from sorites.errors import UnknownName
from sorites.metrics._intervals import paired_interval
from sorites.metrics._rows import REAL_SAMPLES, WHOLE, answer_frame, judged_rows, select_rows
from sorites.metrics.accuracy import over_samples
from sorites.table import Table


@add_metric
def paired_difference(table: Table, by: Sequence[str] = ("model",), other: str | None = None) -> pl.DataFrame:
    """Accuracy of ``model`` minus that of ``other`` on the shifted images that both were judged on, averaged as in
    ``mean_accuracy``.

    ``other`` names the one model that all are compared with; without it every pair is there, both ways. ``n`` counts samples, and
    ``share`` is the share of images on which exactly one of the two is right. The interval is that of ``accuracy_drop``.
    """
    rows, keys = select_rows(table, by)
    where = [key for key in keys if key not in ("model", WHOLE)]
    slim = judged_rows(rows).filter((pl.col("shift") != CLEAN) & REAL_SAMPLES)
    models = sorted(slim.select(pl.col("model").unique()).collect(engine="streaming")["model"].drop_nulls())
    if other is not None and models and other not in models:
        raise UnknownName("model", other, models, f"The table has {', '.join(models)}.")
    pairs = [(one, two) for one, two in permutations(models, 2) if other in (None, two)]
    found = [_difference(slim, where, one, two) for one, two in pairs] or [_difference(slim, where, "", "")]
    return answer_frame(pl.concat(found), ["model", *where], "value", "n", "low", "high", "share", then=["other"])


def _difference(rows: pl.LazyFrame, where: list[str], one: str, two: str) -> pl.DataFrame:
    mine, theirs = (rows.filter(pl.col("model") == name) for name in (one, two))
    right = theirs.select("run_id", "image_id", theirs=pl.col("correct").cast(pl.Float64))
    both = mine.join(right, on=["run_id", "image_id"], nulls_equal=True).with_columns(other=pl.lit(two))
    apart = pl.col("correct").cast(pl.Float64) - pl.col("theirs")
    sums = over_samples(both, ["model", "other", *where], value=apart, share=apart.abs())
    bounds = paired_interval(pl.col("value"), pl.col("value_squared"), pl.col("share"), pl.col("n"))
    return sums.with_columns(**bounds).collect(engine="streaming")
