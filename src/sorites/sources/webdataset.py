"""Read WebDataset tars: files that share a name up to its first dot are one sample."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path

from sorites.core import Picture, Sample, add_source
from sorites.errors import SoritesError, as_utf8
from sorites.labels import Labels
from sorites.reading.texts import json_value
from sorites.sources import _tars as tars
from sorites.sources._decode import decode
from sorites.sources._shards import SHARDED, Shard

PICTURES = ("jpg", "jpeg", "png", "webp")
LABELS = ("cls", "json", "txt")
JSON_KEYS = ("label", "cls", "class")
UNLABELLED = "-1"
"""The position that some tars give where there is no label."""

_LONGEST = 1 << 20


@add_source
def webdataset(path: str | None, labels: Labels) -> Iterator[Sample]:
    """Read pictures in uncompressed tars, with labels in .cls, .json or .txt beside them.

    ``path`` is a tar, a folder of tars, or a pattern (``a-{000..012}.tar``). The label is the text of ``.cls``, else
    "label", "cls" or "class" of ``.json``, else the text of ``.txt``: a position, an id or a name; a sample with none of
    them, or with -1, has no label. A sample's id is the tar's name and the sample's key. Tars are indexed once and never
    unpacked.
    """
    found = _shards(path, labels)
    any_picture = False
    for shard in found:
        for sample in shard.read():
            any_picture = True
            yield sample
    if not any_picture:
        raise SoritesError(f"there are no pictures ({', '.join(PICTURES)}) in {path}, {len(found)} tars")


def _shards(path: str | None, labels: Labels) -> list[Shard]:
    if path is None:
        raise SoritesError("the webdataset source needs a path. Type: --source webdataset:PATH")
    return [Shard(as_utf8(tar.name), functools.partial(_of_tar, tar, labels)) for tar in tars.find(path)]


SHARDED["webdataset"] = _shards


def _of_tar(tar: Path, labels: Labels) -> Iterator[Sample]:
    for key, files in _samples(tar):
        picture = next((files[kind] for kind in PICTURES if kind in files), None)
        if picture is not None:
            id_ = f"{as_utf8(tar.name)}/{key}"
            yield Sample(id_, functools.partial(load, picture, id_), _label(files, id_, labels))


def load(picture: tars.Member, id_: str) -> Picture:
    """Decode a picture of a tar; ``id_`` is what messages call it."""
    return decode(picture.read(), id_)


def _samples(tar: Path) -> Iterator[tuple[str, dict[str, tars.Member]]]:
    """Yield each key with its files by extension, in the order in which the keys first appear."""
    grouped: dict[str, dict[str, tars.Member]] = {}
    for member in tars.members(tar):
        folder, slash, name = member.name.removeprefix("./").rpartition("/")
        stem, _, extension = name.partition(".")
        if not stem or extension.lower() not in (*PICTURES, *LABELS):
            continue
        files = grouped.setdefault(as_utf8(folder + slash + stem), {})
        if extension.lower() in files:
            raise SoritesError(f"{tar}: wanted each file once; {member.name} is there twice")
        files[extension.lower()] = member
    yield from grouped.items()


def _label(files: dict[str, tars.Member], id_: str, labels: Labels) -> int | None:
    for kind in LABELS:
        name = _name(kind, files[kind], id_) if kind in files else None
        if name and name != UNLABELLED:
            try:
                return labels.find(name)
            except SoritesError as error:
                raise SoritesError(f"{id_}.{kind}: {error}") from None
    return None


def _name(kind: str, file: tars.Member, id_: str) -> str | None:
    """Return what a file calls the class, or None if it does not say."""
    if file.size > _LONGEST:
        raise SoritesError(f"{id_}.{kind}: wanted a class name or position, got {file.size:,} bytes")
    try:
        text = file.read().decode("utf-8-sig").strip()
        if kind != "json":
            return text
        record = json_value(text)
    except ValueError as error:
        raise SoritesError(f"{id_}.{kind}: not {'JSON' if kind == 'json' else 'text'}: {error}") from None
    name = next((record[key] for key in JSON_KEYS if record.get(key) is not None), None) if isinstance(record, dict) else None
    if isinstance(name, bool) or not isinstance(name, int | str | None):
        raise SoritesError(f"{id_}.json: wanted a class name or position, got {json.dumps(name)}")
    return None if name is None else str(name)
