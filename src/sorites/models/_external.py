"""The files in which an ONNX graph keeps its weights, read from the graph itself and without the ``onnx`` package.

An ONNX file is a protocol buffer: a row of fields, each with a number, and nested ones with a length. Only the fields on the way
to a tensor's ``external_data`` are followed; weights inside the file are passed over by their length.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

DEEPEST = 24
"""Nested parts that are followed: a graph inside a branch inside a function is about ten deep."""

_TENSOR: dict[int, str] = {13: "entry"}
_PATHS: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": _TENSOR,
}
"""Kind of message to its fields that lead on, by number; an ``entry`` is a key (1) and its value (2)."""
_VARINT, _EIGHT, _NESTED, _FOUR = 0, 1, 2, 5


def external_files(path: Path) -> list[Path]:
    """Return the files beside a graph that hold some of its weights, in order of their names; none where it cannot be read."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            named = sorted(set(_locations(data, 0, len(data), "model", 0)))
    except (OSError, ValueError, IndexError):
        return []
    inside = [name for name in named if name and not PurePosixPath(name).is_absolute() and "\0" not in name]
    return [place for name in inside if (place := path.parent / name).is_file()]


def _locations(data: mmap.mmap, start: int, stop: int, kind: str, depth: int) -> Iterator[str]:
    """Yield the value of every ``location`` among the external data of the tensors of a message."""
    if depth > DEEPEST:
        return
    for number, first, last in _fields(data, start, stop):
        inner = _PATHS[kind].get(number)
        if inner == "entry":
            entry = {key: data[a:b] for key, a, b in _fields(data, first, last)}
            if entry.get(1) == b"location":
                yield entry.get(2, b"").decode("utf-8")
        elif inner is not None:
            yield from _locations(data, first, last, inner, depth + 1)


def _fields(data: mmap.mmap, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number and the place of each nested field; others are passed over."""
    while start < stop:
        key, start = _number(data, start, stop)
        if key & 7 == _VARINT:
            _, start = _number(data, start, stop)
            continue
        wide = {_EIGHT: 8, _FOUR: 4}.get(key & 7)
        if wide is None and key & 7 != _NESTED:
            raise ValueError("not a protocol buffer")
        length, start = (wide, start) if wide is not None else _number(data, start, stop)
        if start + length > stop:
            raise ValueError("a field ends behind its message")
        if wide is None:
            yield key >> 3, start, start + length
        start += length


def _number(data: mmap.mmap, start: int, stop: int) -> tuple[int, int]:
    """Return a number of seven bits per byte, and where it ends."""
    value = 0
    for place in range(start, min(stop, start + 10)):
        value |= (data[place] & 127) << (7 * (place - start))
        if data[place] < 128:
            return value, place + 1
    raise ValueError("a number without an end")
