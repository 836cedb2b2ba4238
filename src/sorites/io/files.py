"""The cache folder, atomic writes, and locks between processes.

Downloads and exported models are cached in ``SORITES_CACHE`` or the user's cache folder.
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

from sorites.core.errors import Notice, SoritesError
from sorites.core.messages import option
from sorites.io.locks import hold
from sorites.io.stores import StorePath, to_path

Content = TypeVar("Content")

_TEMPORARY_NAME = re.compile(r"sorites-[0-9a-f]{16}-\d+(-\d+)?\.tmp")
_LOCK_NAMES = ("run.lock", ".sorites.lock")
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


# Files of a store that are copied in parallel.
PARALLEL_COPIES = 8
# Seconds after a failed download during which it is not retried.
RETRY_SECONDS = 60.0
_failed_fetches: dict[Path, tuple[float, str]] = {}
# Folders that the current thread has locked.
_held = threading.local()


def cache(*parts: str) -> Path:
    """Return a path below the cache folder; nothing is created."""
    configured = os.environ.get("SORITES_CACHE")
    if configured:
        return Path(configured, *parts)
    import platformdirs

    return platformdirs.user_cache_path("sorites").joinpath(*parts)


# Maximum size of a JSON file in bytes.
MAX_JSON_BYTES = 100_000_000


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        SoritesError: It cannot be read or is not JSON.
    """
    try:
        if path.exists() and not path.is_file():
            raise SoritesError("it is not a file")
        if path.stat().st_size > MAX_JSON_BYTES:
            raise SoritesError(f"it has more than {MAX_JSON_BYTES:,} bytes")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SoritesError(error.strerror or str(error)) from error
    except RecursionError as error:
        raise SoritesError("it is nested too deeply") from error
    except ValueError as error:
        raise SoritesError(f"it is not JSON: {error}") from error


def temporary_name(path: Path) -> Path:
    """Return the temporary path of a file that is being written: short, and unique to this thread."""
    key = hashlib.blake2b(os.fsencode(path.name), digest_size=8).hexdigest()
    return path.with_name(f"sorites-{key}-{os.getpid()}-{threading.get_ident()}.tmp")


def is_temporary(path: Path) -> bool:
    """Return whether a file is a temporary file of Sorites, left by a process that ended early."""
    return _TEMPORARY_NAME.fullmatch(path.name) is not None


def check_writable(path: Path) -> None:
    """Check that a file can be written, before long work whose result it will hold.

    Raises:
        SoritesError: The path is a folder, or no file can be created beside it.
    """
    if isinstance(path, StorePath):
        return
    if path.is_dir():
        raise SoritesError(f"cannot write {path}: it is a folder; name a file")
    probe = temporary_name(path)
    write_bytes(b"", probe)
    probe.unlink()


