"""A metric of your own: it asks a question of the table, and answers with n and an interval."""

from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.metrics._intervals import wilson
from sorites.metrics._rows import answer, ask, judged
from sorites.table import Table


@add_metric
def top5_accuracy(table: Table, by: Sequence[str] = ("model", "shift", "severity")) -> pl.DataFrame:
    """Return the share of judged rows with an accepted label among the five best guesses, with its Wilson interval."""
    rows, keys = ask(table, by)
    hit = pl.col("top5").list.set_intersection("accept").list.len() > 0
    shares = judged(rows).group_by(keys).agg(value=hit.mean(), n=pl.len().cast(pl.Int64))
    return answer(shares.with_columns(**wilson(pl.col("value"), pl.col("n"))), keys, "value", "n", "low", "high")
