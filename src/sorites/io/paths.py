"""Paths as people type them.

A name that no file can have, or a link that leads in a circle, is a place where nothing lies.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath

from sorites.core.errors import SoritesError
from sorites.io.stores import StorePath, is_on_store, place

# The most bytes of a file that is read whole.
LARGEST = 1 << 30


def path_of(text: str | Path) -> Path:
    """Return the path that was typed, with the home folder for ``~``; one with a scheme lies on a store."""
    if is_on_store(text):
        return place(text)
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # ~name, of a user that there is not
        raise SoritesError(f"{text}: {error}") from error


def is_file(path: str | Path) -> bool:
    """Return whether a regular file lies there; unlike ``Path.is_file`` this never raises."""
    return path.is_file() if isinstance(path, StorePath) else os.path.isfile(path)


def is_dir(path: str | Path) -> bool:
    """Return whether a folder lies there; unlike ``Path.is_dir`` this never raises."""
    return path.is_dir() if isinstance(path, StorePath) else os.path.isdir(path)


def exists(path: str | Path) -> bool:
    """Return whether anything lies there; unlike ``Path.exists`` this never raises."""
    return path.exists() if isinstance(path, StorePath) else os.path.exists(path)


def resolved(path: Path) -> Path:
    """Return the path without links; of links that lead in a circle, the path itself."""
    return path if isinstance(path, StorePath) else Path(os.path.realpath(path))


def is_inside(path: Path, root: Path) -> bool:
    """Return whether a path lies in a folder, with links followed."""
    try:
        return resolved(path).is_relative_to(resolved(root))
    except (OSError, ValueError):
        return False


# Most written paths are of this kind, which is quicker to judge: no drive, no root, no backslash.
PLAIN = re.compile(r"[\w.+-]+(/[\w.+-]+)*")


def leads_inside(text: str) -> bool:
    """Return whether a written path stays in its folder: relative, without ``..``, for POSIX and
    Windows alike.
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
    """Return what lies in a folder, in the order of its names."""
    if isinstance(folder, StorePath):
        raise SoritesError(
            f"{folder} lies on a store, and what is asked reads folders of this machine alone; copy it here"
            " first"
        )
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except (OSError, ValueError) as error:
        raise SoritesError(f"cannot read the folder {folder}: {reason(error)}") from error


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or a link to one, without asking the disk again where
    that is known.
    """
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir(follow_symlinks=False)


def subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder, in the order of their names, without hidden ones."""
    return [
        Path(entry.path) for entry in entries(folder) if not entry.name.startswith(".") and is_folder(entry)
    ]


def whole_bytes(path: Path, most: int = LARGEST) -> bytes:
    """Return the bytes of a regular file of at most ``most`` bytes."""
    try:
        if isinstance(path, StorePath):
            if (size := path.stat().st_size) > most:
                raise SoritesError(
                    f"cannot read {path}: it has {size:,} bytes, more than the {most:,} allowed"
                )
            return path.read_bytes()
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise SoritesError(f"cannot read {path}: wanted a file, got a special one")
            if about.st_size > most:
                raise SoritesError(
                    f"cannot read {path}: it has {about.st_size:,} bytes, more than the {most:,} allowed"
                )
            return file.read(most + 1)
    except (OSError, ValueError) as error:
        raise SoritesError(f"cannot read {path}: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """Return what went wrong in a few words: what the system said, or the first line of the message."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (said.strip().splitlines() or [type(error).__name__])[0][:300]
