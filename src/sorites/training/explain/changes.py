"""Pictures of a run that changed sides: right for one model and wrong for another, or right when clean and wrong when shifted.

Of each picture and shift the least severity counts. Both directions take turns in a fair order, one change per picture, so that
what is shown is neither chosen by hand nor all of one kind.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import polars as pl

from sorites.core import CLEAN
from sorites.errors import UnknownName
from sorites.rng import fair_order
from sorites.table import Table

Row = dict[str, Any]
SIDE = ("image_id", "shift", "severity", "params", "model", "pred", "conf", "correct")
ORDER = ("sample_id", "shift", "severity", "params")


def changes(table: Table, models: Sequence[str], shifts: Sequence[str] = (), limit: int | None = None) -> list[tuple[Row, Row]]:
    """Return pairs of rows of the table: of two models for the same image, or of one model clean and shifted."""
    rows = _judged(table, models)
    _refuse_unknown(rows, shifts)
    both = _between_models(rows, *models) if len(models) == 2 else _between_settings(rows)
    chosen = both.filter(pl.col("shift").is_in(list(shifts))) if shifts else both
    least = chosen.sort("severity", "image_id", nulls_last=True)
    first = least.unique(["gained", "source", "sample_id", "shift"], keep="first", maintain_order=True)
    fair = fair_order(first.to_dicts(), lambda row: [row[name] for name in ORDER])
    gained, lost = ([row for row in fair if row["gained"] is direction] for direction in (True, False))
    turns = [row for pair in itertools.zip_longest(_once(gained), _once(lost)) for row in pair if row is not None]
    return [_pair(row) for row in _once(turns)[:limit]]


def _once(rows: Sequence[Row]) -> list[Row]:
    """Return the first row of each picture, in order."""
    first: dict[tuple[str, str], Row] = {}
    for row in rows:
        first.setdefault((row["source"], row["sample_id"]), row)
    return list(first.values())


def _judged(table: Table, models: Sequence[str]) -> pl.DataFrame:
    told = pl.col("correct").is_not_null() & pl.col("error").is_null() & ~pl.col("probe").fill_null(False)
    rows = table.lazy().filter((pl.col("output") == "label") & told & pl.col("model").is_in(list(models)))
    return rows.select("source", "sample_id", "label", *SIDE).collect(engine="streaming")


def _refuse_unknown(rows: pl.DataFrame, shifts: Sequence[str]) -> None:
    known = rows["shift"].unique().sort().to_list()
    for name in shifts:
        if name not in known:
            raise UnknownName("shift of this run", name, known, f"It has {', '.join(known) or 'none'}.")


def _between_models(rows: pl.DataFrame, one: str, other: str) -> pl.DataFrame:
    """Pair two models by image; ``gained`` means that the second is right."""
    first, second = (rows.filter(pl.col("model") == name) for name in (one, other))
    paired = first.join(second.select(SIDE), on="image_id", suffix="_after").with_columns(image_id_after="image_id")
    return paired.filter(pl.col("correct") != pl.col("correct_after")).with_columns(gained=pl.col("correct_after"))


def _between_settings(rows: pl.DataFrame) -> pl.DataFrame:
    """Pair every shifted image of a model with its clean one; ``gained`` means that the shifted one is right."""
    clean, moved = (rows.filter(pl.col("shift") == CLEAN), rows.filter(pl.col("shift") != CLEAN))
    after = moved.select("source", "sample_id", *(pl.col(name).alias(f"{name}_after") for name in SIDE))
    paired = clean.join(after, on=["source", "sample_id"])
    changed = paired.filter(pl.col("correct") != pl.col("correct_after")).with_columns(gained=pl.col("correct_after"))
    before = {name: pl.col(name).alias(f"{name}_before") for name in SIDE}
    return changed.with_columns(**{f"{name}_before": column for name, column in before.items()}).with_columns(
        shift="shift_after", severity="severity_after", params="params_after"
    )


def _pair(row: Row) -> tuple[Row, Row]:
    shared = {name: row[name] for name in ("sample_id", "label")}
    before = {name: row.get(f"{name}_before", row[name]) for name in SIDE}
    return {**shared, **before}, {**shared, **{name: row[f"{name}_after"] for name in SIDE}}
