"""Read WebDataset tars: files that share a name up to its first dot are one sample."""

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
from sorites.io.paths import entries, is_dir, is_file, path_of, reason
from sorites.io.readers import json_value, whole
from sorites.io.stores import StorePath, place, read_span
from sorites.sources.decode import decode
from sorites.sources.shards import SHARDED, Shard

# Read uncompressed tars in place: find where each member lies, and read its bytes when they are asked
# for.


# Bytes of a member that are kept while a tar on a store is indexed: a label costs no request of its
# own.
FEW = 4096
# The most tars that one pattern may name.
MOST = 100_000

_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}")
_REPACK = "Unpack it and pack it again: tar --create --file NEW.tar FOLDER"
_PACKED = {b"\x1f\x8b": "gunzip", b"\xfd7zXZ": "unxz", b"BZh": "bunzip2", b"\x28\xb5\x2f\xfd": "unzstd"}


@dataclass(frozen=True)
class Member:
    """A file inside a tar. Its name is only a name and is never used as a path on disk."""

    tar: Path
    name: str
    offset: int
    size: int
    held: bytes | None = field(default=None, compare=False, repr=False)
    """The bytes themselves, where they were met while the tar was indexed and are few."""

    def read(self) -> bytes:
        """Return the bytes of the file."""
        if self.held is not None:
            return self.held
        try:
            data = read_span(self.tar, self.offset, self.size)
        except (OSError, ValueError, OverflowError, MemoryError) as error:
            raise BadImage(f"{self.tar}/{self.name}: {reason(error)}") from error
        if len(data) != self.size:
            raise BadImage(f"{self.tar}/{self.name}: the tar has changed since it was indexed")
        return data


def find(spec: str) -> list[Path]:
    """Return the tars that a path names: a tar, a folder of tars, or a pattern like
    ``a-{000..012}.tar`` or ``a-*.tar``.

    A name that exists is taken literally, whatever is in it, and in a pattern so are the folders as
    far as they exist.
    """
    path = path_of(spec)
    if isinstance(path, StorePath):
        return _on_store(spec, path)
    if is_file(path):
        return [path]
    if is_dir(path):
        names = [Path(entry.path) for entry in entries(path)]
        found = [name for name in names if name.suffix == ".tar"] or [
            name for name in names if ".tar." in name.name
        ]
    else:
        found = [tar for name in expand(str(path)) for tar in _glob(name)]
    return _apart(spec, found)


def _on_store(spec: str, path: StorePath) -> list[Path]:
    """Return the tars that a path on a store names; those that braces name are not asked for one by one."""
    names = expand(str(path))
    if len(names) == 1 and not glob.has_magic(place(names[0]).name):
        path = StorePath(names[0])
        inside: list[Path] = [] if path.suffix == ".tar" else list(path.glob("*.tar"))
        return _apart(spec, inside or ([path] if path.is_file() else []))
    listed = {
        folder: {tar.name: tar for tar in place(folder).glob("*")}
        for folder in {str(place(name).parent) for name in names}
    }
    found: list[Path] = []
    for name in map(place, names):
        there = listed[str(name.parent)]
        some = [there[tar] for tar in sorted(there) if fnmatch.fnmatchcase(tar, name.name)]
        if not some:
            raise SoritesError(f"there is no tar at {name}")
        found += some
    return _apart(spec, found)


def _apart(spec: str, found: list[Path]) -> list[Path]:
    """Return the tars that were found; none at all, and two of one name, are errors."""
    if not found:
        raise SoritesError(
            f"there are no tars at {spec}: wanted a tar, a folder of tars, or a pattern like"
            " a-{000..012}.tar"
        )
    name, times = Counter(tar.name for tar in found).most_common(1)[0]
    if times > 1:
        raise SoritesError(f"{spec} names {times} tars called {name}; give them different names")
    return found


def expand(pattern: str) -> list[str]:
    """Expand braces into names as a shell does: ``{08..10}`` counts and keeps its zeros, ``{a,b}`` lists."""
    parts: list[list[str]] = []
    end = 0
    for match in _BRACES.finditer(pattern):
        parts += [[pattern[end : match.start()]], _choices(match)]
        end = match.end()
    parts.append([pattern[end:]])
    names = list(itertools.islice(map("".join, itertools.product(*parts)), MOST + 1))
    if len(names) > MOST:
        raise SoritesError(f"{pattern} names more than {MOST:,} tars")
    return names


def _choices(match: re.Match[str]) -> list[str]:
    first, last, listed = match.groups()
    if listed is not None:
        return list(listed.split(","))
    low, high = whole(first), whole(last)
    if low is None or high is None or abs(high - low) > MOST:
        raise SoritesError(f"{match[0][:60]} names more than {MOST:,} tars")
    step = 1 if high >= low else -1
    return [str(i).zfill(len(first)) for i in range(low, high + step, step)]


def _glob(name: str) -> list[Path]:
    """Return the files that a pattern names; a name without a pattern, or with a file of just that
    name, is that file.
    """
    if is_file(name):
        return [Path(name)]
    if not glob.has_magic(name):
        raise SoritesError(f"there is no tar at {name}")
    literal = next((folder for folder in Path(name).parents if is_dir(folder)), Path())
    pattern = Path(name).relative_to(literal)
    try:
        return sorted(literal / found for found in glob.glob(str(pattern), root_dir=literal, recursive=True))
    except (ValueError, OSError, re.error, RecursionError) as error:
        raise SoritesError(f"{name}: not a pattern of file names: {reason(error)}") from error


