"""Measure whether uncommon attributes are strange: the share of images that score above 95 % of the familiar ones."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.errors import SoritesError, UnknownName
from sorites.metrics._intervals import wilson_interval
from sorites.metrics._rows import ON_GRID, answer_frame, select_rows
from sorites.metrics.attributes import CLASS
from sorites.table import Table

TPR = 0.95
"""The share of familiar images at or below the threshold."""


@add_metric
def strange_share(
    table: Table, by: Sequence[str] = ("model", "scorer"), split: str | None = None, kind: str = "location"
) -> pl.DataFrame:
    """Share of images that score above 95 % of the familiar ones, by ``class`` and ``attribute`` of a ``kind``; Wilson interval.

    This is table 2 of FOCUS, there with Gram-matrix deviations and ImageNet's validation set, here with any scorer of the run.
    ``split`` names the familiar images. ``common`` is true where the source calls the attribute common for the class.
    """
    rows, keys = select_rows(table, by, output="ood")
    for needed in ("model", "scorer"):
        if needed not in keys:
            raise SoritesError(f"scores of different models and scorers have no common threshold: by needs {needed}")
    scored = rows.filter(ON_GRID & pl.col("error").is_null() & pl.col("score").is_not_null())
    familiar = scored.filter(pl.col("split") == pl.lit(split, pl.String)).group_by(keys)
    limits = familiar.agg(limit=pl.col("score").quantile(TPR, "linear")).collect(engine="streaming")
    cells = _cells(scored, keys, kind).collect(engine="streaming")
    if cells.height and not limits.height:
        splits = scored.select(pl.col("split").unique().sort()).collect()["split"].to_list()
        raise UnknownName(
            "split", str(split), [s for s in splits if s], f"Name the familiar images: split=NAME, one of {splits}."
        )
    then = ("attribute", "class")
    above = cells.join(limits, on=keys, nulls_equal=True).with_columns(strange=pl.col("score") > pl.col("limit"))
    shares = above.group_by(*keys, *then).agg(
        value=pl.col("strange").mean(), n=pl.len().cast(pl.Int64), common=pl.col("common").first()
    )
    counted = shares.with_columns(**wilson_interval(pl.col("value"), pl.col("n")))
    return answer_frame(counted, keys, "value", "n", "low", "high", "common", then=then)


def _cells(scored: pl.LazyFrame, keys: Sequence[str], kind: str) -> pl.LazyFrame:
    """Return one row per image and attribute of the kind that is marked as common or not."""
    class_attribute = pl.col("attrs").list.eval(pl.element().filter(pl.element().struct.field("key") == CLASS)).list.first()
    named = pl.coalesce(class_attribute.struct.field("value"), pl.col("label").cast(pl.String)).alias("class")
    long = scored.select(*keys, "score", named, "attrs").explode("attrs").unnest("attrs")
    kept = long.filter((pl.col("key") == kind) & pl.col("common").is_not_null())
    return kept.rename({"value": "attribute"})
