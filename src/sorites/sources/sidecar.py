"""The sidecar of a built dataset: a table that maps each image to its sample, shift and setting.

It contains ground-truth boxes if there are any. Labels are stored as class ids, not indices, so that
the folder can be read with the classes in another order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core import CLEAN, Attr, Box, FileRef, Sample, Setting
from sorites.core.errors import BadImage, Damaged, SoritesError
from sorites.core.labels import Labels
from sorites.core.messages import command
from sorites.core.table import SCHEMA as TABLE
from sorites.io.files import local_copies
from sorites.io.listed import ANOTHER, listed_files, listed_problems, refuse
from sorites.io.paths import is_file, is_relative_inside
from sorites.io.readers import json_object
from sorites.io.stores import StorePath, to_path
from sorites.io.tables import parquet
from sorites.sources.detection.boxes import Tally, broken, ground_truth_box

NAME = "sorites.parquet"
# The record of a dataset that Sorites wrote, which lists the digests of its other files. Handwritten datasets
# have none.
RECORD = "sorites.json"
# What to do about a damaged record, and about any other damaged file.
RESTORE = ANOTHER
REBUILD = "Repeat the command that wrote the dataset."

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
# The column of ground-truth boxes, with class ids; absent if no image has boxes.
BOXES = "boxes"

# The column of the digests of the images; absent from handwritten sidecars.
DIGEST = "digest"

# The column that marks images of a sample's own dial, which keep their family; absent if there are none.
OWN = "own_dial"

_CORNERS = ("x0", "y0", "x1", "y1")
_CELL: dict[str, _Kind] = {
    **dict.fromkeys(_CORNERS, pl.Float64),
    "label": pl.String,
    "area": pl.Float64,
    "crowd": pl.Boolean,
}
_BOXES = pl.List(pl.Struct(_CELL))
# Optional columns.
_FURTHER: dict[str, _Kind] = {BOXES: _BOXES, OWN: pl.Boolean, DIGEST: pl.String}
_NEEDED = ("path", "sample_id", "image_id")


def frame(records: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    """Convert records to sidecar rows according to ``SCHEMA``; absent values become null."""
    unknown = sorted({key for record in records for key in record} - {*SCHEMA, *_FURTHER})
    if unknown:
        raise SoritesError(
            f"unknown sidecar columns {', '.join(unknown)}; expected {', '.join(SCHEMA)} or {BOXES}"
        )
    optional = [name for name in _FURTHER if any(record.get(name) is not None for record in records)]
    schema = pl.Schema({**SCHEMA, **{name: _FURTHER[name] for name in optional}})
    rows = pl.DataFrame({name: [record.get(name) for record in records] for name in schema}, schema=schema)
    _check(rows, NAME)
    return rows


def read(folder: str | Path, labels: Labels) -> list[Sample]:
    """Return the samples of a built dataset (local or on a store), in the order of its sidecar."""
    root = to_path(folder)
    path = root / NAME
    verify(root, NAME)
    table = parquet(local_copies([path])[0], f"a dataset; build it again with {command('build')}")
    rows = _complete(table, path)
    _check(rows, str(path), _NEEDED if "image_id" in table.columns else _NEEDED[:2])
    tally = Tally(path)
    samples = [
        _with_boxes(_sample(root, row, labels), row, labels, tally) for row in rows.iter_rows(named=True)
    ]
    tally.warn()
    return samples


def verify(root: Path, name: str) -> None:
    """Compare a file of a dataset with the digest in its record; a handwritten dataset has no record.

    Raises:
        SoritesError: The dataset is not finished.
        Damaged: The file or the record is damaged.
    """
    if not is_file(root / RECORD):
        return
    files = listed_files(root / RECORD, RESTORE)
    if NAME not in files:
        raise SoritesError(f"the dataset in {root} is not finished. {REBUILD}")
    if name not in files:
        raise Damaged(root / name, f"{RECORD} has no digest of it", REBUILD)
    refuse(listed_problems(root, {name: files[name]}), REBUILD)


def _complete(table: pl.DataFrame, path: object) -> pl.DataFrame:
    """Add absent columns to a sidecar, which may be handwritten: nulls, and the path as the sample id."""
    schema = table.schema
    optional = {name: _FURTHER[name] for name in (OWN, DIGEST) if name in schema}
    expected: dict[str, _Kind] = {**SCHEMA, **optional}
    present = {name: kind for name, kind in expected.items() if name in schema}
    wrong = [
        f"{name} is {schema[name]}, not {kind}"
        for name, kind in present.items()
        if not _fits(schema[name], kind)
    ]
    wrong += [] if "path" in schema else [f"path is missing: expected {pl.String}"]
    wrong += (
        [f"{BOXES} is {schema[BOXES]}, not {_BOXES}"]
        if BOXES in schema and not _fits_boxes(schema[BOXES])
        else []
    )
    if wrong:
        raise SoritesError(f"{path}: column {'; column '.join(wrong)}")
    absent = [
        pl.lit(None, kind).alias(name)
        for name, kind in expected.items()
        if name not in schema and name != "sample_id"
    ]
    named = [] if "sample_id" in schema else [pl.col("path").alias("sample_id")]
    try:
        return table.with_columns(
            *absent, *named, *(pl.col(name).cast(kind) for name, kind in present.items())
        )
    except pl.exceptions.InvalidOperationError as error:
        raise SoritesError(f"{path}: {str(error).splitlines()[0]}") from None


def _fits(kind: _Kind, expected: _Kind) -> bool:
    """Return whether a column can be cast without loss: same type, all null, or compatible numbers."""
    numbers = kind.is_numeric() and (expected.is_float() or (expected.is_integer() and kind.is_integer()))
    return kind in (expected, pl.Null) or numbers


def _fits_boxes(kind: pl.DataType) -> bool:
    """Return whether a column contains boxes; area and crowd are optional."""
    cell = kind.inner if isinstance(kind, pl.List) else None
    if not isinstance(cell, pl.Struct):
        return kind == pl.Null or cell == pl.Null
    fields = pl.Schema(cell.to_schema())
    return {*_CORNERS, "label"} <= fields.keys() and all(
        _fits(fields[name], kind) for name, kind in _CELL.items() if name in fields
    )


def boxes(ground_truth: Sequence[Box], ids: Sequence[str]) -> list[dict[str, object]]:
    """Return ground-truth boxes as cells of the column ``BOXES``; ``ids`` are the class ids of the labels."""
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
        converted = [
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
        return replace(sample, image=broken(sample.id, f"{error}").image)
    return replace(sample, ground_truth=tuple(box for box in converted if box is not None))


def _check(rows: pl.DataFrame, name: str, needed: Sequence[str] = _NEEDED) -> None:
    empty = [
        column
        for column in needed
        if rows[column].null_count() or (column != "path" and (rows[column] == "").any())
    ]
    if empty:
        raise SoritesError(
            f"{name}: expected a value in every row of {', '.join(needed)}; {', '.join(empty)} has gaps"
        )
    key = "image_id" if "image_id" in needed else "path"
    if rows[key].is_duplicated().any():
        raise SoritesError(f"{name}: expected each {key} once, but one occurs twice")
    odd = ~rows["severity"].is_finite().fill_null(True)
    if odd.any():
        row = rows.row(odd.arg_max() or 0, named=True)
        raise SoritesError(f"{name}, {row['path']}: expected a finite severity, got {row['severity']}")
    outside = next((text for text in rows["path"] if not is_relative_inside(text)), None)
    if outside is not None:
        raise SoritesError(f"{name}: expected paths inside the folder, got {outside!r}")


def _sample(root: Path, row: dict[str, Any], labels: Labels) -> Sample:
    where = f"{root / NAME}, {row['path']}"
    return Sample(
        id=row["sample_id"],
        image=file_in(root, row["path"], row.get(DIGEST) or ""),
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
        raise SoritesError(f"{where}: {error} Use the labels that the dataset was built with.") from None


def _params(text: str | None, where: str) -> dict[str, Any]:
    try:
        return json_object(text or "{}")
    except ValueError as error:
        raise SoritesError(f"{where}: expected params as a JSON object: {error}") from None


def file_in(root: Path, relative: str, digest: str = "") -> FileRef:
    """Return an image of a dataset folder; links that leave the folder are refused when it is decoded."""
    return FileRef(root / relative, within=None if isinstance(root, StorePath) else root, digest=digest)
