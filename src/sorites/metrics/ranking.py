"""Ranks of models, where the data can separate them."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.metrics._rows import answer_frame, with_clean
from sorites.metrics.accuracy import accuracy
from sorites.table import Table


@add_metric
def rank(table: Table, by: Sequence[str] = ("model", "shift", "severity")) -> pl.DataFrame:
    """Rank of each model: 1 + the number of models that are better beyond one standard error on either side.

    A model is better when the low end of its accuracy ± ``sigma``, sigma = sqrt(p (1 - p) / n), lies above the high end of the
    other's; overlapping models share a rank. Models are compared within the other columns of ``by``; ``model`` is added where it
    is left out. By shift and severity, every shift starts with the clean pictures at severity 0.
    """
    wanted = [by] if isinstance(by, str) else list(by)
    keys = wanted if "model" in wanted else [*wanted, "model"]
    curves = with_clean(table) if {"shift", "severity"} <= set(keys) else table
    seen = accuracy(curves, keys).lazy().filter(pl.col("n") > 0).rename({"value": "accuracy"})
    p = pl.col("accuracy")
    placed = seen.with_columns(sigma=(p * (1 - p) / pl.col("n")).sqrt()).with_row_index("me")
    field = [key for key in keys if key != "model"]
    rivals = placed.select(*field, rival_low=p - pl.col("sigma"))
    met = placed.join(rivals, on=field, nulls_equal=True) if field else placed.join(rivals, how="cross")
    better = (pl.col("rival_low") > p + pl.col("sigma")).sum().cast(pl.Int64)
    places = placed.join(met.group_by("me").agg(value=1 + better), on="me")
    return answer_frame(places, keys, "value", "n", "accuracy", "sigma")
