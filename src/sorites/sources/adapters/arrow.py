"""Read columns of Arrow streams in place, as ``datasets`` writes them with ``save_to_disk``.

A stream is a schema and record batches, each a flatbuffer followed by uncompressed buffers. Only the
positions of values are computed, so that the bytes of an image are later read from the file like a member of
a tar; no Arrow library is needed. The format is described in https://arrow.apache.org/docs/format/Columnar.html.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError

CONTINUATION = 0xFFFFFFFF
SCHEMA, RECORD_BATCH = 1, 3
# The maximum nesting depth of columns.
MAX_DEPTH = 16
NULL, INT, BINARY, TEXT, LIST, STRUCT, FIXED_LIST, MAP = 1, 2, 4, 5, 12, 13, 16, 17
LARGE_BINARY, LARGE_TEXT, LARGE_LIST = 19, 20, 21
BYTES, TEXTS = (BINARY, LARGE_BINARY), (TEXT, LARGE_TEXT)
# The number of buffers of each type, without those of its children; other types have two.
BUFFERS = {NULL: 0, STRUCT: 1, FIXED_LIST: 1, **dict.fromkeys((*BYTES, *TEXTS), 3)}
# The type of columns whose values are numbers of a dictionary.
CODED = -1
# Types whose buffers cannot be counted that way: unions, run-end encoding and views.
UNSUPPORTED = (14, 22, 23, 24, 25, 26)


@dataclass(frozen=True)
class Table:
    """A table of a flatbuffer, at a position of the data."""

    data: Any
    at: int

    def _slot(self, number: int) -> int | None:
        """Return the position of a field, or None if it has its default."""
        vtable = self.at - self._read("<i", self.at)
        size = self._read("<H", vtable)
        offset = self._read("<H", vtable + 4 + 2 * number) if 4 + 2 * number < size else 0
        return self.at + offset if offset else None

    def _read(self, kind: str, at: int) -> int:
        if at < 0:
            raise struct.error("a negative position")
        value: int = struct.unpack_from(kind, self.data, at)[0]
        return value

    def number(self, number: int, kind: str, default: int = 0) -> int:
        """Return a number by the number of its field; ``kind`` is its format for ``struct``."""
        slot = self._slot(number)
        return default if slot is None else self._read(kind, slot)

    def table(self, number: int) -> Table | None:
        """Return a nested table."""
        slot = self._slot(number)
        return None if slot is None else Table(self.data, slot + self._read("<I", slot))

    def text(self, number: int) -> str:
        """Return a text; empty if absent."""
        slot = self._slot(number)
        if slot is None:
            return ""
        at = slot + self._read("<I", slot)
        return bytes(self.data[at + 4 : at + 4 + self._read("<I", at)]).decode("utf-8", "replace")

    def _vector(self, number: int) -> tuple[int, int]:
        slot = self._slot(number)
        if slot is None:
            return 0, 0
        at = slot + self._read("<I", slot)
        return at + 4, self._read("<I", at)

    def tables(self, number: int) -> list[Table]:
        """Return a vector of tables."""
        start, count = self._vector(number)
        places = range(start, start + 4 * min(count, len(self.data) // 4), 4)
        return [Table(self.data, at + self._read("<I", at)) for at in places]

    def pairs(self, number: int) -> NDArray[np.int64]:
        """Return a vector of pairs of 64-bit numbers, N x 2."""
        start, count = self._vector(number)
        return (
            np.frombuffer(self.data, "<i8", 2 * count, start).reshape(-1, 2)
            if count
            else np.empty((0, 2), np.int64)
        )


@dataclass(frozen=True)
class Column:
    """A column of the schema: its name, type, children, and the number of its first buffer."""

    name: str
    kind: int
    buffer: int
    bits: int = 0
    signed: bool = True
    children: Mapping[str, Column] = field(default_factory=dict)


def _column(table: Table, buffer: int, depth: int = 0) -> tuple[Column, int]:
    """Return a column and the number of the buffer after its last one."""
    kind = table.number(2, "<B")
    name = table.text(0)
    if kind in UNSUPPORTED or depth > MAX_DEPTH:
        raise SoritesError(f"column {name} has an Arrow type that is not supported (number {kind})")
    coded = table.table(4) is not None
    after = buffer + (2 if coded else BUFFERS.get(kind, 2))
    children: dict[str, Column] = {}
    for part in () if coded else table.tables(5):
        child, after = _column(part, after, depth + 1)
        children[child.name] = child
    type_ = table.table(3) if kind == INT else None
    bits, signed = (0, True) if type_ is None else (type_.number(0, "<i"), bool(type_.number(1, "<B")))
    return Column(name, CODED if coded else kind, buffer, bits, signed, children), after


@dataclass(frozen=True)
class Batch:
    """A record batch: its number of rows, and position and size of each buffer in the file."""

    rows: int
    buffers: NDArray[np.int64]


class Stream:
    """An Arrow stream on this machine.

    Args:
        path: The file.

    Raises:
        SoritesError: It is damaged, compressed, or no stream.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: dict[str, Column] = {}
        self.batches: list[Batch] = []
        with _Reading(path) as data:
            for header, kind, body in _messages(data):
                self._add(header, kind, body, len(data))

    def _add(self, header: Table, kind: int, body: int, length: int) -> None:
        if kind == SCHEMA:
            buffer = 0
            for table in header.tables(1):
                column, buffer = _column(table, buffer)
                self.columns[column.name] = column
        elif kind == RECORD_BATCH:
            if header.table(3) is not None:
                raise SoritesError("its buffers are compressed, so that they cannot be read in place")
            buffers = header.pairs(2) + np.array([body, 0])
            if len(buffers) and (buffers.min() < 0 or int(buffers.sum(axis=1).max()) > length):
                raise ValueError("a buffer lies outside the file")
            self.batches.append(Batch(header.number(0, "<q"), buffers))

    def __len__(self) -> int:
        return sum(batch.rows for batch in self.batches)

    def spans(self, column: Column) -> NDArray[np.int64]:
        """Return the position and size of each value of a column of bytes or texts in the file, N x 2; the
        size of a missing value is -1.
        """
        wide = column.kind in (LARGE_BINARY, LARGE_TEXT)
        with _Reading(self.path) as data:
            parts = [self._spans(data, batch, column, "<i8" if wide else "<i4") for batch in self.batches]
        return np.concatenate([np.empty((0, 2), np.int64), *parts])

    def _spans(self, data: Any, batch: Batch, column: Column, kind: str) -> NDArray[np.int64]:
        (start, _), (values, length) = batch.buffers[column.buffer + 1], batch.buffers[column.buffer + 2]
        if not batch.rows:
            return np.empty((0, 2), np.int64)
        offsets = np.frombuffer(data, kind, batch.rows + 1, int(start)).astype(np.int64)
        sizes = np.diff(offsets)
        if offsets[0] < 0 or sizes.min() < 0 or offsets[-1] > length:
            raise ValueError("a value lies outside its buffer")
        return np.stack(
            [values + offsets[:-1], np.where(self._valid(data, batch, column), sizes, -1)], axis=1
        )

    def _valid(self, data: Any, batch: Batch, column: Column) -> NDArray[np.bool_]:
        start, size = batch.buffers[column.buffer]
        if not size:
            return np.ones(batch.rows, bool)
        bits = np.frombuffer(data, np.uint8, -(-batch.rows // 8), int(start))
        return np.unpackbits(bits, count=batch.rows, bitorder="little").astype(bool)

    def values(self, column: Column) -> list[Any]:
        """Return the values of a column of whole numbers or texts; None where there is none.

        Raises:
            SoritesError: The column has another type.
        """
        if column.kind in TEXTS:
            spans = self.spans(column).tolist()
            with _Reading(self.path) as data:
                return [
                    None if n < 0 else bytes(data[at : at + n]).decode("utf-8", "replace") for at, n in spans
                ]
        if column.kind != INT or column.bits not in (8, 16, 32, 64):
            raise SoritesError(f"column {column.name}: expected texts or whole numbers")
        kind = f"<{'i' if column.signed else 'u'}{column.bits // 8}"
        with _Reading(self.path) as data:
            return [value for batch in self.batches for value in self._numbers(data, batch, column, kind)]

    def _numbers(self, data: Any, batch: Batch, column: Column, kind: str) -> Iterator[int | None]:
        numbers = np.frombuffer(data, kind, batch.rows, int(batch.buffers[column.buffer + 1][0])).tolist()
        valid = self._valid(data, batch, column).tolist()
        return (number if there else None for number, there in zip(numbers, valid, strict=True))


class _Reading:
    """Maps a file into memory, and turns the errors of damaged files into ``SoritesError``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> memoryview:
        try:
            with self._path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise SoritesError(f"cannot read {self._path}: {error}") from error
        return memoryview(self._map)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, SoritesError):
            raise SoritesError(f"{self._path}: {error}") from error
        if isinstance(error, struct.error | ValueError | IndexError | OverflowError):
            raise SoritesError(f"{self._path} is not a complete Arrow stream: {error}") from error


def _messages(data: memoryview) -> Iterator[tuple[Table, int, int]]:
    """Yield the header, its kind and the position of the body of each message."""
    at = 0
    while at + 8 <= len(data):
        mark, size = struct.unpack_from("<II", data, at)
        if mark != CONTINUATION:
            raise ValueError("it does not begin with a message")
        if size == 0:
            return
        start = at + 8
        message = Table(data, start + struct.unpack_from("<I", data, start)[0])
        header, body = message.table(2), message.number(3, "<q")
        at = start + size + body
        if header is None or body < 0 or at > len(data):
            raise ValueError("a message is cut off")
        yield header, message.number(1, "<B"), start + size
    raise ValueError("its end is missing")
