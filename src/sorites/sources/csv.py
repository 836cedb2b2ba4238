"""Read images that a CSV file lists: one row per image, with its path and a label."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from sorites.core import Attr, FileRef, Sample, add_source
from sorites.core.errors import SoritesError, as_utf8
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.core.packed import packed
from sorites.core.specs import split_options
from sorites.io import tables
from sorites.io.paths import is_file, path_of
from sorites.sources.columns import named, note_no_labels

# Default columns of paths and labels: the first one that exists is used.
IMAGES = ("image", "path", "file", "filename", "file_name", "filepath", "image_path")
LABELS = ("label", "class", "category", "target", "class_name", "wnid")
SPLIT = "split"
# Cells that say that an image has no label.
UNLABELLED = ("", "-1")
# Missing files that an error lists.
LISTED = 3


@add_source
def csv(path: str | None, labels: Labels) -> Sequence[Sample]:
    """Read the images that a CSV file lists: a path and a label per row.

    ``path`` is the file, with the options ``?image=COLUMN&label=COLUMN&split=NAME&attrs=COLUMN,COLUMN``.
    Fields are separated by commas, semicolons or tabs. Paths are absolute or relative to the folder of the
    file. A label is a class name, a class id or an index; an empty cell or -1 means that the image has none.
    ``split`` keeps the rows of that split. ``attrs`` are columns of attributes, by which metrics can group.
    The id of a sample is its path as written.
    """
    options = {"image": (), "label": (), "split": (), "attrs": ()}
    place, given = split_options("csv", path, options)
    file = path_of(place)
    frame = tables.listing(file, "a CSV file with a header and one row per image").fill_null("")
    return packed(_samples(_rows(file, frame, given), file, labels))


def _rows(file: Path, frame: pl.DataFrame, given: Mapping[str, str]) -> pl.DataFrame:
    """Return the chosen rows with the columns image, label and split, and those of attributes."""
    image, label = (
        named(file, frame.columns, given.get(kind), usual)
        for kind, usual in (("image", IMAGES), ("label", LABELS))
    )
    if image is None:
        raise SoritesError(
            f"{file}: expected a column of paths named {', '.join(IMAGES)}, got {', '.join(frame.columns)}."
            f" Name it: {option('source', f'csv:{file}?image=COLUMN')}"
        )
    attributes = [name for name in given.get("attrs", "").split(",") if name]
    for name in attributes:
        named(file, frame.columns, name, ())
    if label is None:
        note_no_labels(f"csv:{file}", frame.columns, (image, SPLIT, *attributes))
    if "split" in given:
        frame = _in_split(file, frame, given["split"])
    rows = frame.select(
        pl.col(image).str.strip_chars().alias("image"),
        (pl.lit("") if label is None else pl.col(label).str.strip_chars()).alias("label"),
        (pl.col(SPLIT) if SPLIT in frame.columns else pl.lit("")).alias("split"),
        pl.struct(attributes).alias("attrs") if attributes else pl.lit(None).alias("attrs"),
    )
    _check(file, rows)
    return rows


def _in_split(file: Path, frame: pl.DataFrame, split: str) -> pl.DataFrame:
    named(file, frame.columns, SPLIT, ())
    rows = frame.filter(pl.col(SPLIT) == split)
    if not rows.height:
        there = ", ".join(sorted(frame[SPLIT].unique().to_list()))
        raise SoritesError(f"{file} has no rows of the split {split}; it has {there}")
    return rows


def _check(file: Path, rows: pl.DataFrame) -> None:
    """Refuse lists that are empty, that list an image twice, or none of whose files exist."""
    if not rows.height:
        raise SoritesError(f"{file} lists no images")
    blank = rows.with_row_index("row", offset=2).filter(pl.col("image") == "")
    if blank.height:
        raise SoritesError(f"{file}, row {blank['row'][0]}: expected the path of an image, got an empty cell")
    twice = rows.filter(pl.col("image").is_duplicated())
    if twice.height:
        raise SoritesError(
            f"{file} lists {twice['image'].n_unique()} images more than once, such as {twice['image'][0]};"
            " a sample has one row"
        )
    first = [_located(file, name) for name in rows["image"].head(LISTED)]
    if not any(map(is_file, first)):
        raise SoritesError(
            f"{file}: none of its first images exists: {', '.join(map(str, first))}."
            " Paths are relative to the folder of the CSV file."
        )


def _located(file: Path, name: str) -> Path:
    return file.parent / name


def _samples(rows: pl.DataFrame, file: Path, labels: Labels) -> Iterator[Sample]:
    """Yield samples lazily: there may be millions of rows."""
    label_of: dict[str, int | None] = {}
    for image, label, split, attributes in rows.iter_rows():
        if label not in label_of:
            label_of[label] = None if label in UNLABELLED else _label(file, label, labels)
        attrs = tuple(Attr(key, value) for key, value in (attributes or {}).items() if value)
        yield Sample(
            as_utf8(image.replace(os.sep, "/")),
            FileRef(str(_located(file, image))),
            label_of[label],
            attrs=attrs,
            split=split,
        )


def _label(file: Path, name: str, labels: Labels) -> int:
    try:
        return labels.find(name)
    except SoritesError as error:
        raise SoritesError(
            f"{file}: {error} For custom classes, list them in a text file, one per line, and pass"
            f" {option('labels', 'FILE')}."
        ) from None
