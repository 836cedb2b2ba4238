"""Failure points of tables with more trajectories than memory holds keys of: 64-bit hashes stand for the keys.

Two trajectories with one hash would count as one. Among twenty million, the chance that any two have it is one in a hundred
thousand.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence

import polars as pl

from sorites.core import CLEAN
from sorites.metrics._rows import CLEAN_KEY, SHIFTED


def counted_failures(rows: pl.LazyFrame, keys: Sequence[str], trajectory: Sequence[str], parts: int) -> Iterator[pl.DataFrame]:
    """Yield the number of trajectories (``count``) by keys and failure point, for parts of whole samples.

    ``rows`` are judged; ``trajectory`` are the columns by which trajectories differ, ``keys`` among them.
    """
    names = _names(rows.filter(SHIFTED), keys, trajectory)
    for part in range(parts):
        some = rows.filter(pl.col("sample_id").hash(0) % parts == part)
        yield _counted(some, keys, trajectory).join(names, on="group").drop("group")


def _counted(rows: pl.LazyFrame, keys: Sequence[str], trajectory: Sequence[str]) -> pl.DataFrame:
    hashed = [_hash(name, trajectory) for name in trajectory]
    wrong_at = pl.when(pl.col("correct").not_()).then("severity")
    marked = rows.filter(SHIFTED).select(*hashed, failure=wrong_at)
    apart = marked.select("failure", trajectory=_joined(trajectory), start=_joined(CLEAN_KEY), group=_joined(keys))
    points = apart.group_by("trajectory").agg(pl.col("start").first(), pl.col("group").first(), pl.col("failure").min())
    clean = rows.filter((pl.col("shift") == CLEAN) & pl.col("correct").not_())
    lost = clean.select([_hash(name, trajectory) for name in CLEAN_KEY]).select(start=_joined(CLEAN_KEY), lost=True).unique()
    failure = pl.when("lost").then(0.0).otherwise(pl.col("failure").fill_null(float("inf")))
    known = points.join(lost, on="start", how="left").select("group", failure=failure)
    return known.group_by("group", "failure").agg(pl.len().cast(pl.Int64).alias("count")).collect(engine="streaming")


def _names(rows: pl.LazyFrame, keys: Sequence[str], trajectory: Sequence[str]) -> pl.DataFrame:
    """Return the values of the keys by the hash that stands for them."""
    unique = rows.select(keys).unique().collect(engine="streaming")
    hashed = unique.lazy().with_columns([_hash(name, trajectory) for name in keys])
    return hashed.select(*keys, group=_joined(keys)).collect()


def _hash(name: str, trajectory: Sequence[str]) -> pl.Expr:
    """Return the hash of a column, another one for each: they are joined by exclusive or."""
    return pl.col(name).hash(list(trajectory).index(name) + 1).alias(f"hash of {name}")


def _joined(names: Sequence[str]) -> pl.Expr:
    return functools.reduce(operator.xor, [pl.col(f"hash of {name}") for name in names])
