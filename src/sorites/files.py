"""Files that outlive a process: the cache folder, files written whole or not at all, and locks between processes.

Fetched pictures and exported models are kept between runs in ``SORITES_CACHE`` or the user's cache folder.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from sorites.errors import SoritesError

TEMPORARY = ".tmp"
"""The suffix of a file that is not whole yet."""


def cache(*parts: str) -> Path:
    """Return a path below the cache folder; nothing is made there."""
    named = os.environ.get("SORITES_CACHE")
    if named:
        return Path(named, *parts)
    import platformdirs

    return platformdirs.user_cache_path("sorites").joinpath(*parts)


def write_bytes(data: bytes, path: Path) -> None:
    """Write a whole file or none: bytes go to a temporary name, reach the disk, then are renamed."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise SoritesError(
            f"cannot write {path}: {error.strerror or error}. What is finished is kept; "
            "make room and type the same command again."
        ) from error


def sweep_temporaries(folder: Path) -> None:
    """Delete the unfinished files that a killed process left anywhere in the folder."""
    for left in folder.rglob(f"*{TEMPORARY}"):
        left.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: Path, kind: str = "run", lock_name: str = "run.lock") -> Iterator[None]:
    """Keep every other process from writing into the folder meanwhile; make it if new, refuse it at once if it is held."""
    import filelock

    lock = filelock.FileLock(folder / lock_name, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except filelock.Timeout as error:
        raise SoritesError(f"another sorites is writing into {folder}; wait for it, or choose another --out DIR") from error
    except OSError as error:
        raise SoritesError(f"cannot make the {kind} folder {folder}: {error}") from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def waiting(lock: Path, seconds: float = -1) -> Iterator[None]:
    """Hold a lock file, made with its folder if new; wait for whoever holds it, at most that long (below 0: without end)."""
    import filelock

    lock.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(lock, timeout=seconds):
        yield


@contextlib.contextmanager
def fetching(into: Path, seconds: float) -> Iterator[None]:
    """Let one process at a time fetch into a folder of the cache, made if new; the others wait, at most that long."""
    import filelock

    try:
        with waiting(into / ".lock", seconds):
            yield
    except filelock.Timeout:
        raise SoritesError(f"another process has been fetching into {into} for too long; end it and try again") from None
    except OSError as error:
        raise SoritesError(f"cannot fetch into {into}: {error}. Set SORITES_CACHE to a folder you can write to.") from error


def make_once(path: Path, make: Callable[[], bytes]) -> None:
    """Write a file unless it exists; of several processes that need it at once, one makes it and the others wait."""
    if not path.exists():
        with waiting(path.with_name(f"{path.name}.lock")):
            if not path.exists():
                write_bytes(make(), path)
