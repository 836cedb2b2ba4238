"""Append-only logs: one JSON object per line, each of which ends with the digest of the line.

A process that is killed may leave an unfinished last line, which is ignored and cut off when the log is
opened again. Any other line that does not match its digest is damage.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from sorites.core.errors import Damaged, SoritesError
from sorites.io.digests import DIGEST_BYTES, MISMATCH, digest_of
from sorites.io.listed import RESTORE
from sorites.io.paths import exists, is_file, reason
from sorites.io.validation import Record, problems

_END = re.compile(rb', "digest": "(?P<digest>[0-9a-f]{%d})"}' % (2 * DIGEST_BYTES))
_END_LENGTH = len(b', "digest": ""}') + 2 * DIGEST_BYTES


class Entry(Record):
    """An event of a log. A subclass declares its fields, and ``event`` as a literal."""

    event: str
    time: float = 0.0
    """Seconds since 1970, set when the entry is written."""


E = TypeVar("E", bound=Entry)


def sealed_line(entry: Mapping[str, Any]) -> bytes:
    """Return a line of a log.

    Args:
        entry: At least one key, and none called ``digest``.
    """
    body = json.dumps(entry).encode().removesuffix(b"}")
    return b'%s, "digest": "%s"}\n' % (body, digest_of(body).encode())


def read_log(path: Path, remedy: str) -> Iterator[dict[str, Any]]:
    """Yield the entries of a log in order, without their digests; a missing file has none.

    Args:
        path: The log.
        remedy: What to do about a damaged line.

    Raises:
        Damaged: A line does not match its digest; the reason has its number.
        SoritesError: The file cannot be read.
    """
    try:
        if exists(path) and not is_file(path):
            raise OSError("it is not a file")
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise SoritesError(f"cannot read {path}: {reason(error)}") from error
    for number, line in enumerate(_lines(path, content, remedy), start=1):
        if not _is_sealed(line):
            raise Damaged(path, f"line {number}: {MISMATCH}", remedy)
        try:
            entry = json.loads(line[:-_END_LENGTH] + b"}")
        except (ValueError, RecursionError) as error:  # somebody computed the digest of something else
            raise Damaged(path, f"line {number}: it is not JSON: {error}", remedy) from error
        yield entry


def read_entries(path: Path, kinds: TypeAdapter[E], remedy: str) -> Iterator[E]:
    """Yield the entries of a log as one of the kinds that it may contain.

    Raises:
        Damaged: A line does not match its digest, or has fields of no kind; the reason has its number.
    """
    for number, entry in enumerate(read_log(path, remedy), start=1):
        try:
            yield kinds.validate_python(entry)
        except ValidationError as error:
            raise Damaged(path, f"line {number}: {problems(error, Entry)[0]}", remedy) from error


def _is_sealed(line: bytes) -> bool:
    """Return whether a line, without its end, matches its digest."""
    match = _END.fullmatch(line[-_END_LENGTH:])
    return match is not None and match["digest"].decode() == digest_of(line[:-_END_LENGTH])


def _lines(path: Path, content: bytes, remedy: str) -> list[bytes]:
    """Return the finished lines of a log.

    Raises:
        Damaged: The last line is complete, but another byte stands in place of its end.
    """
    *lines, rest = content.split(b"\n")
    if rest and _is_sealed(rest[:-1]):
        raise Damaged(path, f"line {len(lines) + 1}: its end has changed", remedy)
    return lines


class Log:
    """An append-only file of entries; several threads may add to it.

    Args:
        path: The file; it is created if needed, and an unfinished last line is cut off.
        common: Values that every entry contains.

    Raises:
        Damaged: The end of the last line has changed.
        SoritesError: The file cannot be written.
    """

    def __init__(self, path: Path, **common: Any) -> None:
        self.path, self._common, self._lock = path, common, threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            content = path.read_bytes() if path.exists() else b""
            lines = _lines(path, content, RESTORE)
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            if (finished := sum(len(line) + 1 for line in lines)) < len(content):
                os.ftruncate(self._file, finished)
        except OSError as error:
            raise SoritesError(f"cannot write {path}: {reason(error)}") from error

    def add(self, event: str, **facts: Any) -> dict[str, Any]:
        """Append an event with the time and flush it to disk."""
        entry = {"event": event, "time": round(time.time(), 3), **self._common, **facts}
        self.append(entry)
        return entry

    def write(self, entry: Entry) -> None:
        """Append a typed event with the time and flush it to disk."""
        fields = entry.model_dump(exclude={"event", "time", *self._common}, by_alias=True)
        self.add(entry.event, **fields)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Append an entry and flush it to disk.

        Raises:
            SoritesError: It cannot be written.
        """
        try:
            with self._lock:
                os.write(self._file, sealed_line(entry))
                os.fsync(self._file)
        except OSError as error:
            raise SoritesError(
                f"cannot write {self.path}: {reason(error)}. Free disk space, then repeat the command"
            ) from error

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
