"""Samples in columns: a source of millions streams through, and a sample is made again when it is asked for.

A ``Sample`` takes about 550 bytes, and in columns a tenth of that. Views (a slice, an order, some
of them) share the columns.
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

from sorites.core.rng import heads
from sorites.core.samples import CLEAN, Sample

# Values of one kind held together as a column: texts as bytes, whole numbers as numbers, and what holds
# others part by part.


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
        self._bytes, self._ends = (
            b"".join(spelled),
            ends.astype(np.uint32 if not len(ends) or ends[-1] < 1 << 32 else np.int64),
        )

    def __getitem__(self, place: int) -> str:
        start = self._ends[place - 1] if place else 0
        return self._bytes[start : self._ends[place]].decode("utf-8", "surrogatepass")


class Wholes:
    """Whole numbers, or None."""

    def __init__(self, values: Sequence[int | None] | NDArray[np.int64]) -> None:
        held = (
            values
            if isinstance(values, np.ndarray)
            else np.array([_NONE if v is None else v for v in values], np.int64)
        )
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
        return (
            Wholes(values) if all(value is None or abs(value) < -_NONE for value in values) else list(values)
        )
    if kinds == {_PATH}:
        return Made(Path, [Texts([str(value) for value in values])])
    return _in_parts(values, known) if len(kinds) == 1 else list(values)


def _in_parts(values: Sequence[Any], known: Sequence[tuple[Sequence[Any], Column]]) -> Column:
    """Return calls of one function with other arguments, or records of one class, part by part;
    anything else as it is.
    """
    first = values[0]
    if type(first) is functools.partial:
        alike = all(
            one.func is first.func and not one.keywords and len(one.args) == len(first.args) for one in values
        )
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


# Samples that become a block of columns; fewer stay as they are.
TOGETHER = 1 << 14

_FIELDS = tuple(field.name for field in dataclasses.fields(Sample))
_VALUES = attrgetter(*_FIELDS)
_DEFAULTS = {
    field.name: field.default
    for field in dataclasses.fields(Sample)
    if field.default is not dataclasses.MISSING
}


class Block:
    """Samples that came one after the other, in columns."""

    def __init__(self, size: int, **columns: Column) -> None:
        """Take the columns by the names of a sample's fields; ``id`` and ``load`` are needed, and
        ids must be UTF-8.
        """
        self._size, self._ids = size, columns["id"]
        held = {name: Same(value) for name, value in _DEFAULTS.items()} | columns
        self._same = {name: one.value for name, one in held.items() if isinstance(one, Same)}
        self._columns = {name: one for name, one in held.items() if not isinstance(one, Same)}

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Block:
        """Put samples into columns."""
        values = dict(zip(_FIELDS, zip(*map(_VALUES, samples), strict=True), strict=True))
        known = [(ids := values.pop("id"), column(ids))]
        return cls(
            len(samples), id=known[0][1], **{name: column(some, known) for name, some in values.items()}
        )

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: int) -> Sample:
        return Sample(**self._same, **{name: held[place] for name, held in self._columns.items()})

    def id(self, place: int) -> str:
        """Return the id of a sample, which is not made for that."""
        return str(self._ids[place])

    @functools.cached_property
    def heads(self) -> NDArray[np.uint64]:
        """The first eight bytes of the hash of each id."""
        return heads(self._ids[place] for place in range(self._size))

    def plain(self) -> bool:
        """Return whether all of its samples are clean and have no dials of their own."""
        return self._same.get("shift") == CLEAN and self._same.get("dials") == ()


class Whole:
    """Samples kept as they are."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, place: int) -> Sample:
        return self._samples[place]

    def id(self, place: int) -> str:
        return self._samples[place].id

    @functools.cached_property
    def heads(self) -> NDArray[np.uint64]:
        return heads(sample.id for sample in self._samples)

    def plain(self) -> bool:
        return all(sample.shift == CLEAN and not sample.dials for sample in self._samples)


