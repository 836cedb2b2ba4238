"""Samples stored in columns, so that sources with millions of samples fit into memory.

A ``Sample`` takes about 550 bytes, and a tenth of that in columns. It is rebuilt when it is accessed. Views
(a slice, an order, a selection) share the columns.
"""

from __future__ import annotations

import dataclasses
import functools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from operator import attrgetter, is_
from pathlib import Path
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from sorites.core.refs import Generated
from sorites.core.rng import hash_prefixes
from sorites.core.samples import CLEAN, Sample

# Stands for None in columns of integers.
_NONE = np.iinfo(np.int64).min
_PATH = type(Path())


class Column(Protocol):
    """Values by index."""

    def __getitem__(self, index: int, /) -> Any:
        """Return the value at an index."""


@dataclasses.dataclass(frozen=True)
class ConstantColumn:
    """A column with the same value everywhere."""

    value: Any

    def __getitem__(self, index: int) -> Any:
        return self.value


class TextColumn:
    """A column of strings, stored as concatenated UTF-8; lone surrogates, as in file names, are preserved."""

    def __init__(self, values: Sequence[str]) -> None:
        encoded = [value.encode("utf-8", "surrogatepass") for value in values]
        ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        self._bytes, self._ends = (
            b"".join(encoded),
            ends.astype(np.uint32 if not len(ends) or ends[-1] < 1 << 32 else np.int64),
        )

    @classmethod
    def joined(cls, data: bytes, ends: NDArray[np.int64]) -> TextColumn:
        """Return a column of strings that are concatenated already, given where each ends."""
        made = cls(())
        made._bytes, small = data, not len(ends) or ends[-1] < 1 << 32
        made._ends = ends.astype(np.uint32 if small else np.int64)
        return made

    def __getitem__(self, index: int) -> str:
        start = self._ends[index - 1] if index else 0
        return self._bytes[start : self._ends[index]].decode("utf-8", "surrogatepass")


class IntegerColumn:
    """A column of integers or None."""

    def __init__(self, values: Sequence[int | None] | NDArray[np.int64]) -> None:
        numbers = (
            values
            if isinstance(values, np.ndarray)
            else np.array([_NONE if v is None else v for v in values], np.int64)
        )
        small = numbers.min(initial=0) > -1 << 31 and numbers.max(initial=0) < 1 << 31
        self._numbers: NDArray[Any] = numbers.astype(np.int32) if small else numbers

    def __getitem__(self, index: int) -> int | None:
        value = int(self._numbers[index])
        return None if value == _NONE else value


class ComputedColumn:
    """A column computed by calling a function with the values of other columns."""

    def __init__(self, make: Callable[..., Any], parts: Sequence[Column]) -> None:
        self._make, self._parts = make, parts

    def __getitem__(self, index: int) -> Any:
        return self._make(*[part[index] for part in self._parts])


def column(values: Sequence[Any], known: Sequence[tuple[Sequence[Any], Column]] = ()) -> Column:
    """Return values as a compact column; reuse the column of ``known`` if it has the same objects."""
    first, last = values[0], values[-1]
    for known_values, existing in known:
        if first is known_values[0] and all(map(is_, values, known_values)):
            return existing
    if first is last and all(map(is_, values, repeat(first))):
        return ConstantColumn(first)
    kinds = set(map(type, values))
    if kinds == {str}:
        return TextColumn(values)
    if kinds <= {int, type(None)}:
        return (
            IntegerColumn(values)
            if all(value is None or abs(value) < -_NONE for value in values)
            else list(values)
        )
    if kinds == {_PATH}:
        return ComputedColumn(Path, [TextColumn([str(value) for value in values])])
    return _in_parts(values, known) if len(kinds) == 1 else list(values)


