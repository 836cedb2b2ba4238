"""Places on object stores and other file systems of fsspec (``s3://bucket/run``), as paths like any other.

A ``StorePath`` is a path whose methods ask the store. Nothing is cached but what a listing said of
the files it listed. What is not spelled with a scheme is a plain path, and fsspec is not imported
for it. Credentials come from where the store's own library looks for them (environment,
configuration files, the machine's role).
"""

from __future__ import annotations

import fnmatch
import functools
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import IO, Any, cast

from sorites.core.errors import MissingExtra, SoritesError

# A scheme of two letters or more.
_SCHEME = re.compile(r"([a-z][a-z0-9+.\-]+)://(?=[^/])")

# Stores on which an object appears whole or not at all when it is put; on others it is put under
# another name and renamed.
WHOLE = frozenset(
    {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "cos", "obs", "hf", "memory"}
)
OTHERS = frozenset(
    {"file", "local", "sftp", "ssh", "ftp", "hdfs", "webhdfs", "smb", "http", "https", "dask", "zip"}
)
_FIRST = frozenset((f"{scheme}:",) for scheme in WHOLE | OTHERS)
# The times a request is sent when the store does not answer or fails.
TRIES = 8


def place(text: str | PurePath) -> Path:
    """Return the path that a text or path names: on a store where it begins with a scheme, else on
    this machine.
    """
    if isinstance(text, StorePath):
        return text
    if "\0" in str(text):
        raise SoritesError(f"{str(text)!r} is no path: it has a null character in it")
    found = StorePath(str(text)) if is_on_store(text) else Path(text)
    if len(found.parts) == 1 and found.parts in _FIRST:
        raise SoritesError(f"{found.parts[0]}// names no bucket; wanted {found.parts[0]}//BUCKET/PATH")
    return found


def is_on_store(text: str | PurePath) -> bool:
    """Return whether a text begins with a scheme and ``://``, or a path with a store's scheme and
    one slash, as paths keep it.
    """
    if isinstance(text, PurePath):
        return isinstance(text, StorePath) or text.parts[:1] in _FIRST
    return _SCHEME.match(text) is not None


