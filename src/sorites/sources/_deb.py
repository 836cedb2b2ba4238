"""Read the contents of a Debian package: an ar archive that holds a compressed tar.

The package is read as a stream, and nothing is extracted to a path that it names.
"""

from __future__ import annotations

import contextlib
import lzma
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import IO

from sorites.errors import SoritesError

LARGEST = 64 << 20
"""The most bytes of a file that is read; larger files are passed over."""

_MAGIC = b"!<arch>\n"
_MODES = {"data.tar": "", "data.tar.xz": "xz", "data.tar.gz": "gz", "data.tar.bz2": "bz2"}


def read(deb: Path, wanted: Collection[str], tick: Callable[[int], None] = lambda at: None) -> Iterator[tuple[str, bytes]]:
    """Yield path and contents of the wanted regular files, in the order of the package.

    ``tick`` is called with the bytes read so far. Paths are compared and never followed, so nothing else that a package holds
    or claims can lead anywhere.
    """
    left = set(wanted)
    try:
        with deb.open("rb") as file, _tar(deb, file) as tar:
            for member in tar:
                tick(file.tell())
                name = member.name.removeprefix("./")
                if name in left and member.isreg() and member.size <= LARGEST and (contents := tar.extractfile(member)):
                    yield name, contents.read()
                    left.remove(name)
                if not left:
                    return
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        raise SoritesError(f"{deb} cannot be unpacked: {error}. Remove it and try again.") from error


class _Slice:
    """The next ``size`` bytes of a file, as a stream."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file, self.left = file, size

    def read(self, size: int) -> bytes:
        data = self.file.read(min(size, self.left))
        self.left -= len(data)
        return data


def _find(file: IO[bytes]) -> tuple[str, int]:
    """Return name and size of the archive member ``data.tar*``, and leave the file at its first byte."""
    if file.read(8) != _MAGIC:
        raise tarfile.ReadError("it does not start as a Debian package does")
    while len(header := file.read(60)) == 60:
        name, size = header[:16].decode("ascii", "replace").strip().rstrip("/"), header[48:58].strip()
        if header[58:] != b"`\n" or not size.isdigit():
            break
        if name.startswith("data.tar"):
            return name, int(size)
        file.seek(int(size) + int(size) % 2, 1)
    raise tarfile.ReadError("it holds no data.tar")


@contextlib.contextmanager
def _tar(deb: Path, file: IO[bytes]) -> Iterator[tarfile.TarFile]:
    name, size = _find(file)
    if name in _MODES:
        with tarfile.open(fileobj=_Slice(file, size), mode=f"r|{_MODES[name]}") as tar:  # type: ignore[call-overload]
            yield tar
        return
    # Ubuntu packs with zstd, which Python reads only from 3.14 on; a machine with apt-get also has dpkg-deb.
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
                yield tar
        finally:
            process.terminate()
