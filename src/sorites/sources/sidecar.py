"""The sidecar of a built dataset: a file that says which image is which sample, under which
shift, at which setting.

Where boxes are known it holds them too. It holds labels as class ids and not as positions, so that
the folder can be read with the classes in another order.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core import CLEAN, Attr, Box, ImageU8, Sample, Setting
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import Labels
from sorites.core.table import SCHEMA as TABLE
from sorites.io.files import at_hand
from sorites.io.paths import is_inside, leads_inside
from sorites.io.readers import json_object
from sorites.io.stores import StorePath, place
from sorites.io.tables import parquet
from sorites.sources.decode import decode
from sorites.sources.detection.boxes import Tally, broken, ground_truth_box

NAME = "sorites.parquet"

_Kind = pl.DataType | type[pl.DataType]
_COLUMNS: dict[str, _Kind] = {
    "path": pl.String,  # posix, relative to the folder
    "sample_id": pl.String,
    "image_id": pl.String,
    "label": pl.String,
    "accept": pl.List(pl.String),
    "framed": pl.Boolean,
}
_SHARED = ("split", "attrs", "family", "shift", "severity", "level", "params", "seed")
SCHEMA = pl.Schema(_COLUMNS | {name: TABLE[name] for name in _SHARED})
# The column of ground-truth boxes, with class ids; it is there where boxes are known, and null or [] as the
# truth of a sample is.
BOXES = "boxes"

# The column that marks images of a dial of their sample's own, whose family stays theirs; only
# where there are such.
OWN = "own_dial"

_CORNERS = ("x0", "y0", "x1", "y1")
_CELL: dict[str, _Kind] = {
    **dict.fromkeys(_CORNERS, pl.Float64),
    "label": pl.String,
    "area": pl.Float64,
    "crowd": pl.Boolean,
}
_BOXES = pl.List(pl.Struct(_CELL))
# Columns that only some sidecars have.
_FURTHER: dict[str, _Kind] = {BOXES: _BOXES, OWN: pl.Boolean}
_NEEDED = ("path", "sample_id", "image_id")


def frame(records: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    """Turn records into the rows of a sidecar, with values as ``SCHEMA`` holds them; absent columns
    are null.
    """
    unknown = sorted({key for record in records for key in record} - {*SCHEMA, BOXES, OWN})
    if unknown:
        raise SoritesError(
            f"a sidecar has the columns {', '.join(SCHEMA)} and {BOXES}; got {', '.join(unknown)}"
        )
    known = [name for name in _FURTHER if any(record.get(name) is not None for record in records)]
    schema = pl.Schema({**SCHEMA, **{name: _FURTHER[name] for name in known}})
    rows = pl.DataFrame({name: [record.get(name) for record in records] for name in schema}, schema=schema)
    _check(rows, NAME)
    return rows


def read(folder: str | Path, labels: Labels) -> list[Sample]:
    """Return the samples of a built dataset, on a disk or on a store, in the order of its sidecar."""
    root = place(folder)
    path = root / NAME
    found = parquet(at_hand([path])[0], 'a dataset; build it again with "sorites build"')
    rows = _whole(found, path)
    _check(rows, str(path), _NEEDED if "image_id" in found.columns else _NEEDED[:2])
    tally = Tally(path)
    samples = [
        _with_boxes(_sample(root, row, labels), row, labels, tally) for row in rows.iter_rows(named=True)
    ]
    tally.warn()
    return samples


def _whole(found: pl.DataFrame, path: object) -> pl.DataFrame:
    """Return a sidecar, which may be written by hand, with all columns: absent ones null, and a
    sample called by its path.
    """
    kinds = found.schema
    wanted: dict[str, _Kind] = {**SCHEMA, **({OWN: pl.Boolean} if OWN in kinds else {})}
    there = {name: kind for name, kind in wanted.items() if name in kinds}
    wrong = [
        f"{name} is {kinds[name]}, not {kind}" for name, kind in there.items() if not _fits(kinds[name], kind)
    ]
    wrong += [] if "path" in kinds else [f"path is missing: wanted {pl.String}"]
    wrong += (
        [f"{BOXES} is {kinds[BOXES]}, not {_BOXES}"]
        if BOXES in kinds and not _fits_boxes(kinds[BOXES])
        else []
    )
    if wrong:
        raise SoritesError(f"{path}: column {'; column '.join(wrong)}")
    absent = [
        pl.lit(None, kind).alias(name)
        for name, kind in wanted.items()
        if name not in kinds and name != "sample_id"
    ]
    named = [] if "sample_id" in kinds else [pl.col("path").alias("sample_id")]
    try:
        return found.with_columns(*absent, *named, *(pl.col(name).cast(kind) for name, kind in there.items()))
    except pl.exceptions.InvalidOperationError as error:
        raise SoritesError(f"{path}: {str(error).splitlines()[0]}") from None


def _fits(kind: _Kind, wanted: _Kind) -> bool:
    """Return whether a column can be read as another kind: it is the same, empty, or numbers where
    numbers lose nothing.
    """
    numbers = kind.is_numeric() and (wanted.is_float() or (wanted.is_integer() and kind.is_integer()))
    return kind in (wanted, pl.Null) or numbers


def _fits_boxes(kind: pl.DataType) -> bool:
    """Return whether a column holds boxes; area and crowd may be absent."""
    cell = kind.inner if isinstance(kind, pl.List) else None
    if not isinstance(cell, pl.Struct):
        return kind == pl.Null or cell == pl.Null
    held = pl.Schema(cell.to_schema())
    return {*_CORNERS, "label"} <= held.keys() and all(
        _fits(held[name], kind) for name, kind in _CELL.items() if name in held
    )


def boxes(ground_truth: Sequence[Box], ids: Sequence[str]) -> list[dict[str, object]]:
    """Return ground-truth boxes as the column ``BOXES`` holds them; ``ids`` are the class ids of the labels."""
    return [
        {
            **dict(zip(_CORNERS, box.xyxy, strict=True)),
            "label": ids[box.label],
            "area": box.area,
            "crowd": box.crowd,
        }
        for box in ground_truth
    ]


def _with_boxes(sample: Sample, row: dict[str, Any], labels: Labels, tally: Tally) -> Sample:
    cells, where = row.get(BOXES), f"{tally.file}, {row['path']}"
    if cells is None:
        return sample
    try:
        found = [
            ground_truth_box(
                [cell[key] for key in _CORNERS],
                label,
                None,
                row["path"],
                tally,
                cell.get("area"),
                bool(cell.get("crowd")),
            )
            for cell in cells
            for label in [_find(cell["label"] or "", labels, where)]
        ]
    except BadImage as error:
        return replace(sample, load=broken(sample.id, str(error)).load)
    return replace(sample, ground_truth=tuple(box for box in found if box is not None))


def _check(rows: pl.DataFrame, called: str, needed: Sequence[str] = _NEEDED) -> None:
    empty = [
        name for name in needed if rows[name].null_count() or (name != "path" and (rows[name] == "").any())
    ]
    if empty:
        raise SoritesError(
            f"{called}: wanted a value in every row of {', '.join(needed)}; {', '.join(empty)} has gaps"
        )
    key = "image_id" if "image_id" in needed else "path"
    if rows[key].is_duplicated().any():
        raise SoritesError(f"{called}: wanted each {key} once; one stands there twice")
    odd = ~rows["severity"].is_finite().fill_null(True)
    if odd.any():
        row = rows.row(odd.arg_max() or 0, named=True)
        raise SoritesError(
            f"{called}, {row['path']}: wanted a severity that is a number, got {row['severity']}"
        )
    outside = next((text for text in rows["path"] if not leads_inside(text)), None)
    if outside is not None:
        raise SoritesError(f"{called}: wanted paths inside the folder, got {outside!r}")


def _sample(root: Path, row: dict[str, Any], labels: Labels) -> Sample:
    where = f"{root / NAME}, {row['path']}"
    return Sample(
        id=row["sample_id"],
        load=functools.partial(decode, root / row["path"])
        if isinstance(root, StorePath)  # there are no links on a store
        else functools.partial(load, root, row["path"]),
        label=None if row["label"] is None else _find(row["label"], labels, where),
        accept=frozenset(_find(name, labels, where) for name in row["accept"] or ()),
        attrs=tuple(Attr(**attr) for attr in row["attrs"] or ()),
        split=row["split"] or "",
        shift=row["shift"] or CLEAN,
        setting=Setting(row["severity"], _params(row["params"], where), row["level"]),
        framed=bool(row["framed"]),
        image_id=row["image_id"],
        family=(row["family"] or "") if row.get(OWN) else "",
    )


def _find(name: str, labels: Labels, where: str) -> int:
    try:
        return labels.find(name)
    except SoritesError as error:
        raise SoritesError(f"{where}: {error} Read it with the labels it was built with.") from None


def _params(text: str | None, where: str) -> dict[str, Any]:
    try:
        return json_object(text or "{}")
    except ValueError as error:
        raise SoritesError(f"{where}: wanted params as a JSON object: {error}") from None


def load(root: Path, relative: str) -> ImageU8:
    """Decode an image of the folder; a link that leads out of the folder is not followed."""
    path = root / relative
    if not is_inside(path, root):
        raise BadImage(f"{path} is a link that leads out of the dataset folder, and is not followed")
    return decode(path)
