"""Values of one kind held together as a column: texts as bytes, whole numbers as numbers, and what holds others part by part.

A column gives back what went in, equal in type and value. What is neither a text nor a number nor made of such is kept as it is.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import is_
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

_NONE = np.iinfo(np.int64).min
_PATH = type(Path())


class Column(Protocol):
    """Values by position."""

    def __getitem__(self, place: int, /) -> Any:
        """Return the value at a place."""


@dataclasses.dataclass(frozen=True)
class Same:
    """One value everywhere."""

    value: Any

    def __getitem__(self, place: int) -> Any:
        return self.value


class Texts:
    """Texts as UTF-8, one after the other; halves of characters, as names of files may have, are kept."""

    def __init__(self, values: Sequence[str]) -> None:
        spelled = [value.encode("utf-8", "surrogatepass") for value in values]
        ends = np.cumsum(np.fromiter(map(len, spelled), np.int64, len(spelled)))
        self._bytes, self._ends = b"".join(spelled), ends.astype(np.uint32 if not len(ends) or ends[-1] < 1 << 32 else np.int64)

    def __getitem__(self, place: int) -> str:
        start = self._ends[place - 1] if place else 0
        return self._bytes[start : self._ends[place]].decode("utf-8", "surrogatepass")


class Wholes:
    """Whole numbers, or None."""

    def __init__(self, values: Sequence[int | None] | NDArray[np.int64]) -> None:
        held = values if isinstance(values, np.ndarray) else np.array([_NONE if v is None else v for v in values], np.int64)
        small = held.min(initial=0) > -1 << 31 and held.max(initial=0) < 1 << 31
        self._held: NDArray[Any] = held.astype(np.int32) if small else held

    def __getitem__(self, place: int) -> int | None:
        value = int(self._held[place])
        return None if value == _NONE else value


class Made:
    """A column of the results of a function that is called with the values of other columns."""

    def __init__(self, make: Callable[..., Any], parts: Sequence[Column]) -> None:
        self._make, self._parts = make, parts

    def __getitem__(self, place: int) -> Any:
        return self._make(*[part[place] for part in self._parts])


def column(values: Sequence[Any], known: Sequence[tuple[Sequence[Any], Column]] = ()) -> Column:
    """Return the values as a column; where they are those of a ``known`` one, that one."""
    first, last = values[0], values[-1]
    for others, held in known:
        if first is others[0] and all(map(is_, values, others)):
            return held
    if first is last and all(map(is_, values, repeat(first))):
        return Same(first)
    kinds = set(map(type, values))
    if kinds == {str}:
        return Texts(values)
    if kinds <= {int, type(None)}:
        return Wholes(values) if all(value is None or abs(value) < -_NONE for value in values) else list(values)
    if kinds == {_PATH}:
        return Made(Path, [Texts([str(value) for value in values])])
    return _in_parts(values, known) if len(kinds) == 1 else list(values)


def _in_parts(values: Sequence[Any], known: Sequence[tuple[Sequence[Any], Column]]) -> Column:
    """Return calls of one function with other arguments, or records of one class, part by part; anything else as it is."""
    first = values[0]
    if type(first) is functools.partial:
        alike = all(one.func is first.func and not one.keywords and len(one.args) == len(first.args) for one in values)
        if alike and first.args:
            parts = [column(part, known) for part in zip(*(one.args for one in values), strict=True)]
            return Made(functools.partial, [Same(first.func), *parts])
    elif _is_record(type(first)):
        names = [field.name for field in dataclasses.fields(first)]
        return Made(type(first), [column([getattr(one, name) for one in values], known) for name in names])
    return list(values)


def _is_record(kind: type) -> bool:
    """Return whether objects of a class are their fields and nothing else."""
    if not dataclasses.is_dataclass(kind) or hasattr(kind, "__post_init__"):
        return False
    return all(field.init and not field.kw_only for field in dataclasses.fields(kind))
