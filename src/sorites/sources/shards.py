"""Sources that lie in shards, of which some can be read without the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sorites.core import Sample
from sorites.core.labels import Labels


@dataclass(frozen=True)
class Shard:
    """A part of a source by name, and what reads its samples."""

    name: str
    read: Callable[[], Iterable[Sample]]


# The sources that can be read shard by shard, by name: a function of what follows the name and the
# labels.
SHARDED: dict[str, Callable[[str | None, Labels], Sequence[Shard]]] = {}
