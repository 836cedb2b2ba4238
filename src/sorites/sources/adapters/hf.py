"""Read folders of Hugging Face ``datasets`` without that library.

    DIR/dataset_dict.json, DIR/test/state.json, DIR/test/data-00000-of-00001.arrow    DatasetDict.save_to_disk
    DIR/state.json, DIR/data-00000-of-00001.arrow                                     Dataset.save_to_disk
    DIR/data/test-00000-of-00001.parquet                                              a dataset of the hub
    DIR/test/metadata.jsonl (.csv, .parquet), DIR/test/0001.png                       imagefolder

Class names come from the features of the dataset. Images in Arrow files are read in place.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Attr, FileRef, Sample, add_source
from sorites.core.errors import SoritesError, as_utf8
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.core.packed import packed
from sorites.core.specs import split_options
from sorites.io import tables
from sorites.io.paths import entries, is_dir, is_file, is_relative_inside, path_of, subfolders
from sorites.io.readers import json_file, json_object, lines
from sorites.sources import parquet
from sorites.sources.adapters import arrow
from sorites.sources.columns import named, note_no_labels

OPTIONS: Mapping[str, Sequence[str]] = {"split": (), "image": (), "label": (), "attrs": ()}
# What the names of files and folders of a split begin with.
SPLITS = ("train", "training", "validation", "valid", "val", "dev", "test", "testing", "eval", "evaluation")
METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
FILE_NAME = "file_name"
LABELS = ("label", "labels", "class", "category", "target", "class_name", "fine_label")

Columns = Mapping[str, str]


@dataclass(frozen=True)
class Part:
    """A part of a dataset that can be read on its own: its split, and the function that reads it."""

    split: str
    read: Callable[[Columns, Labels], Iterable[Sample]]


@add_source
def hf(path: str | None, labels: Labels) -> Sequence[Sample]:
    """Read a folder of Hugging Face datasets: save_to_disk, parquet files, or an imagefolder with metadata.

    ``path`` is the folder, with the options ``?split=NAME&image=COLUMN&label=COLUMN&attrs=COLUMN,COLUMN``. A
    dataset with several splits needs one. A label is a class name, or an index into the class names of the
    dataset if it has any, otherwise into the labels of the suite. ``attrs`` are columns of attributes, by
    which metrics can group. The id of a sample is the name of its file, and its row in files of many images.
    """
    place, given = split_options("hf", path, OPTIONS)
    root = path_of(place)
    if not is_dir(root):
        raise SoritesError(f"the hf source reads folders, but {root} is not one. Pass {_spec('DIR')}")
    parts = _chosen(root, _parts(root), given.get("split"))
    return packed(sample for part in parts for sample in part.read(given, labels))


def _spec(argument: str) -> str:
    return option("source", f"hf:{argument}")


def _parts(root: Path) -> list[Part]:
    """Return the parts of a dataset in the first format that is found."""
    if is_file(root / "dataset_dict.json"):
        splits = json_file(root / "dataset_dict.json", "the splits of a dataset").get("splits", ())
        return [_saved(root / split, split) for split in map(str, splits) if is_relative_inside(split)]
    if is_file(root / "state.json"):
        return [_saved(root, "")]
    found = [*_parquet_parts(root), *_image_folders(root)]
    if not found:
        raise SoritesError(
            f"{root} has no state.json, no dataset_dict.json, no parquet files and no {METADATA[0]}. For"
            f" class folders, pass {option('source', f'folder:{root}')}"
        )
    return found


def _chosen(root: Path, parts: list[Part], split: str | None) -> list[Part]:
    splits = sorted({part.split for part in parts if part.split})
    if split is not None:
        parts = [part for part in parts if part.split == split]
        if not parts:
            raise SoritesError(f"{root} has no split {split}; it has {', '.join(splits) or 'none'}")
    elif len(splits) > 1:
        raise SoritesError(
            f"{root} has the splits {', '.join(splits)}. Pass one: {_spec(f'{root}?split={splits[0]}')}"
        )
    return parts


def _split_of(name: str) -> str:
    """Return the split that the name of a file or folder begins with, or an empty text."""
    first = re.split(r"[-._ ]", name, maxsplit=1)[0]
    return first if first.lower() in SPLITS else ""


# Folders of ``save_to_disk``.


def _saved(folder: Path, split: str) -> Part:
    return Part(split, functools.partial(_saved_samples, folder, split))


def _saved_samples(folder: Path, split: str, given: Columns, labels: Labels) -> Iterator[Sample]:
    state = json_file(folder / "state.json", "the state of a dataset")
    files = [str(entry.get("filename", "")) for entry in state.get("_data_files", ())]
    outside = next((name for name in files if not is_relative_inside(name)), None)
    if not files or outside is not None:
        raise SoritesError(
            f"{folder / 'state.json'}: expected data files in its folder, got {outside or 'none'}"
        )
    features = json_file(folder / "dataset_info.json", "the features of a dataset").get("features") or {}
    for name in files:
        yield from _stream_samples(folder / name, split, features, given, labels)


def _stream_samples(
    file: Path, split: str, features: Mapping[str, Any], given: Columns, labels: Labels
) -> Iterator[Sample]:
    stream = arrow.Stream(file)
    image = named(file, stream.columns, given.get("image"), (*_images(features), *parquet.IMAGES))
    label = named(file, stream.columns, given.get("label"), (*_classes(features), *LABELS))
    if image is None:
        raise SoritesError(f"{file}: expected a column of images, got {', '.join(stream.columns)}")
    attributes = _attributes(file, stream, given)
    if label is None:
        note_no_labels(f"hf:{file.parent}", stream.columns, (image, *(name for name, _ in attributes)))
    references = _references(file, stream, stream.columns[image])
    names = (features.get(label) or {}).get("names") or () if label else ()
    values = [None] * len(stream) if label is None else stream.values(stream.columns[label])
    find = _finder(file, names, labels)
    for row, ((path, at, size), value) in enumerate(zip(references, values, strict=True)):
        id_ = f"{as_utf8(file.name)}/{row:07d}"
        more = tuple(Attr(key, str(column[row])) for key, column in attributes if column[row] is not None)
        yield Sample(
            id_, FileRef(path, at, size, "" if size is None else id_), find(value), attrs=more, split=split
        )


def _images(features: Mapping[str, Any]) -> list[str]:
    return [
        name for name, kind in features.items() if isinstance(kind, dict) and kind.get("_type") == "Image"
    ]


def _classes(features: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name, kind in features.items()
        if isinstance(kind, dict) and kind.get("_type") == "ClassLabel"
    ]


def _attributes(file: Path, stream: arrow.Stream, given: Columns) -> list[tuple[str, list[Any]]]:
    names = [name for name in given.get("attrs", "").split(",") if name]
    for name in names:
        named(file, stream.columns, name, ())
    return [(name, stream.values(stream.columns[name])) for name in names]


def _references(
    file: Path, stream: arrow.Stream, column: arrow.Column
) -> Iterator[tuple[str, int, int | None]]:
    """Yield the file, the position and the size of the image of each row; a file of its own has no size."""
    data = column.children.get("bytes") if column.kind == arrow.STRUCT else column
    if data is None or data.kind not in arrow.BYTES:
        raise SoritesError(f"{file}, column {column.name}: expected images as bytes, or bytes and path")
    spans: NDArray[np.int64] = stream.spans(data)
    paths: Sequence[str | None] = [None] * len(spans)
    if "path" in column.children and (spans[:, 1] < 0).any():
        paths = stream.values(column.children["path"])
    for (at, size), path in zip(spans.tolist(), paths, strict=True):
        yield (str(file.parent / path), 0, None) if size < 0 and path else (str(file), at, max(size, 0))


def _finder(file: Path, names: Sequence[str], labels: Labels) -> Callable[[Any], int | None]:
    found: dict[Any, int | None] = {}

    def find(value: Any) -> int | None:
        if value not in found:
            missing = value in (*parquet.UNLABELLED, "")
            found[value] = None if missing else parquet.find_label(file, value, names, labels)
        return found[value]

    return find


# Parquet files.


def _parquet_parts(root: Path) -> Iterator[Part]:
    for folder in (root, *subfolders(root)):
        for entry in entries(folder):
            if entry.name.endswith(parquet.SUFFIX) and entry.name not in METADATA:
                split = _split_of(entry.name) or ("" if folder == root else _split_of(folder.name))
                yield Part(split, functools.partial(_parquet_samples, entry.path))


def _parquet_samples(file: str, given: Columns, labels: Labels) -> Iterable[Sample]:
    if "attrs" in given:
        raise SoritesError(f"{file}: attrs are not read from parquet files; leave the option out")
    columns = "&".join(f"{key}={given[key]}" for key in ("image", "label") if key in given)
    return parquet.parquet(f"{file}?{columns}" if columns else file, labels)


# Folders of images with metadata.


def _image_folders(root: Path) -> Iterator[Part]:
    for folder in (root, *subfolders(root)):
        for name in METADATA:
            if is_file(folder / name):
                split = "" if folder == root else _split_of(folder.name)
                yield Part(split, functools.partial(_listed, root, folder / name))


def _listed(root: Path, file: Path, given: Columns, labels: Labels) -> Iterator[Sample]:
    rows = _metadata(file)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    image = named(file, columns, given.get("image"), (FILE_NAME, f"image_{FILE_NAME}"))
    label = named(file, columns, given.get("label"), LABELS)
    if image is None:
        raise SoritesError(f"{file}: expected a column {FILE_NAME}, got {', '.join(columns) or 'none'}")
    attrs = [name for name in given.get("attrs", "").split(",") if name]
    for name in attrs:
        named(file, columns, name, ())
    if label is None:
        note_no_labels(f"hf:{root}", columns, (image, *attrs))
    find, split = _finder(file, (), labels), "" if file.parent == root else _split_of(file.parent.name)
    for row in rows:
        listed = row.get(image)
        if not isinstance(listed, str) or not is_relative_inside(listed):
            raise SoritesError(f"{file}: expected the name of a file below its folder, got {listed!r}")
        path = file.parent / listed
        more = tuple(Attr(key, str(row[key])) for key in attrs if row.get(key) is not None)
        id_ = as_utf8(path.relative_to(root).as_posix().replace(os.sep, "/"))
        yield Sample(
            id_, FileRef(str(path)), find(row.get(label) if label else None), attrs=more, split=split
        )


def _metadata(file: Path) -> list[dict[str, Any]]:
    if file.suffix == ".csv":
        return tables.csv(file, "a CSV file with a header and one row per image").fill_null("").to_dicts()
    if file.suffix == parquet.SUFFIX:
        return tables.parquet(file, "a parquet file with one row per image").to_dicts()
    rows = []
    for number, line in enumerate(lines(file, "one JSON object per line"), 1):
        if line.strip():
            try:
                rows.append(json_object(line))
            except ValueError as error:
                raise SoritesError(f"{file}, line {number}: {error}") from None
    return rows
