"""How often a model is right."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.metrics.intervals import wilson
from sorites.metrics.rows import ON_GRID, answer, ask
from sorites.table import Table


@add_metric
def accuracy(table: Table, by: Sequence[str] = ("model", "shift", "severity")) -> pl.DataFrame:
    """Share of judged rows that are right; Wilson interval; ``missing`` counts the rows that have an error instead.

    A group with nothing but errors has a null value. The interval takes rows as independent: where ``by`` pools
    several settings of one sample it is too narrow, and ``mean_accuracy`` is the one to ask.
    """
    rows, keys = ask(table, by)
    sound = pl.col("error").is_null()
    counted = rows.filter(ON_GRID).group_by(keys)
    counted_rows = counted.agg(
        n=(sound & pl.col("correct").is_not_null()).sum().cast(pl.Int64),
        right=(sound & pl.col("correct")).sum().cast(pl.Int64),
        missing=sound.not_().sum().cast(pl.Int64),
    ).filter(pl.col("n") + pl.col("missing") > 0)
    value = pl.when(pl.col("n") > 0).then(pl.col("right") / pl.col("n"))
    shares = counted_rows.with_columns(value=value).with_columns(**wilson(pl.col("value"), pl.col("n")))
    return answer(shares, keys, "value", "n", "low", "high", "missing")
