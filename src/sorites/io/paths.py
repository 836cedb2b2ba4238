"""Paths as users type them.

Impossible file names and circular links are treated as paths that do not exist.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path, PurePosixPath, PureWindowsPath

from sorites.core.errors import SoritesError
from sorites.io.stores import StorePath, is_on_store, to_path

# Maximum size in bytes of a file that is read at once.
MAX_FILE_BYTES = 1 << 30


def path_of(text: str | Path) -> Path:
    """Return a typed path, with ``~`` expanded; a path with a scheme is on a store."""
    if is_on_store(text):
        return to_path(text)
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # ~name of an unknown user
        raise SoritesError(f"{text}: {error}") from error


def is_file(path: str | Path) -> bool:
    """Return whether a path is a regular file; unlike ``Path.is_file`` this never raises."""
    return path.is_file() if isinstance(path, StorePath) else os.path.isfile(path)


def is_dir(path: str | Path) -> bool:
    """Return whether a path is a folder; unlike ``Path.is_dir`` this never raises."""
    return path.is_dir() if isinstance(path, StorePath) else os.path.isdir(path)


def exists(path: str | Path) -> bool:
    """Return whether a path exists; unlike ``Path.exists`` this never raises."""
    return path.exists() if isinstance(path, StorePath) else os.path.exists(path)


def resolve(path: Path) -> Path:
    """Return the path without links; circular links are left as they are."""
    return path if isinstance(path, StorePath) else Path(os.path.realpath(path))


# Whether sources follow links that leave their folder. The setting is the suite's or the recipe's, and is
# kept here while sources are listed, because plug-ins get only a path.
_FOLLOWED: ContextVar[bool] = ContextVar("follow_links", default=False)


@contextlib.contextmanager
def following_links(follow: bool) -> Iterator[None]:
    """Let sources that are listed meanwhile follow links that leave their folder.

    Args:
        follow: True to follow them; False refuses them, which is the default.
    """
    token = _FOLLOWED.set(follow)
    try:
        yield
    finally:
        _FOLLOWED.reset(token)


def links_are_followed() -> bool:
    """Return whether links that leave the folder of a source are followed."""
    return _FOLLOWED.get()


def is_inside(path: Path, root: Path) -> bool:
    """Return whether a path is inside a folder after following links."""
    try:
        return resolve(path).is_relative_to(resolve(root))
    except (OSError, ValueError):
        return False


# Most paths are of this form, which is faster to check: no drive, no root, no backslash.
PLAIN = re.compile(r"[\w.+-]+(/[\w.+-]+)*")


def is_relative_inside(text: str) -> bool:
    """Return whether a path in a file stays inside its folder: relative and without ``..``, on POSIX and
    Windows.
    """
    if PLAIN.fullmatch(text) and ".." not in text:
        return True
    posix, windows = PurePosixPath(text), PureWindowsPath(text)
    parts = {*posix.parts, *windows.parts}
    return (
        bool(text)
        and not posix.is_absolute()
        and not windows.anchor
        and ".." not in parts
        and "\0" not in text
    )


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a local folder, sorted by name.

    Raises:
        SoritesError: The folder is on a store or cannot be read.
    """
    if isinstance(folder, StorePath):
        raise SoritesError(
            f"{folder} is on a store, but this reader supports local folders only; download it first"
        )
    try:
        with os.scandir(folder) as scanned:
            return sorted(scanned, key=lambda entry: entry.name)
    except (OSError, ValueError) as error:
        raise SoritesError(f"cannot read the folder {folder}: {reason(error)}") from error


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or a link to one, without another system call if possible."""
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir(follow_symlinks=False)


def subfolders(folder: Path) -> list[Path]:
    """Return the non-hidden folders in a folder, sorted by name."""
    return [
        Path(entry.path) for entry in entries(folder) if not entry.name.startswith(".") and is_folder(entry)
    ]


def read_all(path: Path, most: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes."""
    try:
        if isinstance(path, StorePath):
            if (size := path.stat().st_size) > most:
                raise SoritesError(
                    f"cannot read {path}: it has {size:,} bytes, more than the {most:,} allowed"
                )
            return path.read_bytes()
        with path.open("rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise SoritesError(f"cannot read {path}: it is not a regular file")
            if info.st_size > most:
                raise SoritesError(
                    f"cannot read {path}: it has {info.st_size:,} bytes, more than the {most:,} allowed"
                )
            return file.read(most + 1)
    except (OSError, ValueError) as error:
        raise SoritesError(f"cannot read {path}: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """Return what went wrong in a few words: the system's error text, or the first line of the message."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0][:300]


FileState = tuple[str, int, int]


def file_states(paths: Iterable[Path]) -> tuple[FileState, ...]:
    """Return path, size and modification time of local files: the key of what was computed from them."""
    infos = [(path.absolute(), path.stat()) for path in paths]
    return tuple((str(path), info.st_size, info.st_mtime_ns) for path, info in infos)
