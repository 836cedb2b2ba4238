"""Merge the small shards of a finished run into few files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from sorites.core.errors import SoritesError
from sorites.core.progress import Bar
from sorites.core.shard_index import RunShards, write_index
from sorites.evaluation.integrity.unfinished import unfinished
from sorites.evaluation.storage.merge import delete_replaced, merge
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.shards import read_shard
from sorites.io.files import locked
from sorites.io.stores import to_path

# Approximate number of rows of a merged file; shards are not split.
ROWS = 1_000_000


def compact(run: str | Path, rows: int = ROWS, bar: Bar | None = None) -> tuple[int, int]:
    """Merge the shards of a finished run; return the number of files of its table before and after."""
    folder = to_path(run)
    read_record(folder)
    if (left := unfinished(folder)) is not None:
        raise SoritesError(f"{left.found()} Repeat the run to finish it, then compact it.")
    with locked(folder):
        delete_replaced(folder)
        parts = RunShards(folder)
        before, single = parts.files(), sorted(parts.single().values())
        if len(single) < 2:
            write_index(folder)  # a process may have been killed before it did
            return len(before), len(before)
        tick = bar("merging", len(single)) if bar else lambda n: None
        for block in _blocks(single, rows):
            if len(block) > 1:
                merge(folder, block)
            tick(len(block))
        write_index(folder)
    return len(before), len(RunShards(folder).files())


def _blocks(shards: Sequence[Path], rows: int) -> Iterator[list[Path]]:
    """Divide shards into blocks of about so many rows."""
    block: list[Path] = []
    count = 0
    for path in shards:
        block.append(path)
        count += read_shard(path).height
        if count >= rows:
            yield block
            block, count = [], 0
    if block:
        yield block
