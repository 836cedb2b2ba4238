"""The stop of its shift at which an image stands: its severity, or the params that were asked for.

A shift may choose params of its own for a picture (a drawn direction, an automatic exposure), and the table keeps them beside
those that were asked for. They part the pictures of one setting, so that a number of a whole set, such as mAP, must not be taken
per ``params``. Of a dial the severity says it all. Of a grid, the params count that tell the images of one sample apart.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import polars as pl

from sorites.metrics._rows import SAMPLE_KEY
from sorites.table import Table

STOP = ("shift", "severity", "(stop)")
"""The columns that identify a stop, once ``with_stops`` has added the last of them."""

ENOUGH = 200
"""As many samples of a shift are looked at: all of them are shown at the same settings."""

Params = dict[str, Any]


def with_stops(table: Table) -> pl.LazyFrame:
    """Return the table with the column ``(stop)``: the params that were asked for, where an image has no severity."""
    lazy = table.lazy()
    grid = lazy.filter(pl.col("severity").is_null() & pl.col("params").is_not_null())
    rows = grid.select("shift", "params").unique().collect(engine="streaming")
    told = {shift: _telling(grid.filter(pl.col("shift") == shift)) for shift in rows["shift"].unique().drop_nulls()}
    named = [_named(params, told.get(shift, ())) for shift, params in rows.iter_rows()]
    settings = rows.with_columns(pl.lit(None, pl.Float64).alias("severity"), pl.Series(STOP[-1], named, pl.String))
    return lazy.join(settings.lazy(), on=["shift", "severity", "params"], how="left", nulls_equal=True)


def _telling(rows: pl.LazyFrame) -> tuple[str, ...]:
    """Return the names of params without which two images of a sample would look alike; those of most values go first."""
    some = rows.select("sample_id").unique().sort("sample_id").head(ENOUGH)
    seen = rows.join(some, on="sample_id", how="semi").select(*SAMPLE_KEY, "params").unique().collect(engine="streaming")
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
