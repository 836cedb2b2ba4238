"""Which rows of the table a metric reads, how they are grouped, and how its answer is laid out.

Judged rows are label rows with a verdict: not set aside by a filter, no error, a label the model knows.
A row with an error is missing, not wrong. Probe rows, which crowd around failures, are left to the failure metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import polars as pl

from sorites.core import CLEAN
from sorites.errors import SoritesError, UnknownName
from sorites.table import Table

WHOLE = "(whole table)"
"""The one group of ``by=()``; it never appears in an answer."""

SAMPLE = ("source", "sample_id")
"""What tells one thing photographed from another, also across runs."""

START = ("run_id", "model", "sample_id")
"""What a clean row and the shifted rows that start from it have in common."""

_SETTING = {"image_id", "valid", "probe", "severity", "level", "params", "sem_level", "cov_level", "degrees"}
_VERDICT = {"output", "scorer", "pred", "conf", "top5", "correct", "score", "boxes", "error"}
OF_AN_IMAGE = frozenset(_SETTING | _VERDICT)
"""Columns that change along a trajectory, so that nothing asked of whole trajectories can be grouped by them."""

SHIFTED = (pl.col("shift") != CLEAN) & pl.col("severity").is_not_null()
"""On a dial and moved: neither the clean pictures nor a grid of params without a line."""

ON_GRID = pl.col("probe").fill_null(False).not_()


def ask(table: Table, by: Sequence[str], refuse: Collection[str] = (), output: str = "label") -> tuple[pl.LazyFrame, list[str]]:
    """The rows of one output that no filter set aside, and the columns to group them by."""
    lazy = table.lazy()
    columns = lazy.collect_schema().names()
    keys = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    for key in keys:
        if key not in columns:
            raise UnknownName("column", key, columns, f"The columns are {', '.join(columns)}.")
        if key in refuse:
            raise SoritesError(f"this metric cannot be grouped by {key!r}: it runs over all of them. Leave it out of by.")
    rows = lazy.filter((pl.col("output") == output) & pl.col("valid").fill_null(True))
    return (rows, keys) if keys else (rows.with_columns(pl.lit(0).alias(WHOLE)), [WHOLE])


def judged(rows: pl.LazyFrame, probes: bool = False) -> pl.LazyFrame:
    """Rows with a verdict; ``probes`` keeps those made by refining a failure point."""
    kept = rows.filter(pl.col("error").is_null() & pl.col("correct").is_not_null())
    return kept if probes else kept.filter(ON_GRID)


def with_clean(table: Table) -> pl.LazyFrame:
    """The table with each clean row also standing at severity 0 of every dial its sample was turned on in the run, so that
    curves start there. Where a set brings other samples for each shift, each dial starts from its own."""
    lazy = table.lazy()
    dials = lazy.filter(SHIFTED).select("run_id", "sample_id", "shift", "family").unique()
    clean = lazy.filter(pl.col("shift") == CLEAN).drop("shift", "family")
    started = clean.join(dials, on=["run_id", "sample_id"], nulls_equal=True).with_columns(severity=pl.lit(0.0))
    return pl.concat([lazy, started.select(lazy.collect_schema().names())])


def in_turn(rows: pl.LazyFrame, keys: Sequence[str], summarise: Callable[[pl.LazyFrame], pl.LazyFrame]) -> pl.DataFrame:
    """``summarise(rows)``, one model after the other where ``keys`` hold them apart, so that memory holds one model's samples."""
    if "model" not in keys:
        return summarise(rows).collect(engine="streaming")
    models = rows.select(pl.col("model").unique()).collect(engine="streaming")["model"]
    parts = [summarise(rows.filter(pl.col("model").eq_missing(pl.lit(model, pl.String)))) for model in models]
    return pl.concat([part.collect(engine="streaming") for part in parts or [summarise(rows)]])


def answer(asked: pl.LazyFrame | pl.DataFrame, by: Sequence[str], *columns: str, then: Sequence[str] = ()) -> pl.DataFrame:
    """``by`` + ``then`` + ``columns``, sorted by ``by`` and ``then``: the same rows in the same order whatever came in."""
    keys = [*by, *then]
    sorted_ = asked.lazy().select(*keys, *columns).sort(keys)
    return sorted_.drop(WHOLE, strict=False).collect(engine="streaming")
