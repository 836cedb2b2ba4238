"""Read images in parquet files, in the layout of the Hugging Face hub: bytes of an image and a
label in each row.
"""

from __future__ import annotations

import functools
import glob
import json
import math
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites.core import ImageU8, Sample, add_source
from sorites.core.errors import BadImage, SoritesError, as_utf8
from sorites.core.labels import Labels
from sorites.core.packed import TOGETHER as TOGETHER_IN_COLUMNS
from sorites.core.packed import Block, Column, Made, PackedSamples, Same, Texts, Wholes
from sorites.core.specs import split_options
from sorites.io.files import at_hand
from sorites.io.paths import entries, is_dir, is_file, path_of, reason
from sorites.io.stores import StorePath
from sorites.sources.decode import decode
from sorites.sources.shards import SHARDED, Shard

IMAGES = ("image", "img", "jpg", "png", "image")
# Columns that are taken where no option names one, the first that is there.
LABELS = ("label", "labels", "cls", "class", "fine_label")
UNLABELLED = (None, -1)
# Rows whose images are read at a time: neighbours in a file are often asked for together.
TOGETHER = 16


@add_source
def parquet(path: str | None, labels: Labels) -> Sequence[Sample]:
    """Read images in rows of parquet files: the image's bytes and a label, as on the Hugging Face hub.

    ``path`` is a file, a folder of files, or a pattern (``data/train-*.parquet``), with options
    ``?image=COLUMN&label=COLUMN``. An image is bytes, or a struct with ``bytes``. A label is a
    name, or a position in the names that the file lists itself, else in the suite's. A sample's id
    is the file's name and the row's number.
    """
    place, options = split_options("parquet", path, {"image": (), "label": ()})
    return PackedSamples([block for file in _files(place) for block in _blocks(file, options, labels)])


def _shards(path: str | None, labels: Labels) -> list[Shard]:
    place, options = split_options("parquet", path, {"image": (), "label": ()})

    def read(file: Path) -> Iterator[Sample]:
        return iter(PackedSamples(list(_blocks(file, options, labels))))

    return [Shard(as_utf8(file.name), functools.partial(read, file)) for file in _files(place)]


SHARDED["parquet"] = _shards


def _files(spec: str) -> list[Path]:
    path = path_of(spec)
    if isinstance(path, StorePath):
        found: Sequence[Path] = (
            sorted(path.parent.glob(path.name))
            if glob.has_magic(path.name)
            else sorted(path.glob("*.parquet"))
        )
        found = found or ([path] if path.is_file() else [])
    elif is_file(path):
        found = [path]
    elif is_dir(path):
        found = [Path(entry.path) for entry in entries(path) if entry.name.endswith(".parquet")]
    else:
        folder = next((above for above in path.parents if is_dir(above)), Path())
        names = glob.glob(str(path.relative_to(folder)), root_dir=folder, recursive=True)
        found = sorted(folder / name for name in names)
    if not found:
        raise SoritesError(
            f"there are no parquet files at {spec}: wanted a file, a folder of files, or a pattern like"
            " a-*.parquet"
        )
    twice = next((file.name for i, file in enumerate(found[1:]) if file.name == found[i].name), None)
    if twice:
        raise SoritesError(f"{spec} names two files called {twice}; give them different names")
    return list(found)


