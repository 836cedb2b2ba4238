"""Files that outlive a process: the cache folder, files written whole or not at all, and locks
between processes.

Fetched images and exported models are kept between runs in ``SORITES_CACHE`` or the user's cache folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sorites.core.errors import SoritesError
from sorites.io.locks import held
from sorites.io.stores import StorePath, place

Kept = TypeVar("Kept")

_OURS = re.compile(r"sorites-[0-9a-f]{16}-\d+(-\d+)?\.tmp")
_LOCKS = ("run.lock", ".sorites.lock")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


# The number of files of a store that are copied at a time.
COPIES = 8
# Seconds after a fetch that failed in which it is not tried again.
PATIENCE = 60.0
_failed_fetches: dict[Path, tuple[float, str]] = {}


def cache(*parts: str) -> Path:
    """Return a path below the cache folder; nothing is made there."""
    named = os.environ.get("SORITES_CACHE")
    if named:
        return Path(named, *parts)
    import platformdirs

    return platformdirs.user_cache_path("sorites").joinpath(*parts)


# The most bytes that a JSON file of ours may have.
MOST_JSON = 100_000_000


def read_json(path: Path) -> Any:
    """Read a JSON file of ours; an error says in words why it is none."""
    try:
        if path.exists() and not path.is_file():
            raise SoritesError("it is not a file")
        if path.stat().st_size > MOST_JSON:
            raise SoritesError(f"it has more than {MOST_JSON:,} bytes")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SoritesError(error.strerror or str(error)) from error
    except RecursionError as error:
        raise SoritesError("it is nested too deeply") from error
    except ValueError as error:
        raise SoritesError(f"it is not JSON: {error}") from error


def temporary_name(path: Path) -> Path:
    """Return where a file is written before it gets its name: a short one of this thread's own,
    whatever the name of the file.
    """
    key = hashlib.blake2b(os.fsencode(path.name), digest_size=8).hexdigest()
    return path.with_name(f"sorites-{key}-{os.getpid()}-{threading.get_ident()}.tmp")


def is_temporary(path: Path) -> bool:
    """Return whether a file is one that was not whole yet when its process ended; files of the
    user's never are.
    """
    return _OURS.fullmatch(path.name) is not None


def write_bytes(data: bytes, path: Path) -> None:
    """Write a whole file or none: bytes go to a temporary name, reach the disk, then are renamed.

    A store puts whole objects.
    """
    if isinstance(path, StorePath):
        _put(data, path)
        return
    temporary = temporary_name(path)
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
        raise SoritesError(f"cannot write {path}: {error.strerror or error}. {_remedy(error)}") from error


def at_hand(paths: Sequence[Path]) -> list[Path]:
    """Return where files can be read on this machine; those on a store are copied into the cache,
    once for each content.
    """
    if not any(isinstance(path, StorePath) for path in paths):
        return list(paths)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(COPIES) as pool:
        return list(pool.map(_copied, paths))


def _copied(path: Path) -> Path:
    if not isinstance(path, StorePath):
        return path
    key = hashlib.blake2b(f"{path} {path.tag()}".encode(), digest_size=16).hexdigest()
    copy = cache("stores", key[:2], f"{key}{path.suffix}")
    if not copy.exists():
        write_bytes(path.read_bytes(), copy)
    return copy


def _put(data: bytes, path: StorePath) -> None:
    try:
        path.put(data)
    except OSError as error:
        raise SoritesError(f"cannot write {path}: {error.strerror or error}. {_remedy(error)}") from error


def _remedy(error: OSError) -> str:
    """Say what helps against a write that failed."""
    if error.errno in _FULL:
        return "What is finished is kept; make room and type the same command again."
    if error.errno in _FORBIDDEN:
        return "What is finished is kept; choose a place that you may write to, or change its permissions."
    return "What is finished is kept; once that is mended, type the same command again."


def sweep_temporaries(folder: Path) -> None:
    """Delete the unfinished files that a killed process of ours left in the folder.

    Other files stay, whatever their names, and so does everything in a folder inside it that has a
    lock of its own.
    """
    for where, folders, names in os.walk(folder):  # a store has none: it is not walked
        folders[:] = [
            name for name in folders if not any(Path(where, name, lock).exists() for lock in _LOCKS)
        ]
        for left in (Path(where, name) for name in names):
            if is_temporary(left):
                left.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: Path, kind: str = "run", lock_name: str = "run.lock") -> Iterator[None]:
    """Keep every other process from writing into the folder meanwhile; make it if new, refuse it at
    once if it is held.
    """
    folder = place(folder)
    if isinstance(folder, StorePath):
        with held(folder / lock_name, folder, kind):
            yield
        return
    import filelock

    lock = filelock.FileLock(folder / lock_name, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except filelock.Timeout as error:
        raise SoritesError(
            f"another sorites is writing into {folder}; wait for it, or choose another --out DIR"
        ) from error
    except OSError as error:
        raise SoritesError(f"cannot make the {kind} folder {folder}: {error}") from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def waiting(lock: Path, seconds: float = -1) -> Iterator[None]:
    """Hold a lock file, made with its folder if new; wait for whoever holds it, at most that long
    (below 0: without end).
    """
    import filelock

    lock.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(lock, timeout=seconds):
        yield


@contextlib.contextmanager
def fetching(into: Path, seconds: float) -> Iterator[None]:
    """Let one process at a time fetch into a folder of the cache, made if new; the others wait, at
    most that long.

    What could not be fetched is not tried again for a minute: many images may ask for it.
    """
    import filelock

    when, said = _failed_fetches.get(into, (-PATIENCE, ""))
    if time.monotonic() - when < PATIENCE:
        raise SoritesError(said)
    try:
        with waiting(into / ".lock", seconds):
            yield
    except SoritesError as error:
        _failed_fetches[into] = (time.monotonic(), str(error))
        raise
    except filelock.Timeout:
        raise SoritesError(
            f"another process has been fetching into {into} for too long; end it and try again"
        ) from None
    except OSError as error:
        raise SoritesError(
            f"cannot fetch into {into}: {error}. Set SORITES_CACHE to a folder you can write to."
        ) from error


def make_once(path: Path, make: Callable[[], bytes]) -> None:
    """Write a file unless it exists; of several processes that need it at once, one makes it and
    the others wait.
    """
    if not path.exists():
        with waiting(path.with_name(f"{path.name}.lock")):
            if not path.exists():
                write_bytes(make(), path)


def cached(path: Path, make: Callable[[], bytes], read: Callable[[Path], Kept]) -> Kept:
    """Return what ``read`` gives for a file of the cache, made first if it is missing, and made
    again if it cannot be read.
    """
    make_once(path, make)
    try:
        return read(path)
    except Exception as error:  # a damaged file makes readers raise nearly anything
        note_damage(path, error)
        path.unlink(missing_ok=True)
    make_once(path, make)
    return read(path)


def note_damage(path: Path, error: Exception) -> None:
    """Say that a file of the cache is damaged and will be made again."""
    why = (str(error).splitlines() or [type(error).__name__])[0]
    warnings.warn(f"the cached {path} was damaged ({why}) and is made again", stacklevel=3)
