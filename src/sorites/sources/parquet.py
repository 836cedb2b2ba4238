"""Read images from parquet files in the layout of the Hugging Face Hub: one row per image, with its
bytes and a label.
"""

from __future__ import annotations

import functools
import json
import math
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites.core import FileRef, ImageU8, Sample, add_source
from sorites.core.errors import BadImage, SoritesError, as_utf8
from sorites.core.labels import Labels
from sorites.core.packed import (
    SAMPLES_PER_BLOCK,
    Block,
    Column,
    ConstantColumn,
    IntegerColumn,
    PackedSamples,
    TextColumn,
    column,
    generated_column,
)
from sorites.core.specs import split_options
from sorites.io.decode import decode
from sorites.io.files import local_copies
from sorites.io.paths import is_file, reason
from sorites.io.stores import StorePath, to_path
from sorites.sources.columns import named
from sorites.sources.shards import SHARDED, Shard, find

SUFFIX = ".parquet"
# Default columns of images and labels: the first one that exists is used.
IMAGES = ("image", "img", "jpg", "png", "picture")
LABELS = ("label", "labels", "cls", "class", "fine_label")
UNLABELLED = (None, -1)
# The number of rows read at a time: neighbouring images are often requested together.
ROWS_PER_READ = 16


@add_source
def parquet(path: str | None, labels: Labels) -> Sequence[Sample]:
    """Read images from parquet files, as on the Hugging Face Hub: the bytes of an image and a label per row.

    ``path`` is a file, a folder of files, or a pattern (``data/train-*.parquet``), with the options
    ``?image=COLUMN&label=COLUMN``. An image is bytes, or a struct with a field ``bytes``; if the first row of
    a file has only a ``path``, all its images are files, relative to its folder, the one above or the current
    one. A label is a class name, or an index into the class names of the file if it lists any, otherwise into
    the labels of the suite. The id of a sample is the file name and the row number.
    """
    place, options = split_options("parquet", path, {"image": (), "label": ()})
    return PackedSamples([block for file in find(place, SUFFIX) for block in _blocks(file, options, labels)])


def _shards(path: str | None, labels: Labels) -> list[Shard]:
    place, options = split_options("parquet", path, {"image": (), "label": ()})

    def read(file: Path) -> Iterator[Sample]:
        return iter(PackedSamples(list(_blocks(file, options, labels))))

    return [Shard(as_utf8(file.name), functools.partial(read, file)) for file in find(place, SUFFIX)]


SHARDED["parquet"] = _shards


def _blocks(file: Path, options: dict[str, str], labels: Labels) -> Iterator[Block]:
    """Yield the samples of a file as columnar blocks, without creating millions of Sample objects."""
    try:
        local_file = local_copies([file])[0]
        scanned = pl.scan_parquet(local_file, glob=False)
        schema = scanned.collect_schema()
        image, label = (
            named(file, schema, options.get("image"), IMAGES),
            named(file, schema, options.get("label"), LABELS),
        )
        if image is None:
            raise SoritesError(
                f"{file}: expected an image column ({', '.join(IMAGES)}), got {', '.join(schema)}"
            )
        _check_image_column(file, image, schema[image])
        paths = _paths(scanned, image, schema[image])
        labels_column = scanned.select(pl.len() if label is None else pl.col(label)).collect()
    except SoritesError:
        raise
    # Polars raises many kinds of errors for damaged files.
    except (Exception, pl.exceptions.PanicException) as error:
        raise SoritesError(f"cannot read {file}: {reason(error)}") from error
    count = int(labels_column.item()) if label is None else labels_column.height
    name, names = as_utf8(file.name), _names(local_file, label)
    label_of: dict[Any, int | None] = {}
    ref = FileRef(file)
    for start in range(0, count, SAMPLES_PER_BLOCK):
        rows = range(start, min(start + SAMPLES_PER_BLOCK, count))
        values = (
            [None] * len(rows) if label is None else labels_column[label].slice(start, len(rows)).to_list()
        )
        for value in dict.fromkeys(values):
            if value not in label_of:
                label_of[value] = None if value in UNLABELLED else find_label(file, value, names, labels)
        ids = TextColumn([f"{name}/{row:07d}" for row in rows])
        parts: list[Column] = [
            ConstantColumn(ref),
            ConstantColumn(image),
            IntegerColumn(np.arange(rows.start, rows.stop)),
            ids,
        ]
        yield Block(
            len(rows),
            id=ids,
            image=generated_column(load, parts)
            if paths is None
            else column([_located(file, path) for path in paths[rows.start : rows.stop]]),
            label=IntegerColumn([label_of[value] for value in values]),
        )


