"""Paths on object stores and other file systems of fsspec, such as ``s3://bucket/run``.

A ``StorePath`` is a path whose methods access the store. Only the file information of a listing is cached.
Paths without a scheme are plain paths, for which fsspec is not imported. Credentials come from where the
store's own library looks for them (environment, configuration files, the role of the machine).
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import functools
import io
import os
import re
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import IO, Any, cast

from sorites.core.errors import MissingExtra, Notice, SoritesError

# A scheme has at least two letters; one letter is a Windows drive.
_SCHEME = re.compile(r"([a-z][a-z0-9+.\-]+)://(?=[^/])")

# Stores that write objects atomically; on others a file is written under another name and renamed.
ATOMIC_SCHEMES = frozenset(
    {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "cos", "obs", "hf", "memory"}
)
OTHER_SCHEMES = frozenset(
    {"file", "local", "sftp", "ssh", "ftp", "hdfs", "webhdfs", "smb", "http", "https", "dask", "zip"}
)
_FIRST_PARTS = frozenset((f"{scheme}:",) for scheme in ATOMIC_SCHEMES | OTHER_SCHEMES)
# Attempts per request if the store does not answer or fails.
MAX_ATTEMPTS = 8
# Seconds without an answer after which a notice says that the store is slow.
SLOW_SECONDS = 10.0


def to_path(text: str | PurePath) -> Path:
    """Return a text or path as a path: on a store if it starts with a scheme, else local.

    Raises:
        SoritesError: It contains a null character or names no bucket.
    """
    if isinstance(text, StorePath):
        return text
    if "\0" in str(text):
        raise SoritesError(f"{str(text)!r} is not a path: it contains a null character")
    path = StorePath(str(text)) if is_on_store(text) else Path(text)
    if len(path.parts) == 1 and path.parts in _FIRST_PARTS:
        raise SoritesError(f"{path.parts[0]}// names no bucket; expected {path.parts[0]}//BUCKET/PATH")
    return path


def is_on_store(text: str | PurePath) -> bool:
    """Return whether a text starts with ``scheme://``, or a path with a store's scheme and one slash, as
    paths store it.
    """
    if isinstance(text, PurePath):
        return isinstance(text, StorePath) or text.parts[:1] in _FIRST_PARTS
    return _SCHEME.match(text) is not None


class StorePath(type(Path())):  # type: ignore[misc]
    """A path on a store; its parts are ``s3:``, ``bucket``, ``key``, and its text is ``s3://bucket/key``."""

    _info: dict[str, Any] | None = None

    def __str__(self) -> str:
        first, *rest = self.parts or ("",)
        return f"{first}//{'/'.join(rest)}" if first.endswith(":") else self._stored()

    def __repr__(self) -> str:
        return f"StorePath({str(self)!r})"

    def __fspath__(self) -> str:
        return str(self)

    def _stored(self) -> str:
        return "/".join(self.parts)

    def __hash__(self) -> int:
        return hash(self._stored())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorePath) and self._stored() == other._stored()

    def __reduce__(self) -> tuple[Any, ...]:
        return StorePath, (str(self),)

    @property
    def scheme(self) -> str:
        return str(self.parts[0]).removesuffix(":")

    @property
    def key(self) -> str:
        """The path in the form that the store's library takes."""
        return "/".join(self.parts[1:])

    @property
    def store(self) -> Any:
        return _store(self.scheme)

    def resolve(self, strict: bool = False) -> StorePath:
        return self

    absolute = expanduser = resolve

    def exists(self, **_: Any) -> bool:
        return self._info is not None or bool(_call(self, self.store.exists, self.key))

    def is_file(self, **_: Any) -> bool:
        return self._info is not None or bool(_call(self, self.store.isfile, self.key))

    def is_dir(self, **_: Any) -> bool:
        return self._info is None and bool(_call(self, self.store.isdir, self.key))

    def is_symlink(self) -> bool:
        return False

    def about(self) -> dict[str, Any]:
        """Return the store's information about a file: its size and, if known, time and content tag."""
        return self._info or cast(dict[str, Any], _call(self, self.store.info, self.key))

    def stat(self, **_: Any) -> os.stat_result:
        """Return size and time; unknown values are 0."""
        about = self.about()
        modified = (
            about.get("LastModified")
            or about.get("updated")
            or about.get("last_modified")
            or about.get("mtime")
            or 0
        )
        seconds = (
            modified
            if isinstance(modified, int | float)
            else modified.timestamp()
            if hasattr(modified, "timestamp")
            else 0
        )
        kind = 0o040755 if about["type"] == "directory" else 0o100644
        return os.stat_result((kind, 0, 0, 1, 0, 0, int(about["size"] or 0), 0, int(seconds), 0))

    def tag(self) -> str:
        """Return the store's content tag of a file, or its size and time if there is none."""
        about = self.about()
        content_tag = (
            about.get("ETag") or about.get("etag") or about.get("md5Hash") or about.get("content_md5")
        )
        return str(content_tag).strip('"') if content_tag else f"{about['size']} {self.stat().st_mtime}"

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Create a folder if the store has folders; object stores have none."""
        if self.scheme not in ATOMIC_SCHEMES:
            _call(self, functools.partial(self.store.makedirs, exist_ok=True), self.key)

    def iterdir(self) -> Iterator[StorePath]:
        yield from _children(self, _call(self, functools.partial(self.store.ls, detail=True), self.key))

    def glob(self, pattern: str, **_: Any) -> Iterator[StorePath]:
        """Yield the direct children whose names match a pattern; none if there is no such folder."""
        try:
            yield from (path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, pattern))
        except FileNotFoundError:
            return

    def files(self) -> list[StorePath]:
        """Return every file below this path, sorted by name, with one listing."""
        listing = _call(self, functools.partial(self.store.find, detail=True), self.key)
        return sorted(_children(self, listing.values()), key=str)

    def open(self, mode: str = "r", *args: Any, **options: Any) -> IO[Any]:
        if "r" in mode and "+" not in mode:
            data = io.BytesIO(self.read_bytes()) if "t" in mode or "b" not in mode else None
            if data is not None:
                return io.TextIOWrapper(data, encoding=options.get("encoding"))
            return cast(
                IO[Any],
                _call(self, functools.partial(self.store.open, mode="rb", block_size=1 << 20), self.key),
            )
        raise SoritesError(f"{self}: files on a store can only be written with put()")

    def read_bytes(self) -> bytes:
        return bytes(_call(self, self.store.cat_file, self.key))

    def read_span(self, offset: int, size: int) -> bytes:
        """Return a byte range of a file with one request."""
        data = _call(self, functools.partial(self.store.cat_file, start=offset, end=offset + size), self.key)
        return bytes(data)

    def read_text(self, encoding: str | None = None, errors: str | None = None, **_: Any) -> str:
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def put(self, data: bytes, only_new: bool = False) -> None:
        """Write a file atomically; with ``only_new``, raise ``FileExistsError`` if it exists and the store
        can tell.
        """
        mode = "create" if only_new else "overwrite"
        if only_new or self.scheme in ATOMIC_SCHEMES:
            _call(self, functools.partial(self.store.pipe_file, mode=mode), self.key, data)
            return
        temporary = self.with_name(f"{self.name}.{os.getpid()}.part")
        self.parent.mkdir()
        _call(self, self.store.pipe_file, temporary.key, data)
        _call(self, self.store.mv, temporary.key, self.key)

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            _call(self, self.store.rm_file, self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rename(self, target: str | PurePath) -> StorePath:
        to = cast(StorePath, to_path(target))
        _call(self, self.store.mv, self.key, to.key)
        return to

    replace = rename

    def samefile(self, other: str | PurePath) -> bool:
        return self == other


def read_span(path: Path, offset: int, size: int) -> bytes:
    """Return a byte range of a local file or a file on a store."""
    if isinstance(path, StorePath):
        return path.read_span(offset, size)
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


def _children(folder: StorePath, listed: Any) -> Iterator[StorePath]:
    """Yield the entries of a listing with their information; some stores also list the folder itself, which
    is skipped.
    """
    for about in listed:
        child = StorePath(f"{folder.scheme}://{str(about['name']).lstrip('/')}")
        if child == folder:
            continue
        if about["type"] == "file":
            child._info = about
        yield child


def _call(path: StorePath, call: Any, *arguments: Any) -> Any:
    """Call the store; convert errors of its library to ``OSError`` with the path.

    A notice is issued if the store does not answer for ``SLOW_SECONDS``, because its library may retry for
    minutes without a word.
    """
    try:
        with _watcher().watch(path):
            return call(*arguments)
    except FileNotFoundError as error:
        what = "bucket" if "bucket" in str(error).lower() else "file"
        raise FileNotFoundError(errno.ENOENT, f"there is no such {what}", str(path)) from error
    except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
        raise type(error)(_number(error), error.strerror or type(error).__name__, str(path)) from error
    except MissingExtra:
        raise
    except Exception as error:  # every store library has its own exceptions
        why = f"the store says: {error or type(error).__name__}"
        raise OSError(_number(error), why, str(path)) from error


def _number(error: Exception) -> int:
    """Return the number of an ``OSError``; errors without one count as input/output errors."""
    return getattr(error, "errno", None) or errno.EIO


class _Watcher:
    """Issues a notice for requests that take long; one thread watches all requests of the process."""

    def __init__(self) -> None:
        self._waiting: dict[object, tuple[float, StorePath]] = {}
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def watch(self, path: StorePath) -> Iterator[None]:
        """Watch one request."""
        request = object()
        self._waiting[request] = (time.monotonic(), path)
        self._start()
        try:
            yield
        finally:
            self._waiting.pop(request, None)

    def _start(self) -> None:
        if self._thread is not None and self._thread.is_alive():  # dead after a fork
            return
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(SLOW_SECONDS / 5)
            for request, (since, path) in list(self._waiting.items()):
                if time.monotonic() - since > SLOW_SECONDS and request in self._waiting:
                    self._waiting.pop(request, None)
                    _report_slow(path)


@functools.cache
def _watcher() -> _Watcher:
    """Return the watcher of this process."""
    return _Watcher()


def _report_slow(path: StorePath) -> None:
    text = (
        f"{path}: the store has not answered for {SLOW_SECONDS:.0f} s. The request is tried up to"
        f" {MAX_ATTEMPTS} times; if all fail, the command stops. Finished work is kept."
    )
    warnings.warn(Notice(text, code="store_slow", path=str(path)), stacklevel=2)


# Libraries of stores that no extra installs.
LIBRARIES = {
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "sftp": "paramiko",
}


@functools.cache
def _store(scheme: str) -> Any:
    """Return the file system of a scheme; listings are not cached, because other processes write there
    too.
    """
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtra(f"a path on a store ({scheme}://)", "remote") from error
    options: dict[str, Any] = {"use_listings_cache": False}
    if scheme in ("s3", "s3a"):
        options["config_kwargs"] = {"retries": {"max_attempts": MAX_ATTEMPTS, "mode": "standard"}}
    try:
        return fsspec.filesystem(scheme, **options)
    except ImportError as error:
        if scheme in ("s3", "s3a"):
            raise MissingExtra(f"a path on a store ({scheme}://)", "remote") from error
        install = f"Type: pip install {LIBRARIES[scheme]}" if scheme in LIBRARIES else str(error)
        raise SoritesError(f"paths on {scheme}:// need a library that is not installed. {install}") from error
    except ValueError as error:
        raise SoritesError(f"unknown kind of store {scheme}: {error}") from error