def _in_parts(values: Sequence[Any], known: Sequence[tuple[Sequence[Any], Column]]) -> Column:
    """Store images made by one function, or instances of one dataclass, as one column per argument; return
    other values as a list.
    """
    first = values[0]
    if type(first) is Generated:
        alike = all(
            value.make is first.make and value.version == first.version and len(value.args) == len(first.args)
            for value in values
        )
        if alike and first.args:
            parts = [column(part, known) for part in zip(*(value.args for value in values), strict=True)]
            return generated_column(first.make, parts, first.version)
    elif _is_record(type(first)):
        fields = [field.name for field in dataclasses.fields(first)]
        parts = [column([getattr(value, name) for value in values], known) for name in fields]
        # Constants at the end are bound once, which makes rebuilding faster.
        same: dict[str, Any] = {}
        while parts and isinstance(last := parts[-1], ConstantColumn):
            same[fields[len(parts) - 1]] = last.value
            parts.pop()
        kind: Callable[..., Any] = type(first)
        return ComputedColumn(functools.partial(kind, **same), parts)
    return list(values)


def generated_column(
    make: Callable[..., Any], parts: Sequence[Column], version: int | str | None = None
) -> Column:
    """Return a column of images that one function makes, given the columns of its arguments."""
    return ComputedColumn(functools.partial(_generated, make, version), parts)


def _generated(make: Callable[..., Any], version: int | str | None, *args: Any) -> Generated:
    return Generated(make, args, version)


def _is_record(kind: type) -> bool:
    """Return whether instances of a class are fully described by their ``__init__`` fields."""
    if not dataclasses.is_dataclass(kind) or hasattr(kind, "__post_init__"):
        return False
    return all(field.init and not field.kw_only for field in dataclasses.fields(kind))


# Samples per block of columns; fewer stay as they are.
SAMPLES_PER_BLOCK = 1 << 14

_FIELDS = tuple(field.name for field in dataclasses.fields(Sample))
_VALUES = attrgetter(*_FIELDS)
_DEFAULTS = {
    field.name: field.default
    for field in dataclasses.fields(Sample)
    if field.default is not dataclasses.MISSING
}


class Block:
    """Consecutive samples stored in columns."""

    def __init__(self, size: int, **columns: Column) -> None:
        """Take the columns by field name of ``Sample``; ``id`` and ``image`` are required, and ids must be
        UTF-8.
        """
        self._size, self._ids = size, columns["id"]
        all_columns = {name: ConstantColumn(value) for name, value in _DEFAULTS.items()} | columns
        self._same = {
            name: values.value for name, values in all_columns.items() if isinstance(values, ConstantColumn)
        }
        self._columns = {
            name: values for name, values in all_columns.items() if not isinstance(values, ConstantColumn)
        }

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Block:
        """Store samples in columns."""
        values = dict(zip(_FIELDS, zip(*map(_VALUES, samples), strict=True), strict=True))
        known = [(ids := values.pop("id"), column(ids))]
        return cls(
            len(samples),
            id=known[0][1],
            **{name: column(field_values, known) for name, field_values in values.items()},
        )

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Sample:
        return Sample(**self._same, **{name: values[index] for name, values in self._columns.items()})

    def id(self, index: int) -> str:
        """Return the id of a sample without building the sample."""
        return str(self._ids[index])

    @functools.cached_property
    def heads(self) -> NDArray[np.uint64]:
        """The first eight bytes of the hash of each id."""
        return hash_prefixes(self._ids[index] for index in range(self._size))

    def field(self, name: str) -> Column:
        """Return a field of all samples without building them."""
        return ConstantColumn(self._same[name]) if name in self._same else self._columns[name]

    def plain(self) -> bool:
        """Return whether all samples are clean and have no dials."""
        return self._same.get("shift") == CLEAN and self._same.get("dials") == ()

    def one_label(self) -> bool:
        """Return whether no sample is known to accept classes besides its label."""
        return self._same.get("accept") == frozenset()