def write_bytes(data: bytes, path: Path) -> None:
    """Write a file atomically: to a temporary name, synced to disk, then renamed.

    Object stores write whole objects anyway.

    Raises:
        SoritesError: The file cannot be written.
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


def local_copies(paths: Sequence[Path]) -> list[Path]:
    """Return local paths of files; those on a store are copied into the cache, once per content."""
    if not any(isinstance(path, StorePath) for path in paths):
        return list(paths)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(PARALLEL_COPIES) as pool:
        return list(pool.map(_local_copy, paths))


def _local_copy(path: Path) -> Path:
    if not isinstance(path, StorePath):
        return path
    copy = _cached_copy(path)
    if not copy.exists():
        write_bytes(path.read_bytes(), copy)
    return copy


def _cached_copy(path: StorePath) -> Path:
    key = hashlib.blake2b(f"{path} {path.tag()}".encode(), digest_size=16).hexdigest()
    return cache("stores", key[:2], f"{key}{path.suffix}")


def forget_copy(path: Path) -> bool:
    """Delete the local copy of a file on a store, so that it is copied again.

    Returns:
        Whether there was a copy that differs from the file.
    """
    if not isinstance(path, StorePath):
        return False
    copy, data = _cached_copy(path), path.read_bytes()
    if not copy.exists() or copy.read_bytes() == data:
        return False
    copy.unlink(missing_ok=True)
    return True


def _put(data: bytes, path: StorePath) -> None:
    try:
        path.put(data)
    except OSError as error:
        raise SoritesError(f"cannot write {path}: {error.strerror or error}. {_remedy(error)}") from error


def _remedy(error: OSError) -> str:
    if error.errno in _DISK_FULL:
        return "Finished work is kept; free some space and repeat the command."
    if error.errno in _FORBIDDEN:
        return "Finished work is kept; choose a writable path, or change its permissions."
    return "Finished work is kept; fix the problem and repeat the command."


def sweep_temporaries(folder: Path) -> None:
    """Delete temporary files that killed processes left in a folder.

    Other files, and subfolders that have their own lock, are not touched.
    """
    for where, folders, names in os.walk(
        folder
    ):  # stores have no temporary files; os.walk finds nothing there
        folders[:] = [
            name for name in folders if not any(Path(where, name, lock).exists() for lock in _LOCK_NAMES)
        ]
        for path in (Path(where, name) for name in names):
            if is_temporary(path):
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(
    folder: Path, kind: str = "run", lock_name: str = "run.lock", again: bool = False
) -> Iterator[None]:
    """Lock a folder against other writing processes; create it if needed.

    Args:
        folder: The folder.
        kind: Kind of the folder, for messages.
        lock_name: Name of the lock file.
        again: Do nothing if this thread holds the lock already.

    Raises:
        SoritesError: Another process holds the lock, or the folder cannot be created.
    """
    folder = to_path(folder)
    held: set[Path] = _held.__dict__.setdefault("locks", set())
    lock = folder.resolve() / lock_name
    if again and lock in held:
        yield
        return
    with _locked(folder, kind, lock_name):
        held.add(lock)
        try:
            yield
        finally:
            held.discard(lock)


@contextlib.contextmanager
def _locked(folder: Path, kind: str, lock_name: str) -> Iterator[None]:
    if isinstance(folder, StorePath):
        with hold(folder / lock_name, folder, kind):
            yield
        return
    import filelock

    lock = filelock.FileLock(folder / lock_name, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except filelock.Timeout as error:
        raise SoritesError(
            f"another process is writing to {folder}; wait for it, or choose another {option('out', 'DIR')}"
        ) from error
    except OSError as error:
        raise SoritesError(f"cannot create the {kind} folder {folder}: {error}") from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def file_lock(lock: Path, seconds: float = -1) -> Iterator[None]:
    """Hold a lock file, which is created if needed; wait up to ``seconds`` for it (negative: forever)."""
    import filelock

    lock.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(lock, timeout=seconds):
        yield


@contextlib.contextmanager
def download_lock(into: Path, seconds: float) -> Iterator[None]:
    """Let one process at a time download into a cache folder; others wait up to ``seconds``.

    A failed download is not retried for ``PATIENCE`` seconds, because many images may request it.
    """
    import filelock

    failed_at, message = _failed_fetches.get(into, (-RETRY_SECONDS, ""))
    if time.monotonic() - failed_at < RETRY_SECONDS:
        raise SoritesError(message)
    try:
        with file_lock(into / ".lock", seconds):
            yield
    except SoritesError as error:
        _failed_fetches[into] = (time.monotonic(), str(error))
        raise
    except filelock.Timeout:
        raise SoritesError(
            f"another process has been downloading into {into} for too long; stop it and try again"
        ) from None
    except OSError as error:
        raise SoritesError(
            f"cannot download into {into}: {error}. Set SORITES_CACHE to a writable folder."
        ) from error


def make_once(path: Path, make: Callable[[], bytes]) -> None:
    """Write a file unless it exists; if several processes need it at once, one makes it and the others
    wait.
    """
    if not path.exists():
        with file_lock(path.with_name(f"{path.name}.lock")):
            if not path.exists():
                write_bytes(make(), path)


def cached(path: Path, make: Callable[[], bytes], read: Callable[[Path], Content]) -> Content:
    """Return ``read(path)`` for a cached file; make the file if it is missing, and again if it cannot be
    read.
    """
    make_once(path, make)
    try:
        return read(path)
    except Exception as error:  # a damaged file makes readers raise nearly anything
        warn_damaged(path, error)
        path.unlink(missing_ok=True)
    make_once(path, make)
    return read(path)


def warn_damaged(path: Path, error: Exception) -> None:
    """Warn that a cached file is damaged and will be made again."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    text = f"the cached file {path} is damaged ({reason}) and will be made again"
    warnings.warn(Notice(text, code="cache_damaged", path=str(path)), stacklevel=3)
