"""The sets that the pictures of a run belong to, in the column ``set``.

A set is a source by its name. A source that holds several graded sets, as ``is_ood`` holds ImageNet-21K and Syn-IS, captures each
under a shift of its own whose params are the two levels: there the name of the shift names the set.
"""

from __future__ import annotations

import polars as pl

from sorites.table import Table

SET = "set"
POOLED = "pooled: "
"""The name of pooled sets starts with this and goes on with the sets in it."""

_OWN_NAME = pl.when(pl.col("severity").is_null() & pl.col("params").str.contains('"sem_level"', literal=True)).then("shift")


def with_sets(table: Table) -> pl.LazyFrame:
    """Return the table with the column ``set``; a table that has one is returned as it is.

    Two sets that would have the same name are called SOURCE/SHIFT.
    """
    lazy = table.lazy()
    if SET in lazy.collect_schema():
        return lazy
    name = pl.coalesce(_OWN_NAME, "source")
    found = lazy.select("source", own=_OWN_NAME, name=name).unique().collect(engine="streaming")
    twice = found.filter(pl.col("name").is_duplicated() & pl.col("own").is_not_null())["name"].unique().to_list()
    in_full = pl.concat_str("source", _OWN_NAME, separator="/")
    return lazy.with_columns(pl.when(_OWN_NAME.is_in(twice)).then(in_full).otherwise(name).alias(SET))


def pooled_sets(table: Table, chosen: pl.Expr) -> pl.LazyFrame:
    """Return the table with all sets as one, which is named after those of the rows that ``chosen`` keeps."""
    lazy = with_sets(table)
    names = lazy.filter(chosen).select(pl.col(SET).unique().sort()).collect(engine="streaming")[SET].drop_nulls()
    return lazy.with_columns(pl.lit(POOLED + " + ".join(names), pl.String).alias(SET))
