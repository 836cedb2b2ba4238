"""Read WebDataset tars: files that share a name up to the first dot form one sample."""

from __future__ import annotations

import functools
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sorites.core import FileRef, Generated, ImageU8, Sample, add_source
from sorites.core.errors import SoritesError, as_utf8
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.io.decode import decode
from sorites.io.paths import reason
from sorites.io.readers import json_value
from sorites.io.stores import StorePath, read_span
from sorites.sources.shards import SHARDED, Shard, find

# Uncompressed tars are read in place: members are indexed by offset and their bytes are read on demand.

SUFFIX = ".tar"
# Members up to this many bytes are kept while a tar on a store is indexed, so that labels need no
# requests.
INLINE_BYTES = 4096

_REPACK = "Unpack it and pack it again: tar -cf NEW.tar FOLDER"
_PACKED = {b"\x1f\x8b": "gunzip", b"\xfd7zXZ": "unxz", b"BZh": "bunzip2", b"\x28\xb5\x2f\xfd": "unzstd"}


@dataclass(frozen=True)
class Member:
    """A file inside a tar. Its name is never used as a path on disk."""

    tar: Path
    name: str
    offset: int
    size: int
    content: bytes | None = None
    """The bytes, if they were read while the tar was indexed."""

    def ref(self, name: str) -> FileRef | Generated:
        """Return the member as an image, called ``name`` in messages."""
        file = FileRef(self.tar, self.offset, self.size, name)
        return file if self.content is None else Generated(_decode_content, (file, self.content))

    def read(self) -> bytes:
        """Return the bytes."""
        if self.content is not None:
            return self.content
        return FileRef(self.tar, self.offset, self.size, f"{self.tar}/{self.name}").read()


def _decode_content(file: FileRef, content: bytes) -> ImageU8:
    return decode(content, file.name)


def members(path: Path) -> Iterator[Member]:
    """Yield the regular files of a tar in order."""
    try:
        start = read_span(path, 0, 6)
        unpacker = next((tool for magic, tool in _PACKED.items() if start.startswith(magic)), None)
        if unpacker:
            raise SoritesError(f"{path} is compressed, but tars are read in place. Type: {unpacker} {path}")
        yield from _members(path)
    except SoritesError:
        raise
    except Exception as error:  # tarfile raises many kinds of errors for damaged headers
        raise SoritesError(f"{path} is not a complete tar: {reason(error)}") from error


def _members(path: Path) -> Iterator[Member]:
    length, on_store = path.stat().st_size, isinstance(path, StorePath)
    with path.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
        at = -1
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]
            # A negative size would lead back and never end.
            if not at < tar.offset <= length + tarfile.BLOCKSIZE or member.size < 0:
                raise tarfile.ReadError(f"its member {member.name!r} claims {member.size:,} bytes")
            at = tar.offset
            if member.issparse():
                raise SoritesError(
                    f"{path}: {member.name} is a sparse file, which cannot be read in place. {_REPACK}"
                )
            if member.isreg():
                inline = on_store and member.size <= INLINE_BYTES
                content = _read_member(stream, member) if inline else None
                yield Member(path, member.name, member.offset_data, member.size, content)
        # tarfile treats a damaged header and the end of the file like the end of the tar, which is a block
        # of zeros.
        assert tar.fileobj is not None
        tar.fileobj.seek(tar.offset)
        block = tar.fileobj.read(tarfile.BLOCKSIZE)
        if not block:
            raise SoritesError(
                f"{path} is not a complete tar: it ends at byte {length:,} without the end-of-archive marker"
                f" and may be truncated. If nothing is missing, add the marker: truncate -s +1024 {path}"
            )
        if block.strip(b"\0"):
            raise tarfile.ReadError(f"damaged at byte {tar.offset:,}")


def _read_member(stream: IO[bytes], member: tarfile.TarInfo) -> bytes:
    position = stream.tell()
    stream.seek(member.offset_data)
    data = stream.read(member.size)
    stream.seek(position)
    return data