class PackedSamples(Sequence[Sample]):
    """Samples in blocks, seen in an order of their own; ``change`` is applied to each one that is
    asked for.
    """

    def __init__(
        self,
        blocks: Sequence[Block | Whole],
        order: NDArray[np.int64] | None = None,
        change: Callable[[Sample], Sample] | None = None,
    ) -> None:
        self._blocks, self._order, self._change = blocks, order, change
        self._starts = np.cumsum([0, *map(len, blocks)]).tolist()

    def __len__(self) -> int:
        return int(self._starts[-1]) if self._order is None else len(self._order)

    @overload
    def __getitem__(self, place: int) -> Sample: ...
    @overload
    def __getitem__(self, place: slice) -> PackedSamples: ...
    def __getitem__(self, place: int | slice) -> Sample | PackedSamples:
        if isinstance(place, slice):
            return self.take(
                np.arange(len(self))[place] if self._order is None else self._order[place], absolute=True
            )
        found = self._at(self._resolved(place))
        sample = found[0][found[1]]
        return sample if self._change is None else self._change(sample)

    def __iter__(self) -> Iterator[Sample]:
        return (self[place] for place in range(len(self)))

    def ids(self) -> Iterator[str]:
        """Yield the ids in order; no sample is made for that."""
        if self._order is None:
            return (block.id(i) for block in self._blocks for i in range(len(block)))
        return (block.id(i) for block, i in map(self._at, map(int, self._order)))

    def take(self, places: Sequence[int] | NDArray[Any], absolute: bool = False) -> PackedSamples:
        """Return a view of the samples at some places."""
        chosen = np.asarray(places, np.int64)
        order = chosen if absolute or self._order is None else self._order[chosen]
        return PackedSamples(
            self._blocks, order.astype(np.int32) if self._starts[-1] < 1 << 31 else order, self._change
        )

    def where(self, keep: Callable[[Sample], bool]) -> PackedSamples:
        """Return a view of the samples that ``keep`` is true of."""
        return self.take([place for place, sample in enumerate(self) if keep(sample)])

    def called(self, id_: str) -> PackedSamples:
        """Return a view of the samples that have an id; no other is made for that."""
        return self.take([place for place, one in enumerate(self.ids()) if one == id_])

    def changed(self, change: Callable[[Sample], Sample]) -> PackedSamples:
        """Return a view whose samples are what a function makes of each; their ids stay."""
        return PackedSamples(self._blocks, self._order, change)

    @classmethod
    def joined(cls, parts: Sequence[PackedSamples]) -> PackedSamples:
        """Return several sequences as one, in order; none of them may be changed."""
        starts = np.cumsum([0, *(part._starts[-1] for part in parts)])
        orders = [
            np.arange(len(part)) if part._order is None else part._order.astype(np.int64) for part in parts
        ]
        blocks = [block for part in parts for block in part._blocks]
        return cls(
            blocks, np.concatenate([order + start for order, start in zip(orders, starts, strict=False)])
        )

    def plain(self) -> bool:
        """Return whether all samples are clean and have no dials of their own, as far as that is
        known without making any.
        """
        return all(block.plain() for block in self._blocks)

    def heads(self) -> NDArray[np.uint64]:
        """Return the first eight bytes of the hash of each id, as a number: in most sources no two
        are the same.
        """
        found = np.concatenate([np.empty(0, np.uint64), *(block.heads for block in self._blocks)])
        return found if self._order is None else found[self._order]

    def _resolved(self, place: int) -> int:
        count = len(self)
        if not -count <= place < count:
            raise IndexError(place)
        place = place % count
        return place if self._order is None else int(self._order[place])

    def _at(self, place: int) -> tuple[Block | Whole, int]:
        block = bisect_right(self._starts, place) - 1
        return self._blocks[block], place - self._starts[block]


def packed(samples: Iterable[Sample]) -> Sequence[Sample]:
    """Return samples as they stream in: many in columns, few as a list."""
    if isinstance(samples, PackedSamples):
        return samples if len(samples) >= TOGETHER else list(samples)
    blocks: list[Block | Whole] = []
    left = iter(samples)
    while len(some := list(islice(left, TOGETHER))) == TOGETHER:
        blocks.append(Block.of(some) if all(type(sample) is Sample for sample in some) else Whole(some))
    return PackedSamples([*blocks, Whole(some)]) if blocks else some


def seen(samples: Sequence[Sample]) -> PackedSamples:
    """Return samples as packed ones; those of a list are kept as they are."""
    return samples if isinstance(samples, PackedSamples) else PackedSamples([Whole(samples)])


def joined(parts: Sequence[PackedSamples]) -> PackedSamples:
    """Return several sequences as one, in order."""
    return parts[0] if len(parts) == 1 else PackedSamples.joined(parts)


class ById(Mapping[str, Sample]):
    """Samples by their ids. Where two have one id, the last counts."""

    def __init__(self, samples: PackedSamples) -> None:
        self._samples = samples

    @functools.cached_property
    def _places(self) -> dict[str, int] | tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """The places by id; of many samples by the sorted hashes of ids, which take a tenth of that."""
        if len(self._samples) <= TOGETHER:
            return {id_: place for place, id_ in enumerate(self._samples.ids())}
        found = self._samples.heads()
        order = np.argsort(found, kind="stable")
        return found[order], order

    def place(self, id_: str) -> int | None:
        """Return the place of a sample, or None where none has the id."""
        places = self._places
        if isinstance(places, dict):
            return places.get(id_)
        known, order = places
        head = heads([id_])[0]
        some = order[np.searchsorted(known, head) : np.searchsorted(known, head, side="right")]
        return next((int(one) for one in some[::-1] if next(self._samples.take([one]).ids()) == id_), None)

    def __getitem__(self, id_: str) -> Sample:
        place = self.place(id_)
        if place is None:
            raise KeyError(id_)
        return self._samples[place]

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