def _check_image_column(file: Path, image: str, kind: Any) -> None:
    fields = (
        {field.name: field.dtype for field in kind.fields} if isinstance(kind, pl.Struct) else {"bytes": kind}
    )
    if fields.get("bytes") != pl.Binary and fields.get("path") != pl.String:
        raise SoritesError(
            f"{file}, column {image}: expected bytes, or a struct with a field bytes or path, got {kind}"
        )


def _paths(scanned: pl.LazyFrame, image: str, kind: Any) -> list[str | None] | None:
    """Return the paths of the images if the first row has a path but no bytes, otherwise None."""
    if not isinstance(kind, pl.Struct) or "path" not in {field.name for field in kind.fields}:
        return None
    first = scanned.select(image).head(1).collect()[image].to_list()
    if not first or first[0] is None or first[0].get("bytes") is not None or not first[0]["path"]:
        return None
    return scanned.select(pl.col(image).struct.field("path")).collect().to_series().to_list()


def _located(file: Path, path: str | None) -> FileRef:
    """Return the file that a row names: in the folder of the table, in the one above, or in the current one,
    where ``datasets`` looks.
    """
    places = [folder / (path or "") for folder in (file.parent, file.parent.parent, Path())]
    return FileRef(str(next(filter(is_file, places), places[0])))


def _names(file: Path, label: str | None) -> list[str]:
    """Return the class names in the metadata of a Hugging Face file, or an empty list."""
    try:
        metadata = json.loads(pl.read_parquet_metadata(file).get("huggingface", "{}"))
        names = metadata["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError, OSError, pl.exceptions.PolarsError):
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


def find_label(file: Path, value: Any, names: Sequence[str], labels: Labels) -> int:
    """Find the label of a row by class name, by the first synonym of that name, or by index."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise SoritesError(f"{file}: expected labels as class names or indices, got {value!r}")
    spelled = names[value] if isinstance(value, int) and 0 <= value < len(names) else str(value)
    label = labels.get(spelled, spelled.partition(",")[0])
    if label is not None:
        return label
    try:
        return labels.find(spelled)
    except SoritesError as error:
        raise SoritesError(f"{file}: {error}") from None


def load(ref: FileRef, image: str, row: int, id_: str) -> ImageU8:
    """Decode the image of a row."""
    file = to_path(ref.path)
    try:
        cell = _rows(file, image, row // ROWS_PER_READ)[row % ROWS_PER_READ]
    except (OSError, IndexError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise BadImage(f"{id_}: {reason(error)}") from error
    data = cell.get("bytes") if isinstance(cell, dict) else cell
    if data is None:
        raise BadImage(f"{id_}: the row has no image bytes")
    return decode(bytes(data), id_)


_reading = threading.Lock()


def _rows(file: Path, image: str, block: int) -> list[Any]:
    modified = 0 if isinstance(file, StorePath) else file.stat().st_mtime_ns
    with _reading:
        return _block(file, image, block, modified)


@functools.lru_cache(maxsize=math.ceil(64 / ROWS_PER_READ))
def _block(file: Path, image: str, block: int, modified: int) -> list[Any]:
    rows = pl.scan_parquet(local_copies([file])[0], glob=False).select(image)
    return rows.slice(block * ROWS_PER_READ, ROWS_PER_READ).collect()[image].to_list()
