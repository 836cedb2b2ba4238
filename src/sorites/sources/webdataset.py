"""Read WebDataset tars: files that share a name up to the first dot form one sample."""

from __future__ import annotations

import fnmatch
import functools
import glob
import itertools
import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from sorites.core import ImageU8, Sample, add_source
from sorites.core.errors import BadImage, SoritesError, as_utf8
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.io.paths import entries, is_dir, is_file, path_of, reason
from sorites.io.readers import json_value, parse_integer
from sorites.io.stores import StorePath, read_span, to_path
from sorites.sources.decode import decode
from sorites.sources.shards import SHARDED, Shard

# Uncompressed tars are read in place: members are indexed by offset and their bytes are read on demand.

# Members up to this many bytes are kept while a tar on a store is indexed, so that labels need no
# requests.
INLINE_BYTES = 4096
# The maximum number of tars per pattern.
MAX_TARS = 100_000

_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}")
_REPACK = "Unpack it and pack it again: tar --create --file NEW.tar FOLDER"
_PACKED = {b"\x1f\x8b": "gunzip", b"\xfd7zXZ": "unxz", b"BZh": "bunzip2", b"\x28\xb5\x2f\xfd": "unzstd"}


@dataclass(frozen=True)
class Member:
    """A file inside a tar. Its name is never used as a path on disk."""

    tar: Path
    name: str
    offset: int
    size: int
    content: bytes | None = field(default=None, compare=False, repr=False)
    """The bytes, if they were read while the tar was indexed."""

    def read(self) -> bytes:
        if self.content is not None:
            return self.content
        try:
            data = read_span(self.tar, self.offset, self.size)
        except (OSError, ValueError, OverflowError, MemoryError) as error:
            raise BadImage(f"{self.tar}/{self.name}: {reason(error)}") from error
        if len(data) != self.size:
            raise BadImage(f"{self.tar}/{self.name}: the tar has changed since it was indexed")
        return data


def find(spec: str) -> list[Path]:
    """Return the tars of a path: a tar, a folder, or a pattern like ``a-{000..012}.tar`` or ``a-*.tar``.

    An existing name is taken literally, even if it contains special characters; so are the existing
    folders of a pattern.
    """
    path = path_of(spec)
    if isinstance(path, StorePath):
        return _on_store(spec, path)
    if is_file(path):
        return [path]
    if is_dir(path):
        names = [Path(entry.path) for entry in entries(path)]
        tars = [name for name in names if name.suffix == ".tar"] or [
            name for name in names if ".tar." in name.name
        ]
    else:
        tars = [tar for name in expand(str(path)) for tar in _glob(name)]
    return _check_names(spec, tars)


def _on_store(spec: str, path: StorePath) -> list[Path]:
    """Return the tars of a path on a store, with one listing per folder."""
    names = expand(str(path))
    if len(names) == 1 and not glob.has_magic(to_path(names[0]).name):
        path = StorePath(names[0])
        inside: list[Path] = [] if path.suffix == ".tar" else list(path.glob("*.tar"))
        return _check_names(spec, inside or ([path] if path.is_file() else []))
    listed = {
        folder: {tar.name: tar for tar in to_path(folder).glob("*")}
        for folder in {str(to_path(name).parent) for name in names}
    }
    tars: list[Path] = []
    for name in map(to_path, names):
        available = listed[str(name.parent)]
        matches = [available[tar] for tar in sorted(available) if fnmatch.fnmatchcase(tar, name.name)]
        if not matches:
            raise SoritesError(f"no tar at {name}")
        tars += matches
    return _check_names(spec, tars)


def _check_names(spec: str, tars: list[Path]) -> list[Path]:
    """Return the tars; raise an error if there are none, or two of the same name."""
    if not tars:
        raise SoritesError(
            f"no tars at {spec}: expected a tar, a folder of tars, or a pattern like a-{{000..012}}.tar"
        )
    name, times = Counter(tar.name for tar in tars).most_common(1)[0]
    if times > 1:
        raise SoritesError(f"{spec} matches {times} tars called {name}; rename them")
    return tars


def expand(pattern: str) -> list[str]:
    """Expand braces like a shell: ``{08..10}`` counts with leading zeros, ``{a,b}`` lists."""
    parts: list[list[str]] = []
    end = 0
    for match in _BRACES.finditer(pattern):
        parts += [[pattern[end : match.start()]], _choices(match)]
        end = match.end()
    parts.append([pattern[end:]])
    names = list(itertools.islice(map("".join, itertools.product(*parts)), MAX_TARS + 1))
    if len(names) > MAX_TARS:
        raise SoritesError(f"{pattern} matches more than {MAX_TARS:,} tars")
    return names


def _choices(match: re.Match[str]) -> list[str]:
    first, last, listed = match.groups()
    if listed is not None:
        return list(listed.split(","))
    low, high = parse_integer(first), parse_integer(last)
    if low is None or high is None or abs(high - low) > MAX_TARS:
        raise SoritesError(f"{match[0][:60]} matches more than {MAX_TARS:,} tars")
    step = 1 if high >= low else -1
    return [str(i).zfill(len(first)) for i in range(low, high + step, step)]


def _glob(name: str) -> list[Path]:
    """Return the files that match a pattern; an existing file is taken literally."""
    if is_file(name):
        return [Path(name)]
    if not glob.has_magic(name):
        raise SoritesError(f"no tar at {name}")
    literal = next((folder for folder in Path(name).parents if is_dir(folder)), Path())
    pattern = Path(name).relative_to(literal)
    try:
        return sorted(literal / match for match in glob.glob(str(pattern), root_dir=literal, recursive=True))
    except (ValueError, OSError, re.error, RecursionError) as error:
        raise SoritesError(f"{name} is not a valid file name pattern: {reason(error)}") from error


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
    return [Shard(as_utf8(tar.name), functools.partial(_tar_samples, tar, labels)) for tar in find(path)]


SHARDED["webdataset"] = _shards


def _tar_samples(tar: Path, labels: Labels) -> Iterator[Sample]:
    for key, files in _samples(tar):
        image = next((files[kind] for kind in IMAGES if kind in files), None)
        if image is not None:
            id_ = f"{as_utf8(tar.name)}/{key}"
            yield Sample(id_, functools.partial(load, image, id_), _label(files, id_, labels))


def load(image: Member, id_: str) -> ImageU8:
    """Decode an image of a tar; ``id_`` is its name in error messages."""
    return decode(image.read(), id_)


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
