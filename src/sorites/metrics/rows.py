"""Every metric selects rows of the table, groups them and lays out its answer with the functions here.

Judged rows are label rows with a verdict: a filter did not set them aside, they have no error, and
the model knows their label. A row with an error is missing, not wrong. Only the failure metrics
read probe rows, which crowd around failures.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

import polars as pl

from sorites.core import CLEAN
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.table import COUNTED, Table

# The sets that the images of a run belong to, in the column ``set``.


SET = "set"
# The name of pooled sets starts with this and goes on with the sets in it.
POOLED = "pooled: "

_OWN_NAME = pl.when(
    pl.col("severity").is_null() & pl.col("params").str.contains('"sem_level"', literal=True)
).then("shift")


def with_sets(table: Table) -> pl.LazyFrame:
    """Return the table with the column ``set``; a table that has one is returned as it is.

    Two sets that would have the same name are called SOURCE/SHIFT.
    """
    lazy = table.lazy()
    if SET in lazy.collect_schema():
        return lazy
    name = pl.coalesce(_OWN_NAME, "source")
    found = lazy.select("source", own=_OWN_NAME, name=name).unique().collect(engine="streaming")
    twice = (
        found.filter(pl.col("name").is_duplicated() & pl.col("own").is_not_null())["name"].unique().to_list()
    )
    in_full = pl.concat_str("source", _OWN_NAME, separator="/")
    return lazy.with_columns(pl.when(_OWN_NAME.is_in(twice)).then(in_full).otherwise(name).alias(SET))


def pooled_sets(table: Table, chosen: pl.Expr) -> pl.LazyFrame:
    """Return the table with all sets as one, which is named after those of the rows that ``chosen`` keeps."""
    lazy = with_sets(table)
    names = (
        lazy.filter(chosen).select(pl.col(SET).unique().sort()).collect(engine="streaming")[SET].drop_nulls()
    )
    return lazy.with_columns(pl.lit(POOLED + " + ".join(names), pl.String).alias(SET))


# The column that holds the one group of ``by=()``; it never appears in an answer.
WHOLE = "(whole table)"

# These columns identify a sample, also across runs.
SAMPLE_KEY = ("source", "sample_id")

# A clean row and the shifted rows that start from it agree in these columns.
CLEAN_KEY = ("run_id", "model", "sample_id")

_SETTING = {"image_id", "valid", "probe", "severity", "level", "params", "sem_level", "cov_level", "degrees"}
_VERDICT = {"output", "scorer", "pred", "conf", "top5", "correct", "score", "boxes", "error"}
# These columns change along a trajectory, so that no metric of whole trajectories can be grouped by
# them.
IMAGE_COLUMNS = frozenset(_SETTING | _VERDICT)

# Rows of a shift with a severity: neither clean images nor a grid of params, which has no order.
SHIFTED = (pl.col("shift") != CLEAN) & pl.col("severity").is_not_null()

# Rows at the severities of the suite, not probes.
ON_GRID = pl.col("probe").fill_null(False).not_()

# Rows whose sample is known: one made up from counts cannot be followed from one setting to
# another.
REAL_SAMPLES = pl.col("sample_id").str.starts_with(COUNTED).fill_null(False).not_()


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
            raise SoritesError(
                f"this metric cannot be grouped by {key!r}: it runs over all of them. Leave it out of by."
            )
    rows = lazy.filter((pl.col("output") == output) & pl.col("valid").fill_null(True))
    return (rows, keys) if keys else (rows.with_columns(pl.lit(0).alias(WHOLE)), [WHOLE])


def judged_rows(rows: pl.LazyFrame, probes: bool = False) -> pl.LazyFrame:
    """Keep the rows with a verdict; ``probes`` also keeps those made by refining a failure severity."""
    kept = rows.filter(pl.col("error").is_null() & pl.col("correct").is_not_null())
    return kept if probes else kept.filter(ON_GRID)


def with_clean(table: Table) -> pl.LazyFrame:
    """Return the table with each clean row repeated at severity 0 of every shift of its sample in the run.

    Curves then start from the clean images. Where a dataset has other samples for each shift,
    each curve starts from its own.
    """
    lazy = table.lazy()
    shifts = lazy.filter(SHIFTED).select("run_id", "sample_id", "shift", "family").unique()
    clean = lazy.filter(pl.col("shift") == CLEAN).drop("shift", "family")
    started = clean.join(shifts, on=["run_id", "sample_id"], nulls_equal=True).with_columns(
        severity=pl.lit(0.0)
    )
    return pl.concat([lazy, started.select(lazy.collect_schema().names())])


def model_by_model(
    rows: pl.LazyFrame, keys: Sequence[str], summarise: Callable[[pl.LazyFrame], pl.LazyFrame]
) -> pl.DataFrame:
    """Return ``summarise(rows)``, model by model where ``keys`` include the model, so that memory
    holds one model at a time.
    """
    if "model" not in keys:
        return summarise(rows).collect(engine="streaming")
    models = rows.select(pl.col("model").unique()).collect(engine="streaming")["model"]
    parts = [summarise(rows.filter(pl.col("model").eq_missing(pl.lit(model, pl.String)))) for model in models]
    return pl.concat([part.collect(engine="streaming") for part in parts or [summarise(rows)]])


def answer_frame(
    frame: pl.LazyFrame | pl.DataFrame, by: Sequence[str], *columns: str, then: Sequence[str] = ()
) -> pl.DataFrame:
    """Return the columns ``by``, ``then`` and ``columns``, sorted by ``by`` and ``then``, whatever
    order the rows came in.
    """
    keys = [*by, *then]
    sorted_ = frame.lazy().select(*keys, *columns).sort(keys)
    return sorted_.drop(WHOLE, strict=False).collect(engine="streaming")


# The stop of its shift at which an image stands: its severity, or the params that were asked for.


# The columns that identify a stop, once ``with_settings_key`` has added the last of them.
SETTING_KEY = ("shift", "severity", "(setting)")

# As many samples of a shift are looked at: all of them are shown at the same settings.
ENOUGH = 200

Params = dict[str, Any]


def with_settings_key(table: Table) -> pl.LazyFrame:
    """Return the table with the column ``(stop)``: the params that were asked for, where an image
    has no severity.
    """
    lazy = table.lazy()
    grid = lazy.filter(pl.col("severity").is_null() & pl.col("params").is_not_null())
    rows = grid.select("shift", "params").unique().collect(engine="streaming")
    told = {
        shift: _telling(grid.filter(pl.col("shift") == shift))
        for shift in rows["shift"].unique().drop_nulls()
    }
    named = [_named(params, told.get(shift, ())) for shift, params in rows.iter_rows()]
    settings = rows.with_columns(
        pl.lit(None, pl.Float64).alias("severity"), pl.Series(SETTING_KEY[-1], named, pl.String)
    )
    return lazy.join(settings.lazy(), on=["shift", "severity", "params"], how="left", nulls_equal=True)


def _telling(rows: pl.LazyFrame) -> tuple[str, ...]:
    """Return the names of params without which two images of a sample would look alike; those of
    most values go first.
    """
    some = rows.select("sample_id").unique().sort("sample_id").head(ENOUGH)
    seen = (
        rows.join(some, on="sample_id", how="semi")
        .select(*SAMPLE_KEY, "params")
        .unique()
        .collect(engine="streaming")
    )
    images = [(row[:-1], _read(row[-1])) for row in seen.iter_rows()]
    values: dict[str, set[str]] = {}
    for _, params in images:
        for name, value in params.items():
            values.setdefault(name, set()).add(json.dumps(value))
    kept = sorted(values, key=lambda name: (-len(values[name]), name))
    for name in tuple(kept):
        left = [other for other in kept if other != name]
        if len({(sample, _spelled(params, left)) for sample, params in images}) == len(images):
            kept = left
    return tuple(sorted(kept))


def _named(params: str, telling: Sequence[str]) -> str:
    return _spelled(_read(params), telling)


def _spelled(params: Params, names: Sequence[str]) -> str:
    return json.dumps({name: params[name] for name in names if name in params}, sort_keys=True)


def _read(params: str) -> Params:
    try:
        found = json.loads(params)
    except ValueError:
        return {"": params}
    return found if isinstance(found, dict) else {"": params}
