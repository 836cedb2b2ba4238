"""Which predictions flipped: between two models, or for one model between clean and shifted images.

For detectors, an object takes the place of an image: it is found or not.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import polars as pl

from sorites import metrics
from sorites.core import CLEAN
from sorites.core.errors import UnknownName
from sorites.core.rng import hashed_order
from sorites.core.table import Table
from sorites.metrics.detection.failure import OBJECT_SEPARATOR

Row = dict[str, Any]
SIDE_COLUMNS = ("image_id", "shift", "severity", "params", "model", "pred", "conf", "correct")
ORDER_COLUMNS = ("sample_id", "shift", "severity", "params")


def changes(
    table: Table, models: Sequence[str], shifts: Sequence[str] = (), limit: int | None = None
) -> list[tuple[Row, Row]]:
    """Return pairs of rows with different correctness: two models, or one model clean and shifted.

    Per sample the mildest change is kept; fixed and broken samples alternate in a fixed shuffled order.
    """
    rows = _rated_rows(table, models)
    _check_shifts(rows, shifts)
    pairs = _between_models(rows, *models) if len(models) == 2 else _between_settings(rows)
    chosen = pairs.filter(pl.col("shift").is_in(list(shifts))) if shifts else pairs
    by_severity = chosen.sort("severity", "image_id", nulls_last=True)
    mildest = by_severity.unique(
        ["gained", "source", "sample_id", "shift"], keep="first", maintain_order=True
    )
    shuffled = hashed_order(mildest.to_dicts(), lambda row: [row[name] for name in ORDER_COLUMNS])
    gained, lost = ([row for row in shuffled if row["gained"] is direction] for direction in (True, False))
    alternating = [
        row
        for pair in itertools.zip_longest(_first_per_sample(gained), _first_per_sample(lost))
        for row in pair
        if row is not None
    ]
    return [_pair(row) for row in _first_per_sample(alternating)[:limit]]


def _first_per_sample(rows: Sequence[Row]) -> list[Row]:
    """Return the first row of each sample, in order."""
    first: dict[tuple[str, str], Row] = {}
    for row in rows:
        first.setdefault((row["source"], row["sample_id"]), row)
    return list(first.values())


def _rated_rows(table: Table, models: Sequence[str]) -> pl.DataFrame:
    rated = pl.col("correct").is_not_null() & pl.col("error").is_null() & ~pl.col("probe").fill_null(False)
    rows = table.lazy().filter((pl.col("output") == "label") & rated & pl.col("model").is_in(list(models)))
    return rows.select("source", "sample_id", "label", *SIDE_COLUMNS).collect(engine="streaming")


def _check_shifts(rows: pl.DataFrame, shifts: Sequence[str]) -> None:
    available = rows["shift"].unique().sort().to_list()
    for name in shifts:
        if name not in available:
            raise UnknownName(
                "shift of this run", name, available, f"It has {', '.join(available) or 'none'}."
            )


def _between_models(rows: pl.DataFrame, first_model: str, second_model: str) -> pl.DataFrame:
    """Pair two models by image; ``gained`` means that the second is correct."""
    first, second = (rows.filter(pl.col("model") == name) for name in (first_model, second_model))
    paired = first.join(second.select(SIDE_COLUMNS), on="image_id", suffix="_after").with_columns(
        image_id_after="image_id"
    )
    return paired.filter(pl.col("correct") != pl.col("correct_after")).with_columns(
        gained=pl.col("correct_after")
    )


def _between_settings(rows: pl.DataFrame) -> pl.DataFrame:
    """Pair every shifted image of a model with its clean one.

    ``gained`` means that the shifted one is correct.
    """
    clean, shifted = (rows.filter(pl.col("shift") == CLEAN), rows.filter(pl.col("shift") != CLEAN))
    after = shifted.select(
        "source", "sample_id", *(pl.col(name).alias(f"{name}_after") for name in SIDE_COLUMNS)
    )
    paired = clean.join(after, on=["source", "sample_id"])
    changed = paired.filter(pl.col("correct") != pl.col("correct_after")).with_columns(
        gained=pl.col("correct_after")
    )
    before = {name: pl.col(name).alias(f"{name}_before") for name in SIDE_COLUMNS}
    return changed.with_columns(**{f"{name}_before": column for name, column in before.items()}).with_columns(
        shift="shift_after", severity="severity_after", params="params_after"
    )


def _pair(row: Row) -> tuple[Row, Row]:
    shared = {name: row[name] for name in ("sample_id", "label")}
    before = {name: row.get(f"{name}_before", row[name]) for name in SIDE_COLUMNS}
    return {**shared, **before}, {**shared, **{name: row[f"{name}_after"] for name in SIDE_COLUMNS}}


def object_changes(
    table: Table, models: Sequence[str], shifts: Sequence[str], limit: int | None, conf: float
) -> list[tuple[Row, Row]]:
    """Return pairs like ``changes``, for the objects that detectors find or miss.

    Args:
        table: The table.
        models: One or two detectors.
        shifts: Use only these shifts.
        limit: The maximum number of pairs.
        conf: The confidence from which a box finds an object.

    Returns:
        Rows with the object's ground-truth box as ``box``, its class as ``label`` and ``pred``, and the
        boxes of
            the detector as ``boxes``.
    """
    rows = table.lazy().filter((pl.col("output") == "boxes") & pl.col("model").is_in(list(models)))
    labelled = metrics.objects(rows, conf).with_columns(label="class", pred="class")
    pairs = changes(labelled, models, shifts, limit)
    images = {row["image_id"] for pair in pairs for row in pair}
    loaded = rows.filter(pl.col("image_id").is_in(list(images))).select(
        "image_id", "model", "ground_truth", "boxes"
    )
    by_key = {(row["image_id"], row["model"]): row for row in loaded.collect(engine="streaming").to_dicts()}
    return [(_object(before, by_key), _object(after, by_key)) for before, after in pairs]


def _object(row: Row, by_key: dict[tuple[str, str], Row]) -> Row:
    """Return the row of an object with its box, under the id of its sample."""
    sample, _, index = row["sample_id"].rpartition(OBJECT_SEPARATOR)
    answer = by_key[row["image_id"], row["model"]]
    box = answer["ground_truth"][int(index)]
    corners = tuple(float(box[name]) for name in ("x0", "y0", "x1", "y1"))
    return {**row, "sample_id": sample, "box": corners, "boxes": answer["boxes"]}