class StorePath(type(Path())):  # type: ignore[misc]
    """A path on a store. It is kept as ``s3:/bucket/key`` and spelled ``s3://bucket/key``."""

    _listed: dict[str, Any] | None = None

    def __str__(self) -> str:
        first, *rest = self.parts or ("",)
        return f"{first}//{'/'.join(rest)}" if first.endswith(":") else self._kept()

    def __repr__(self) -> str:
        return f"StorePath({str(self)!r})"

    def __fspath__(self) -> str:
        return str(self)

    def _kept(self) -> str:
        return "/".join(self.parts)

    def __hash__(self) -> int:
        return hash(self._kept())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorePath) and self._kept() == other._kept()

    def __reduce__(self) -> tuple[Any, ...]:
        return StorePath, (str(self),)

    @property
    def scheme(self) -> str:
        return str(self.parts[0]).removesuffix(":")

    @property
    def key(self) -> str:
        """The place as the store's own library takes it."""
        return "/".join(self.parts[1:])

    @property
    def store(self) -> Any:
        return _store(self.scheme)

    def resolve(self, strict: bool = False) -> StorePath:
        return self

    absolute = expanduser = resolve

    def exists(self, **_: Any) -> bool:
        return self._listed is not None or bool(_asked(self, self.store.exists, self.key))

    def is_file(self, **_: Any) -> bool:
        return self._listed is not None or bool(_asked(self, self.store.isfile, self.key))

    def is_dir(self, **_: Any) -> bool:
        return self._listed is None and bool(_asked(self, self.store.isdir, self.key))

    def is_symlink(self) -> bool:
        return False

    def about(self) -> dict[str, Any]:
        """Return what the store says of a file: its size, and where known its time and a tag of its
        content.
        """
        return self._listed or cast(dict[str, Any], _asked(self, self.store.info, self.key))

    def stat(self, **_: Any) -> os.stat_result:
        """Return size and time; what a store does not know is 0."""
        about = self.about()
        when = (
            about.get("LastModified")
            or about.get("updated")
            or about.get("last_modified")
            or about.get("mtime")
            or 0
        )
        seconds = (
            when if isinstance(when, int | float) else when.timestamp() if hasattr(when, "timestamp") else 0
        )
        kind = 0o040755 if about["type"] == "directory" else 0o100644
        return os.stat_result((kind, 0, 0, 1, 0, 0, int(about["size"] or 0), 0, int(seconds), 0))

    def tag(self) -> str:
        """Return the store's tag of a file's content; its size and time where it has no tag."""
        about = self.about()
        known = about.get("ETag") or about.get("etag") or about.get("md5Hash") or about.get("content_md5")
        return str(known).strip('"') if known else f"{about['size']} {self.stat().st_mtime}"

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Make a folder where the store has some; an object store has none."""
        if self.scheme not in WHOLE:
            _asked(self, functools.partial(self.store.makedirs, exist_ok=True), self.key)

    def iterdir(self) -> Iterator[StorePath]:
        yield from _children(self, _asked(self, functools.partial(self.store.ls, detail=True), self.key))

    def glob(self, pattern: str, **_: Any) -> Iterator[StorePath]:
        """Yield what lies in this folder under names of a pattern; none where there is no folder."""
        try:
            yield from (path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, pattern))
        except FileNotFoundError:
            return

    def files(self) -> list[StorePath]:
        """Return every file below, by one listing, in the order of their names."""
        found = _asked(self, functools.partial(self.store.find, detail=True), self.key)
        return sorted(_children(self, found.values()), key=str)

    def open(self, mode: str = "r", *args: Any, **options: Any) -> IO[Any]:
        if "r" in mode and "+" not in mode:
            data = io.BytesIO(self.read_bytes()) if "t" in mode or "b" not in mode else None
            if data is not None:
                return io.TextIOWrapper(data, encoding=options.get("encoding"))
            return cast(
                IO[Any],
                _asked(self, functools.partial(self.store.open, mode="rb", block_size=1 << 20), self.key),
            )
        raise SoritesError(f"{self}: files on a store are written whole")

    def read_bytes(self) -> bytes:
        return bytes(_asked(self, self.store.cat_file, self.key))

    def read_span(self, offset: int, size: int) -> bytes:
        """Return some bytes of a file, by one request."""
        found = _asked(
            self, functools.partial(self.store.cat_file, start=offset, end=offset + size), self.key
        )
        return bytes(found)

    def read_text(self, encoding: str | None = None, errors: str | None = None, **_: Any) -> str:
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def put(self, data: bytes, only_new: bool = False) -> None:
        """Put a whole file or none; with ``only_new`` one that is there is an error, as far as the
        store can tell.
        """
        mode = "create" if only_new else "overwrite"
        if only_new or self.scheme in WHOLE:
            _asked(self, functools.partial(self.store.pipe_file, mode=mode), self.key, data)
            return
        beside = self.with_name(f"{self.name}.{os.getpid()}.part")
        self.parent.mkdir()
        _asked(self, self.store.pipe_file, beside.key, data)
        _asked(self, self.store.mv, beside.key, self.key)

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            _asked(self, self.store.rm_file, self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rename(self, target: str | PurePath) -> StorePath:
        to = cast(StorePath, place(target))
        _asked(self, self.store.mv, self.key, to.key)
        return to

    replace = rename

    def samefile(self, other: str | PurePath) -> bool:
        return self == other


def read_span(path: Path, offset: int, size: int) -> bytes:
    """Return some bytes of a file, wherever it lies."""
    if isinstance(path, StorePath):
        return path.read_span(offset, size)
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


def _children(folder: StorePath, listed: Any) -> Iterator[StorePath]:
    """Yield what a listing names, each with what the listing said of it; a store lists the folder
    itself at times.
    """
    for about in listed:
        child = StorePath(f"{folder.scheme}://{str(about['name']).lstrip('/')}")
        if child == folder:
            continue
        if about["type"] == "file":
            child._listed = about
        yield child


def _asked(path: StorePath, ask: Any, *words: Any) -> Any:
    """Return what the store answers; what its library raises becomes an error of the system that
    names the place.
    """
    try:
        return ask(*words)
    except (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError) as error:
        raise type(error)(error.errno, error.strerror or "there is no such file", str(path)) from error
    except (PermissionError, TimeoutError, OSError) as error:
        raise OSError(error.errno, f"the store says: {error}", str(path)) from error
    except MissingExtra:
        raise
    except Exception as error:  # libraries of stores raise errors of their own
        raise OSError(None, f"the store says: {error or type(error).__name__}", str(path)) from error


# The libraries of stores that no extra brings.
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
    """Return the file system of a scheme, which keeps no listings: others write there too."""
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtra(f"a place on a store ({scheme}://)", "remote") from error
    options: dict[str, Any] = {"use_listings_cache": False}
    if scheme in ("s3", "s3a"):
        options["config_kwargs"] = {"retries": {"max_attempts": TRIES, "mode": "standard"}}
    try:
        return fsspec.filesystem(scheme, **options)
    except ImportError as error:
        if scheme in ("s3", "s3a"):
            raise MissingExtra(f"a place on a store ({scheme}://)", "remote") from error
        install = f"Type: pip install {LIBRARIES[scheme]}" if scheme in LIBRARIES else str(error)
        raise SoritesError(
            f"places on {scheme}:// need a library that is not installed. {install}"
        ) from error
    except ValueError as error:
        raise SoritesError(f"there is no kind of store called {scheme}: {error}") from error
