"""Helpers of all metrics: select rows of the table, group them, and lay out the answer.

Judged rows are label rows with a known outcome: no filter excluded them, they have no error, and their
label is one of the model's classes. A row with an error is missing, not wrong. Only the failure metrics
read probe rows, which cluster around failures.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

import polars as pl

from sorites.core import CLEAN
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.table import ATTRS_PREFIX, COUNTED_PREFIX, Table

# The column with the set that an image belongs to.
SET = "set"
# The prefix of the name of pooled sets, before the names of the sets.
POOLED = "pooled: "

_OWN_NAME = pl.when(
    pl.col("severity").is_null() & pl.col("params").str.contains('"sem_level"', literal=True)
).then("shift")


# The dataset of a sample, if its source reads several: the attribute ``set``.
_NAMED = (
    pl.col("attrs")
    .list.eval(pl.element().filter(pl.element().struct.field("key") == "set").struct.field("value"))
    .list.first()
)


def with_sets(table: Table) -> pl.LazyFrame:
    """Return the table with the column ``set``, which is added if it is missing.

    Two sets that would have the same name are called SOURCE/SHIFT.
    """
    lazy = table.lazy()
    if SET in lazy.collect_schema():
        return lazy
    name = pl.coalesce(_NAMED, _OWN_NAME, "source")
    names = lazy.select("source", own=_OWN_NAME, name=name).unique().collect(engine="streaming")
    duplicates = (
        names.filter(pl.col("name").is_duplicated() & pl.col("own").is_not_null())["name"].unique().to_list()
    )
    full_name = pl.concat_str("source", _OWN_NAME, separator="/")
    return lazy.with_columns(pl.when(_OWN_NAME.is_in(duplicates)).then(full_name).otherwise(name).alias(SET))


def pooled_sets(table: Table, chosen: pl.Expr) -> pl.LazyFrame:
    """Return the table with all sets merged into one, named after the sets of the rows that match
    ``chosen``.
    """
    lazy = with_sets(table)
    names = (
        lazy.filter(chosen).select(pl.col(SET).unique().sort()).collect(engine="streaming")[SET].drop_nulls()
    )
    return lazy.with_columns(pl.lit(POOLED + " + ".join(names), pl.String).alias(SET))


# The group column of ``by=()``; it never appears in an answer.
WHOLE = "(whole table)"

# The columns that identify a sample, also across runs.
SAMPLE_KEY = ("source", "sample_id")

# A temporary column: the hash of a sample's key.
SAMPLE = "(sample)"
SAMPLE_HASH = pl.struct(SAMPLE_KEY).hash()

# The columns that a clean row shares with the shifted rows of its sample.
CLEAN_KEY = ("run_id", "model", *SAMPLE_KEY)

_SETTING = {"image_id", "valid", "probe", "severity", "level", "params", "sem_level", "cov_level", "degrees"}
_VERDICT = {"output", "scorer", "pred", "conf", "top5", "correct", "score", "boxes", "error"}
# Columns that vary along a trajectory; metrics of whole trajectories cannot be grouped by them.
IMAGE_COLUMNS = frozenset(_SETTING | _VERDICT)

# Rows of a shift with a severity: neither clean images nor an unordered grid of params.
SHIFTED = (pl.col("shift") != CLEAN) & pl.col("severity").is_not_null()

# Rows at the severities of the suite, not probes.
ON_GRID = pl.col("probe").fill_null(False).not_()

# Rows of real samples: those made up from imported counts cannot be followed across settings.
REAL_SAMPLES = pl.col("sample_id").str.starts_with(COUNTED_PREFIX).fill_null(False).not_()


def select_rows(
    table: Table, by: Sequence[str], refuse: Collection[str] = (), output: str = "label"
) -> tuple[pl.LazyFrame, list[str]]:
    """Return the rows of one output kind without those that a filter excluded, and the columns to group
    them by.

    Args:
        table: The table.
        by: The columns to group by.
        refuse: Columns that the metric cannot be grouped by.
        output: The kind of output: "label", "ood" or "boxes".

    Raises:
        UnknownName: If the table lacks a column of ``by``.
        SoritesError: If a column of ``by`` is in ``refuse``.
    """
    lazy = table.lazy()
    schema = lazy.collect_schema()
    columns = schema.names()
    keys = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    for key in keys:
        if key not in columns:
            raise UnknownName("column", key, columns, f"The columns are {', '.join(columns)}.")
        if key in refuse or ("level" in refuse and _varies(lazy, key)):
            raise SoritesError(
                f"this metric cannot be grouped by {key!r} because it is computed over all of its values."
                " Remove it from by."
            )
    rows = lazy.filter((pl.col("output") == output) & pl.col("valid").fill_null(True))
    return (rows, keys) if keys else (rows.with_columns(pl.lit(0).alias(WHOLE)), [WHOLE])


def _varies(lazy: pl.LazyFrame, key: str) -> bool:
    """Return whether a column is an attribute that differs between the images of a sample, such as a tag."""
    if not key.startswith(ATTRS_PREFIX):
        return False
    counts = lazy.group_by(SAMPLE_KEY).agg(pl.col(key).n_unique())
    return bool(counts.select((pl.col(key) > 1).any()).collect(engine="streaming").item())


def judged_rows(rows: pl.LazyFrame, probes: bool = False) -> pl.LazyFrame:
    """Keep the rows with a known outcome; with ``probes``, also the rows that refine a failure severity."""
    judged = rows.filter(pl.col("error").is_null() & pl.col("correct").is_not_null())
    return judged if probes else judged.filter(ON_GRID)


def with_clean(table: Table) -> pl.LazyFrame:
    """Return the table with each clean row repeated at severity 0 of every shift of its sample in the run.

    Curves then start from the clean images of their samples.
    """
    lazy = table.lazy()
    # By a hash: names of samples are long, and every row is compared.
    sample = pl.struct("run_id", *SAMPLE_KEY).hash().alias(SAMPLE)
    shifts = lazy.filter(SHIFTED).select(sample, "shift", "family").unique()
    clean = lazy.filter(pl.col("shift") == CLEAN).with_columns(sample).drop("shift", "family")
    at_zero = clean.join(shifts, on=SAMPLE).with_columns(severity=pl.lit(0.0))
    return pl.concat([lazy, at_zero.select(lazy.collect_schema().names())])


def count_samples(
    rows: pl.LazyFrame, keys: Sequence[str], hit: pl.Expr, sample: pl.Expr = SAMPLE_HASH
) -> pl.LazyFrame:
    """Return one line per group and sample with ``rows`` and ``hits``, the number of rows and of rows that
    match ``hit``.

    These are the clusters of ``intervals.clustered_share``: whether a group has several rows per sample
    is counted, not concluded from its columns.
    """
    return rows.group_by(*keys, sample.alias(SAMPLE)).agg(
        hits=hit.sum().cast(pl.Int64), rows=pl.len().cast(pl.Int64)
    )


def model_by_model(
    rows: pl.LazyFrame, keys: Sequence[str], summarise: Callable[[pl.LazyFrame], pl.LazyFrame]
) -> pl.DataFrame:
    """Return ``summarise(rows)``, one model at a time where ``keys`` include the model, to limit memory."""
    if "model" not in keys:
        return summarise(rows).collect(engine="streaming")
    models = rows.select(pl.col("model").unique()).collect(engine="streaming")["model"]
    parts = [summarise(rows.filter(pl.col("model").eq_missing(pl.lit(model, pl.String)))) for model in models]
    return pl.concat([part.collect(engine="streaming") for part in parts or [summarise(rows)]])


def answer_frame(
    frame: pl.LazyFrame | pl.DataFrame, by: Sequence[str], *columns: str, then: Sequence[str] = ()
) -> pl.DataFrame:
    """Return the columns ``by``, ``then`` and ``columns``, sorted by ``by`` and ``then``.

    Args:
        frame: The computed rows, in any order.
        by: The group columns.
        columns: The columns of the answer, such as "value", "n", "low", "high".
        then: Further columns that identify a row.
    """
    keys = [*by, *then]
    sorted_ = frame.lazy().select(*keys, *columns).sort(keys)
    return sorted_.drop(WHOLE, strict=False).collect(engine="streaming")


# The columns that identify a setting, once ``with_settings_key`` has added the last of them.
SETTING_KEY = ("shift", "severity", "(setting)")

# Samples of a shift that are inspected; all samples have the same settings.
MAX_INSPECTED_SAMPLES = 200

Params = dict[str, Any]


def with_settings_key(table: Table) -> pl.LazyFrame:
    """Return the table with the column ``(setting)``: the requested params of images without a severity."""
    lazy = table.lazy()
    grid = lazy.filter(pl.col("severity").is_null() & pl.col("params").is_not_null())
    rows = grid.select("shift", "params").unique().collect(engine="streaming")
    names_by_shift = {
        shift: _distinguishing_params(grid.filter(pl.col("shift") == shift))
        for shift in rows["shift"].unique().drop_nulls()
    }
    names = [_setting_name(params, names_by_shift.get(shift, ())) for shift, params in rows.iter_rows()]
    settings = rows.with_columns(
        pl.lit(None, pl.Float64).alias("severity"), pl.Series(SETTING_KEY[-1], names, pl.String)
    )
    return lazy.join(settings.lazy(), on=["shift", "severity", "params"], how="left", nulls_equal=True)


def _distinguishing_params(rows: pl.LazyFrame) -> tuple[str, ...]:
    """Return a minimal set of params that distinguishes the images of a sample; params with many values
    are dropped first.
    """
    inspected = rows.select(SAMPLE_KEY).unique().sort(SAMPLE_KEY).head(MAX_INSPECTED_SAMPLES)
    distinct = (
        rows.join(inspected, on=SAMPLE_KEY, how="semi", nulls_equal=True)
        .select(*SAMPLE_KEY, "params")
        .unique()
        .collect(engine="streaming")
    )
    images = [(row[:-1], _parse_params(row[-1])) for row in distinct.iter_rows()]
    values: dict[str, set[str]] = {}
    for _, params in images:
        for name, value in params.items():
            values.setdefault(name, set()).add(json.dumps(value))
    names = sorted(values, key=lambda name: (-len(values[name]), name))
    for name in tuple(names):
        remaining = [other for other in names if other != name]
        if len({(sample, _selected_json(params, remaining)) for sample, params in images}) == len(images):
            names = remaining
    return tuple(sorted(names))


def _setting_name(params: str, names: Sequence[str]) -> str:
    return _selected_json(_parse_params(params), names)


def _selected_json(params: Params, names: Sequence[str]) -> str:
    return json.dumps({name: params[name] for name in names if name in params}, sort_keys=True)


def _parse_params(params: str) -> Params:
    try:
        parsed = json.loads(params)
    except ValueError:
        return {"": params}
    return parsed if isinstance(parsed, dict) else {"": params}