def _blocks(file: Path, options: dict[str, str], labels: Labels) -> Iterator[Block]:
    """Yield the samples of a file in columns, so that those of millions of rows need not be made."""
    try:
        here = at_hand([file])[0]
        scanned = pl.scan_parquet(here, glob=False)
        schema = scanned.collect_schema()
        image, label = (
            _column(file, schema, "image", IMAGES, options),
            _column(file, schema, "label", LABELS, options),
        )
        if image is None:
            raise SoritesError(
                f"{file}: wanted a column of images ({', '.join(IMAGES)}), got {', '.join(schema)}"
            )
        _refuse(file, image, schema[image])
        told = scanned.select(pl.len() if label is None else pl.col(label)).collect()
    except SoritesError:
        raise
    # a damaged file makes Polars raise nearly anything
    except (Exception, pl.exceptions.PanicException) as error:
        raise SoritesError(f"cannot read {file}: {reason(error)}") from error
    count = int(told.item()) if label is None else told.height
    name, names = as_utf8(file.name), _names(here, label)
    known: dict[Any, int | None] = {}
    for start in range(0, count, TOGETHER_IN_COLUMNS):
        rows = range(start, min(start + TOGETHER_IN_COLUMNS, count))
        values = [None] * len(rows) if label is None else told[label].slice(start, len(rows)).to_list()
        for value in dict.fromkeys(values):
            if value not in known:
                known[value] = None if value in UNLABELLED else _label(file, value, names, labels)
        ids = Texts([f"{name}/{row:07d}" for row in rows])
        parts: list[Column] = [
            Same(load),
            Same(file),
            Same(image),
            Wholes(np.arange(rows.start, rows.stop)),
            ids,
        ]
        yield Block(
            len(rows),
            id=ids,
            load=Made(functools.partial, parts),
            label=Wholes([known[value] for value in values]),
        )


def _column(
    file: Path, schema: pl.Schema, kind: str, usual: Sequence[str], options: dict[str, str]
) -> str | None:
    asked = options.get(kind)
    if asked is not None and asked not in schema:
        raise SoritesError(f"{file} has no column {asked}; it has {', '.join(schema)}")
    return asked or next((name for name in usual if name in schema), None)


def _refuse(file: Path, image: str, kind: Any) -> None:
    held = (
        {field.name: field.dtype for field in kind.fields} if isinstance(kind, pl.Struct) else {"bytes": kind}
    )
    if held.get("bytes") != pl.Binary:
        raise SoritesError(
            f"{file}, column {image}: wanted bytes of images, or a struct that has some, got {kind}"
        )


def _names(file: Path, label: str | None) -> list[str]:
    """Return the names of the classes that the file lists as the hub's files do; none where it lists none."""
    try:
        told = json.loads(pl.read_parquet_metadata(file).get("huggingface", "{}"))
        names = told["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError, OSError, pl.exceptions.PolarsError):
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


def _label(file: Path, value: Any, names: Sequence[str], labels: Labels) -> int:
    """Return the label of a row: by the file's own name of it, by the first of that name's
    synonyms, or by its position.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise SoritesError(f"{file}: wanted labels as names or positions, got {value!r}")
    spelled = names[value] if isinstance(value, int) and 0 <= value < len(names) else str(value)
    try:
        return labels.find(spelled)
    except SoritesError:
        try:
            return labels.find(spelled.partition(",")[0])
        except SoritesError as error:
            raise SoritesError(f"{file}: {error}") from None


def load(file: Path, image: str, row: int, id_: str) -> ImageU8:
    """Decode the image of a row."""
    try:
        held = _rows(file, image, row // TOGETHER)[row % TOGETHER]
    except (OSError, IndexError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise BadImage(f"{id_}: {reason(error)}") from error
    data = held.get("bytes") if isinstance(held, dict) else held
    if data is None:
        raise BadImage(f"{id_}: the row holds no bytes of an image")
    return decode(bytes(data), id_)


_reading = threading.Lock()


def _rows(file: Path, image: str, block: int) -> list[Any]:
    changed = 0 if isinstance(file, StorePath) else file.stat().st_mtime_ns
    with _reading:
        return _block(file, image, block, changed)


@functools.lru_cache(maxsize=math.ceil(64 / TOGETHER))
def _block(file: Path, image: str, block: int, changed: int) -> list[Any]:
    rows = pl.scan_parquet(at_hand([file])[0], glob=False).select(image).slice(block * TOGETHER, TOGETHER)
    return rows.collect()[image].to_list()