class SampleList:
    """Samples stored as objects, with the interface of ``Block``."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Sample:
        return self._samples[index]

    def id(self, index: int) -> str:
        return self._samples[index].id

    @functools.cached_property
    def heads(self) -> NDArray[np.uint64]:
        return hash_prefixes(sample.id for sample in self._samples)

    def field(self, name: str) -> Column:
        return [getattr(sample, name) for sample in self._samples]

    def plain(self) -> bool:
        return all(sample.shift == CLEAN and not sample.dials for sample in self._samples)

    def one_label(self) -> bool:
        return not any(sample.accept for sample in self._samples)


class PackedSamples(Sequence[Sample]):
    """A sequence of samples in blocks.

    Args:
        blocks: The stored samples.
        order: Indices into all samples of ``blocks``; None means all in order.
        change: Applied to each sample that is accessed; must keep the id.
    """

    def __init__(
        self,
        blocks: Sequence[Block | SampleList],
        order: NDArray[np.int64] | None = None,
        change: Callable[[Sample], Sample] | None = None,
    ) -> None:
        self._blocks, self._order, self._change = blocks, order, change
        self._starts = np.cumsum([0, *map(len, blocks)]).tolist()

    def __len__(self) -> int:
        return int(self._starts[-1]) if self._order is None else len(self._order)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> PackedSamples: ...
    def __getitem__(self, index: int | slice) -> Sample | PackedSamples:
        if isinstance(index, slice):
            return self.take(
                np.arange(len(self))[index] if self._order is None else self._order[index], absolute=True
            )
        block, offset = self._at(self._resolve(index))
        sample = block[offset]
        return sample if self._change is None else self._change(sample)

    def __iter__(self) -> Iterator[Sample]:
        return (self[index] for index in range(len(self)))

    def ids(self) -> Iterator[str]:
        """Yield the ids in order without building samples."""
        if self._order is None:
            return (block.id(i) for block in self._blocks for i in range(len(block)))
        return (block.id(i) for block, i in map(self._at, map(int, self._order)))

    def take(self, places: Sequence[int] | NDArray[Any], absolute: bool = False) -> PackedSamples:
        """Return a view of some samples.

        Args:
            places: Indices into this view, or into all stored samples if ``absolute``.
            absolute: See ``places``.
        """
        chosen = np.asarray(places, np.int64)
        order = chosen if absolute or self._order is None else self._order[chosen]
        return PackedSamples(
            self._blocks, order.astype(np.int32) if self._starts[-1] < 1 << 31 else order, self._change
        )

    def where(self, keep: Callable[[Sample], bool]) -> PackedSamples:
        """Return a view of the samples for which ``keep`` is true."""
        return self.take([index for index, sample in enumerate(self) if keep(sample)])

    def by(self, field: str) -> dict[Any, PackedSamples]:
        """Return views of the samples with each value of a field, in the order of their first samples; builds
        no samples in columns.
        """
        numbers: dict[Any, int] = {}

        def number(value: Any) -> int:
            return numbers.setdefault(value, len(numbers))

        own = self._mapped(field, number, np.int32)
        _, firsts = np.unique(own, return_index=True)
        values = list(numbers)
        return {values[own[first]]: self.take(np.flatnonzero(own == own[first])) for first in np.sort(firsts)}

    def having(self, field: str) -> PackedSamples:
        """Return a view of the samples whose field is not empty; builds no samples in columns."""
        return self.take(np.flatnonzero(self._mapped(field, bool, np.bool_)))

    def _mapped(self, field: str, function: Callable[[Any], Any], kind: type[np.generic]) -> NDArray[Any]:
        """Return a function of a field of each sample."""
        if self._change is not None:
            return np.array([function(getattr(sample, field)) for sample in self], kind)
        stored = [np.empty(0, kind), *(_mapped(block, field, function, kind) for block in self._blocks)]
        joined = np.concatenate(stored)
        return joined if self._order is None else joined[self._order]

    def called(self, id_: str) -> PackedSamples:
        """Return a view of the samples with this id without building others."""
        return self.take([index for index, other in enumerate(self.ids()) if other == id_])

    def changed(self, change: Callable[[Sample], Sample]) -> PackedSamples:
        """Return a view that applies ``change`` to each sample; ids must stay the same."""
        return PackedSamples(self._blocks, self._order, change)

    @classmethod
    def joined(cls, parts: Sequence[PackedSamples]) -> PackedSamples:
        """Concatenate sequences without a ``change`` function."""
        starts = np.cumsum([0, *(part._starts[-1] for part in parts)])
        orders = [
            np.arange(len(part)) if part._order is None else part._order.astype(np.int64) for part in parts
        ]
        blocks = [block for part in parts for block in part._blocks]
        return cls(
            blocks, np.concatenate([order + start for order, start in zip(orders, starts, strict=False)])
        )

    def plain(self) -> bool:
        """Return whether all stored samples are clean and have no dials; builds no samples in columns."""
        return all(block.plain() for block in self._blocks)

    def right_sets(self) -> set[frozenset[int]]:
        """Return the distinct sets of correct classes of all samples; empty if each has one at most."""
        if all(block.one_label() for block in self._blocks):
            return set()
        sets = {block[index].right for block in self._blocks for index in range(len(block))}
        return sets if any(len(right) > 1 for right in sets) else set()

    def heads(self) -> NDArray[np.uint64]:
        """Return the first eight bytes of the hash of each id as integers; collisions are rare."""
        all_heads = np.concatenate([np.empty(0, np.uint64), *(block.heads for block in self._blocks)])
        return all_heads if self._order is None else all_heads[self._order]

    def _resolve(self, index: int) -> int:
        count = len(self)
        if not -count <= index < count:
            raise IndexError(index)
        index = index % count
        return index if self._order is None else int(self._order[index])

    def _at(self, index: int) -> tuple[Block | SampleList, int]:
        block = bisect_right(self._starts, index) - 1
        return self._blocks[block], index - self._starts[block]


def _mapped(
    block: Block | SampleList, field: str, function: Callable[[Any], Any], kind: type[np.generic]
) -> NDArray[Any]:
    """Return a function of a field of each sample of a block; a constant field is passed once."""
    values = block.field(field)
    if isinstance(values, ConstantColumn):
        return np.full(len(block), function(values.value) if len(block) else 0, kind)
    return np.fromiter((function(values[index]) for index in range(len(block))), kind, len(block))


def packed(samples: Iterable[Sample]) -> Sequence[Sample]:
    """Collect a stream of samples: in columns if there are many, else as a list."""
    if isinstance(samples, PackedSamples):
        return samples if len(samples) >= SAMPLES_PER_BLOCK else list(samples)
    blocks: list[Block | SampleList] = []
    remaining = iter(samples)
    while len(chunk := list(islice(remaining, SAMPLES_PER_BLOCK))) == SAMPLES_PER_BLOCK:
        blocks.append(
            Block.of(chunk) if all(type(sample) is Sample for sample in chunk) else SampleList(chunk)
        )
    return PackedSamples([*blocks, SampleList(chunk)]) if blocks else chunk


def as_packed(samples: Sequence[Sample]) -> PackedSamples:
    """Return samples as ``PackedSamples``; a list is wrapped, not copied."""
    return samples if isinstance(samples, PackedSamples) else PackedSamples([SampleList(samples)])


def concatenate(parts: Sequence[PackedSamples]) -> PackedSamples:
    """Concatenate sequences."""
    return parts[0] if len(parts) == 1 else PackedSamples.joined(parts)


class ById(Mapping[str, Sample]):
    """Samples by id; the last one wins if an id occurs twice."""

    def __init__(self, samples: PackedSamples) -> None:
        self._samples = samples

    @functools.cached_property
    def _places(self) -> dict[str, int] | tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Index by id; for many samples the sorted hashes of ids, which take a tenth of a dict's memory."""
        if len(self._samples) <= SAMPLES_PER_BLOCK:
            return {id_: index for index, id_ in enumerate(self._samples.ids())}
        hashes = self._samples.heads()
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order

    def place(self, id_: str) -> int | None:
        """Return the index of the sample with this id, or None."""
        places = self._places
        if isinstance(places, dict):
            return places.get(id_)
        hashes, order = places
        head = hash_prefixes([id_])[0]
        candidates = order[np.searchsorted(hashes, head) : np.searchsorted(hashes, head, side="right")]
        return next(
            (
                int(candidate)
                for candidate in candidates[::-1]
                if next(self._samples.take([candidate]).ids()) == id_
            ),
            None,
        )

    def __getitem__(self, id_: str) -> Sample:
        index = self.place(id_)
        if index is None:
            raise KeyError(id_)
        return self._samples[index]

    def __contains__(self, id_: object) -> bool:
        return isinstance(id_, str) and self.place(id_) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(self._samples.ids()))

    def __len__(self) -> int:
        places = self._places
        if isinstance(places, dict):
            return len(places)
        if (places[0][1:] != places[0][:-1]).all():
            return len(self._samples)
        return sum(1 for _ in self)
