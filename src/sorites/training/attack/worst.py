"""Measure what a model keeps right whatever the attack: AutoAttack's robust accuracy."""

from __future__ import annotations

import polars as pl

from sorites.metrics import wilson_interval
from sorites.table import Table
from sorites.training.attack.settings import FAMILY


def worst_case(table: Table) -> pl.DataFrame:
    """Return the share of pictures that stay right under every loss, per model, norm and epsilon, with n and its interval.

    A picture with an error under one of the losses is left out.
    """
    rows = table.lazy().filter(pl.col("family") == FAMILY, pl.col("correct").is_not_null())
    named = rows.with_columns(norm=pl.col("shift").str.extract(r"_([a-z0-9]+)$"), eps="severity")
    each = named.group_by("model", "norm", "eps", "sample_id").agg(pl.col("correct").all(), tried=pl.col("shift").n_unique())
    whole = each.filter(pl.col("tried") == pl.col("tried").max().over("model", "norm", "eps"))
    found = whole.group_by("model", "norm", "eps").agg(value=pl.col("correct").mean(), n=pl.len())
    return found.with_columns(**wilson_interval(pl.col("value"), pl.col("n"))).sort("model", "norm", "eps").collect()
