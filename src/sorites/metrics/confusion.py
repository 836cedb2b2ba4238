"""The confusion matrix of classifiers: which classes turn into which."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.core.table import Table
from sorites.metrics.intervals import wilson_interval
from sorites.metrics.rows import SAMPLE_HASH, answer_frame, judged_rows, select_rows


@add_metric
def confusion(table: Table, by: Sequence[str] = ("model", "shift", "severity")) -> pl.DataFrame:
    """Share of the images of a class (``label``) that are predicted as another (``pred``), or as itself.

    ``count`` is the number of such images and ``n`` that of all images of the class. The interval takes the
    samples as units. Pairs of classes without an image are left out.
    """
    rows, keys = select_rows(table, by)
    judged = judged_rows(rows).filter(pl.col("label").is_not_null() & pl.col("pred").is_not_null())
    columns = list(dict.fromkeys([*keys, "label"]))
    pairs = list(dict.fromkeys([*columns, "pred"]))
    cells = judged.group_by(pairs).agg(count=pl.len().cast(pl.Int64))
    totals = judged.group_by(columns).agg(n=pl.len().cast(pl.Int64), samples=SAMPLE_HASH.n_unique())
    shares = cells.join(totals, on=columns, nulls_equal=True).with_columns(
        value=pl.col("count") / pl.col("n")
    )
    bounded = shares.with_columns(**wilson_interval(pl.col("value"), pl.min_horizontal("samples", "n")))
    then = [name for name in pairs if name not in keys]
    return answer_frame(bounded, keys, "value", "n", "low", "high", "count", then=then)