IMAGES = ("jpg", "jpeg", "png", "webp")
LABELS = ("cls", "json", "txt")
JSON_KEYS = ("label", "cls", "class")
# The index that some tars use for unlabelled images.
UNLABELLED = "-1"

_MAX_LABEL_BYTES = 1 << 20


@add_source
def webdataset(path: str | None, labels: Labels) -> Iterator[Sample]:
    """Read images from uncompressed tars, with labels in .cls, .json or .txt files beside them.

    ``path`` is a tar, a folder of tars, or a pattern (``a-{000..012}.tar``). The label is the text of
    ``.cls``, otherwise "label", "cls" or "class" in ``.json``, otherwise the text of ``.txt``: an
    index, a class id or a class name. A sample without any of these, or with -1, has no label. The id
    of a sample is the name of the tar and the key of the sample. Tars are indexed once and never
    unpacked.
    """
    shards = _shards(path, labels)
    any_image = False
    for shard in shards:
        for sample in shard.read():
            any_image = True
            yield sample
    if not any_image:
        raise SoritesError(f"no images ({', '.join(IMAGES)}) in {path} ({len(shards)} tars)")


def _shards(path: str | None, labels: Labels) -> list[Shard]:
    if path is None:
        raise SoritesError(f"the webdataset source needs a path. Pass {option('source', 'webdataset:PATH')}")
    return [
        Shard(as_utf8(tar.name), functools.partial(_tar_samples, tar, labels)) for tar in find(path, SUFFIX)
    ]


SHARDED["webdataset"] = _shards


def _tar_samples(tar: Path, labels: Labels) -> Iterator[Sample]:
    for key, files in _samples(tar):
        image = next((files[kind] for kind in IMAGES if kind in files), None)
        if image is not None:
            id_ = f"{as_utf8(tar.name)}/{key}"
            yield Sample(id_, image.ref(id_), _label(files, id_, labels))


def _samples(tar: Path) -> Iterator[tuple[str, dict[str, Member]]]:
    """Yield each key with its files by extension, in the order of first appearance."""
    grouped: dict[str, dict[str, Member]] = {}
    for member in members(tar):
        folder, slash, name = member.name.removeprefix("./").rpartition("/")
        stem, _, extension = name.partition(".")
        if not stem or extension.lower() not in (*IMAGES, *LABELS):
            continue
        files = grouped.setdefault(as_utf8(folder + slash + stem), {})
        if extension.lower() in files:
            raise SoritesError(f"{tar}: expected each file once, but {member.name} occurs twice")
        files[extension.lower()] = member
    yield from grouped.items()


def _label(files: dict[str, Member], id_: str, labels: Labels) -> int | None:
    for kind in LABELS:
        name = _name(kind, files[kind], id_) if kind in files else None
        if name and name != UNLABELLED:
            try:
                return labels.find(name)
            except SoritesError as error:
                raise SoritesError(f"{id_}.{kind}: {error}") from None
    return None


def _name(kind: str, file: Member, id_: str) -> str | None:
    """Return the class name or index in a label file, or None if there is none."""
    if file.size > _MAX_LABEL_BYTES:
        raise SoritesError(f"{id_}.{kind}: expected a class name or index, got {file.size:,} bytes")
    try:
        text = file.read().decode("utf-8-sig").strip()
        if kind != "json":
            return text
        record = json_value(text)
    except ValueError as error:
        raise SoritesError(f"{id_}.{kind}: not {'JSON' if kind == 'json' else 'text'}: {error}") from None
    name = (
        next((record[key] for key in JSON_KEYS if record.get(key) is not None), None)
        if isinstance(record, dict)
        else None
    )
    if isinstance(name, bool) or not isinstance(name, int | str | None):
        raise SoritesError(f"{id_}.json: expected a class name or index, got {json.dumps(name)}")
    return None if name is None else str(name)
