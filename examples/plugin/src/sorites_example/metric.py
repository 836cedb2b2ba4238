"""A metric of your own: a function of the table, with its n and its interval."""

from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.core.table import Table
from sorites.metrics import answer_frame, judged_rows, select_rows, wilson_interval


@add_metric
def top5_accuracy(table: Table, by: Sequence[str] = ("model", "shift", "severity")) -> pl.DataFrame:
    """Return the share of judged rows with an accepted label among the five best guesses, with its
    Wilson interval.
    """
    rows, keys = select_rows(table, by)
    hit = pl.col("top5").list.set_intersection("accept").list.len() > 0
    shares = judged_rows(rows).group_by(keys).agg(value=hit.mean(), n=pl.len().cast(pl.Int64))
    return answer_frame(
        shares.with_columns(**wilson_interval(pl.col("value"), pl.col("n"))),
        keys,
        "value",
        "n",
        "low",
        "high",
    )
