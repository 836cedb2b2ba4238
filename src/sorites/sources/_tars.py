"""Read uncompressed tars in place: find where each member lies, and read its bytes when they are asked for."""

from __future__ import annotations

import glob
import itertools
import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sorites.errors import BadPicture, SoritesError

MOST = 100_000
"""The most tars that one pattern may name."""

_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}")
_PACKED = {b"\x1f\x8b": "gunzip", b"\xfd7zXZ": "unxz", b"BZh": "bunzip2", b"\x28\xb5\x2f\xfd": "unzstd"}


@dataclass(frozen=True)
class Member:
    """A file inside a tar. Its name is only a name and is never used as a path on disk."""

    tar: Path
    name: str
    offset: int
    size: int

    def read(self) -> bytes:
        """Return the bytes of the file."""
        try:
            with self.tar.open("rb") as file:
                file.seek(self.offset)
                data = file.read(self.size)
        except OSError as error:
            raise BadPicture(f"{self.tar}/{self.name}: {error.strerror}") from error
        if len(data) != self.size:
            raise BadPicture(f"{self.tar}/{self.name}: the tar has changed since it was indexed")
        return data


def find(spec: str) -> list[Path]:
    """Return the tars that a path names: a tar, a folder of tars, or a pattern like ``a-{000..012}.tar`` or ``a-*.tar``."""
    path = Path(spec).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        found = sorted(path.glob("*.tar")) or sorted(path.glob("*.tar.*"))
    else:
        found = [tar for name in expand(str(path)) for tar in _glob(name)]
    if not found:
        raise SoritesError(f"there are no tars at {spec}: wanted a tar, a folder of tars, or a pattern like a-{{000..012}}.tar")
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
        return listed.split(",")
    low, high = int(first), int(last)
    if abs(high - low) > MOST:
        raise SoritesError(f"{match[0]} names more than {MOST:,} tars")
    step = 1 if high >= low else -1
    return [str(i).zfill(len(first)) for i in range(low, high + step, step)]


def _glob(name: str) -> list[Path]:
    if glob.has_magic(name):
        return sorted(Path(found) for found in glob.glob(name, recursive=True))
    if not Path(name).is_file():
        raise SoritesError(f"there is no tar at {name}")
    return [Path(name)]


def members(path: Path) -> Iterator[Member]:
    """Yield every regular file of a tar, in its order."""
    try:
        with path.open("rb") as file:
            start = file.read(6)
        unpacker = next((tool for magic, tool in _PACKED.items() if start.startswith(magic)), None)
        if unpacker:
            raise SoritesError(f"{path} is compressed and cannot be read by position. Type: {unpacker} {path}")
        yield from _members(path)
    except (tarfile.TarError, OSError, ValueError) as error:
        raise SoritesError(f"{path} is not a whole tar: {error}") from error


def _members(path: Path) -> Iterator[Member]:
    with tarfile.open(path, "r:") as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]
            if member.isreg() and not member.issparse():
                yield Member(path, member.name, member.offset_data, member.size)
        # tarfile takes a damaged header for the end of the tar
        assert tar.fileobj is not None
        tar.fileobj.seek(tar.offset)
        if tar.fileobj.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise tarfile.ReadError(f"damaged at byte {tar.offset:,}")
