"""Registry of sources whose shards can be read independently."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sorites.core import Sample
from sorites.core.labels import Labels


@dataclass(frozen=True)
class Shard:
    """A named part of a source, and the function that reads its samples."""

    name: str
    read: Callable[[], Iterable[Sample]]


# Maps the name of a source to a function that lists its shards, given the path and the labels.
SHARDED: dict[str, Callable[[str | None, Labels], Sequence[Shard]]] = {}
