"""Every metric selects rows of the table, groups them and lays out its answer with the functions here.

Judged rows are label rows with a verdict: a filter did not set them aside, they have no error, and the model knows their label.
A row with an error is missing, not wrong. Only the failure metrics read probe rows, which crowd around failures.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import polars as pl

from sorites.core import CLEAN
from sorites.errors import SoritesError, UnknownName
from sorites.table import COUNTED, Table

WHOLE = "(whole table)"
"""The column that holds the one group of ``by=()``; it never appears in an answer."""

SAMPLE_KEY = ("source", "sample_id")
"""These columns identify a sample, also across runs."""

CLEAN_KEY = ("run_id", "model", "sample_id")
"""A clean row and the shifted rows that start from it agree in these columns."""

_SETTING = {"image_id", "valid", "probe", "severity", "level", "params", "sem_level", "cov_level", "degrees"}
_VERDICT = {"output", "scorer", "pred", "conf", "top5", "correct", "score", "boxes", "error"}
IMAGE_COLUMNS = frozenset(_SETTING | _VERDICT)
"""These columns change along a trajectory, so that no metric of whole trajectories can be grouped by them."""

SHIFTED = (pl.col("shift") != CLEAN) & pl.col("severity").is_not_null()
"""Rows of a shift with a severity: neither clean pictures nor a grid of params, which has no order."""

ON_GRID = pl.col("probe").fill_null(False).not_()
"""Rows at the severities of the suite, not probes."""

REAL_SAMPLES = pl.col("sample_id").str.starts_with(COUNTED).fill_null(False).not_()
"""Rows whose sample is known: one made up from counts cannot be followed from one setting to another."""


def select_rows(
    table: Table, by: Sequence[str], refuse: Collection[str] = (), output: str = "label"
) -> tuple[pl.LazyFrame, list[str]]:
    """Return the rows of one ``output`` that no filter set aside, and the columns of ``by`` to group them by.

    A column that the table lacks, or that the metric lists in ``refuse``, is an error.
    """
    lazy = table.lazy()
    schema = lazy.collect_schema()
    columns = schema.names()
    keys = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    for key in keys:
        if key not in columns:
            raise UnknownName("column", key, columns, f"The columns are {', '.join(columns)}.")
        if key in refuse:
            raise SoritesError(f"this metric cannot be grouped by {key!r}: it runs over all of them. Leave it out of by.")
    rows = lazy.filter((pl.col("output") == output) & pl.col("valid").fill_null(True))
    return (rows, keys) if keys else (rows.with_columns(pl.lit(0).alias(WHOLE)), [WHOLE])


def judged_rows(rows: pl.LazyFrame, probes: bool = False) -> pl.LazyFrame:
    """Keep the rows with a verdict; ``probes`` also keeps those made by refining a failure point."""
    kept = rows.filter(pl.col("error").is_null() & pl.col("correct").is_not_null())
    return kept if probes else kept.filter(ON_GRID)


def with_clean(table: Table) -> pl.LazyFrame:
    """Return the table with each clean row repeated at severity 0 of every shift of its sample in the run.

    Curves then start from the clean pictures. Where a dataset has other samples for each shift, each curve starts from its own.
    """
    lazy = table.lazy()
    shifts = lazy.filter(SHIFTED).select("run_id", "sample_id", "shift", "family").unique()
    clean = lazy.filter(pl.col("shift") == CLEAN).drop("shift", "family")
    started = clean.join(shifts, on=["run_id", "sample_id"], nulls_equal=True).with_columns(severity=pl.lit(0.0))
    return pl.concat([lazy, started.select(lazy.collect_schema().names())])


def model_by_model(rows: pl.LazyFrame, keys: Sequence[str], summarise: Callable[[pl.LazyFrame], pl.LazyFrame]) -> pl.DataFrame:
    """Return ``summarise(rows)``, model by model where ``keys`` include the model, so that memory holds one model at a time."""
    if "model" not in keys:
        return summarise(rows).collect(engine="streaming")
    models = rows.select(pl.col("model").unique()).collect(engine="streaming")["model"]
    parts = [summarise(rows.filter(pl.col("model").eq_missing(pl.lit(model, pl.String)))) for model in models]
    return pl.concat([part.collect(engine="streaming") for part in parts or [summarise(rows)]])


def answer_frame(frame: pl.LazyFrame | pl.DataFrame, by: Sequence[str], *columns: str, then: Sequence[str] = ()) -> pl.DataFrame:
    """Return the columns ``by``, ``then`` and ``columns``, sorted by ``by`` and ``then``, whatever order the rows came in."""
    keys = [*by, *then]
    sorted_ = frame.lazy().select(*keys, *columns).sort(keys)
    return sorted_.drop(WHOLE, strict=False).collect(engine="streaming")