def members(path: Path) -> Iterator[Member]:
    """Yield every regular file of a tar, in its order."""
    try:
        start = read_span(path, 0, 6)
        unpacker = next((tool for magic, tool in _PACKED.items() if start.startswith(magic)), None)
        if unpacker:
            raise SoritesError(
                f"{path} is compressed and cannot be read by position. Type: {unpacker} {path}"
            )
        yield from _members(path)
    except SoritesError:
        raise
    except Exception as error:  # a damaged header makes tarfile raise nearly anything
        raise SoritesError(f"{path} is not a whole tar: {reason(error)}") from error


def _members(path: Path) -> Iterator[Member]:
    length, on_store = path.stat().st_size, isinstance(path, StorePath)
    with path.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
        at = -1
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]
            # a size below 0 would lead back without end
            if not at < tar.offset <= length + tarfile.BLOCKSIZE or member.size < 0:
                raise tarfile.ReadError(f"its member {member.name!r} claims {member.size:,} bytes")
            at = tar.offset
            if member.issparse():
                raise SoritesError(
                    f"{path}: {member.name} is stored with holes and cannot be read by position. {_REPACK}"
                )
            if member.isreg():
                few = on_store and member.size <= FEW
                yield Member(
                    path, member.name, member.offset_data, member.size, _held(stream, member) if few else None
                )
        # tarfile takes a damaged header, and the end of the file, for the end of the tar,
        # which is a block of zeros
        assert tar.fileobj is not None
        tar.fileobj.seek(tar.offset)
        block = tar.fileobj.read(tarfile.BLOCKSIZE)
        if not block:
            raise SoritesError(
                f"{path} is not a whole tar: it ends at byte {length:,} without the mark that ends one, so it"
                f" may be cut short. If nothing is missing, add the mark: truncate -s +1024 {path}"
            )
        if block.strip(b"\0"):
            raise tarfile.ReadError(f"damaged at byte {tar.offset:,}")


def _held(stream: IO[bytes], member: tarfile.TarInfo) -> bytes:
    at = stream.tell()
    stream.seek(member.offset_data)
    data = stream.read(member.size)
    stream.seek(at)
    return data


IMAGES = ("jpg", "jpeg", "png", "webp")
LABELS = ("cls", "json", "txt")
JSON_KEYS = ("label", "cls", "class")
# The position that some tars give where there is no label.
UNLABELLED = "-1"

_LONGEST = 1 << 20


@add_source
def webdataset(path: str | None, labels: Labels) -> Iterator[Sample]:
    """Read images in uncompressed tars, with labels in .cls, .json or .txt beside them.

    ``path`` is a tar, a folder of tars, or a pattern (``a-{000..012}.tar``). The label is the text
    of ``.cls``, else "label", "cls" or "class" of ``.json``, else the text of ``.txt``: a position,
    an id or a name; a sample with none of them, or with -1, has no label. A sample's id is the
    tar's name and the sample's key. Tars are indexed once and never unpacked.
    """
    found = _shards(path, labels)
    any_image = False
    for shard in found:
        for sample in shard.read():
            any_image = True
            yield sample
    if not any_image:
        raise SoritesError(f"there are no images ({', '.join(IMAGES)}) in {path}, {len(found)} tars")


def _shards(path: str | None, labels: Labels) -> list[Shard]:
    if path is None:
        raise SoritesError("the webdataset source needs a path. Type: --source webdataset:PATH")
    return [Shard(as_utf8(tar.name), functools.partial(_of_tar, tar, labels)) for tar in find(path)]


SHARDED["webdataset"] = _shards


def _of_tar(tar: Path, labels: Labels) -> Iterator[Sample]:
    for key, files in _samples(tar):
        image = next((files[kind] for kind in IMAGES if kind in files), None)
        if image is not None:
            id_ = f"{as_utf8(tar.name)}/{key}"
            yield Sample(id_, functools.partial(load, image, id_), _label(files, id_, labels))


def load(image: Member, id_: str) -> ImageU8:
    """Decode an image of a tar; ``id_`` is what messages call it."""
    return decode(image.read(), id_)


def _samples(tar: Path) -> Iterator[tuple[str, dict[str, Member]]]:
    """Yield each key with its files by extension, in the order in which the keys first appear."""
    grouped: dict[str, dict[str, Member]] = {}
    for member in members(tar):
        folder, slash, name = member.name.removeprefix("./").rpartition("/")
        stem, _, extension = name.partition(".")
        if not stem or extension.lower() not in (*IMAGES, *LABELS):
            continue
        files = grouped.setdefault(as_utf8(folder + slash + stem), {})
        if extension.lower() in files:
            raise SoritesError(f"{tar}: wanted each file once; {member.name} is there twice")
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
    name = (
        next((record[key] for key in JSON_KEYS if record.get(key) is not None), None)
        if isinstance(record, dict)
        else None
    )
    if isinstance(name, bool) or not isinstance(name, int | str | None):
        raise SoritesError(f"{id_}.json: wanted a class name or position, got {json.dumps(name)}")
    return None if name is None else str(name)
