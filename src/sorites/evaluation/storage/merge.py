"""Merge shards of a run into few files, also while it runs, and split them again; the table stays the same.

A merged shard names the shards that it replaces (``core.shard_index``). It is written before they are
deleted, so that every row exists exactly once for readers at any time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import polars as pl

from sorites.core.shard_index import PARQUET, PREDICTIONS, RunShards, forget_index, write_merged
from sorites.core.table import write_shard
from sorites.evaluation.storage.shards import read_shard
from sorites.io import digests

# Approximate number of rows of a file that is merged while the run goes on, in the memory of its process.
RUNNING_ROWS = 1 << 18
# Shards of a finished run below which nothing is merged while it runs.
MIN_SHARDS = 1_000


def merge(folder: Path, shards: Sequence[Path]) -> Path:
    """Merge some shards, in this order, and delete them; return the merged one.

    Raises:
        Damaged: One of them is damaged.
    """
    frames = [read_shard(path) for path in shards]
    stems = [digests.stem_of(path.name) or "" for path in shards]
    contained = [(stem, frame.height) for stem, frame in zip(stems, frames, strict=True)]
    merged = write_merged(folder, pl.concat(frames), contained)
    _delete(shards)
    return merged


def expand(folder: Path, stems: Collection[str] | None = None) -> bool:
    """Restore the shards of a compacted run; the caller holds the lock.

    Args:
        folder: The run folder.
        stems: Restore only the merged shards that contain one of these.

    Returns:
        Whether there were any.
    """
    delete_replaced(folder)
    found = False
    for name, contained in RunShards(folder).merged.items():
        if stems is not None and not any(stem in stems for stem, _ in contained):
            continue
        frame, start = read_shard(folder / PREDICTIONS / name), 0
        for stem, count in contained:
            write_shard(frame.slice(start, count), folder, stem)
            start += count
        # Until now, readers ignore the restored shards.
        _delete([folder / PREDICTIONS / name])
        found = True
    return found


def delete_replaced(folder: Path) -> None:
    """Delete shards that a merged one replaces, which a killed process left behind."""
    parts = RunShards(folder)
    if not parts.covered:
        return
    present = digests.all_shards_in(folder / PREDICTIONS, PARQUET)
    left = [path for stem in parts.covered for path in present.get(stem, ())]
    if left:
        forget_index(folder)
        _delete(left)


class Merger:
    """Merges the shards of a run while it goes on, on a thread of its own.

    The shards of a finished run, in the order of their names, are divided into blocks of equal size; a block
    is merged when all of its shards exist. So the order of the table does not depend on when they arrived.

    Args:
        folder: The run folder.
        stems: The stems of all shards of the finished run.
        size: Shards per block.
    """

    def __init__(self, folder: Path, stems: Iterable[str], size: int) -> None:
        self._folder, self._size = folder, max(2, size)
        self._order = sorted(stems)
        self._place = {stem: place for place, stem in enumerate(self._order)}
        parts = RunShards(folder)
        self._present = {stem: path for stem, path in parts.single().items() if stem in self._place}
        self._left = [0] * -(-len(self._order) // self._size)
        for stem, place in self._place.items():
            self._left[place // self._size] += stem not in self._present
        self._broken = {self._place[stem] // self._size for stem in parts.covered if stem in self._place}
        self._pool = ThreadPoolExecutor(1)
        self._merging: list[Future[Path]] = []
        for block in range(len(self._left)):
            self._merge_if_complete(block)  # a process may have been killed before it merged them

    def add(self, names: Iterable[str]) -> None:
        """Note shards that were written, and merge the blocks that are complete.

        Raises:
            SoritesError: An earlier block could not be merged.
        """
        for name in names:
            stem = digests.stem_of(name) or ""
            if stem not in self._place or stem in self._present:
                continue
            self._present[stem] = self._folder / PREDICTIONS / name
            block = self._place[stem] // self._size
            self._left[block] -= 1
            self._merge_if_complete(block)
        while self._merging and self._merging[0].done():
            self._merging.pop(0).result()

    def _merge_if_complete(self, block: int) -> None:
        stems = self._order[block * self._size : (block + 1) * self._size]
        if self._left[block] or block in self._broken or len(stems) < 2:
            return
        paths = [self._present[stem] for stem in stems]
        self._merging.append(self._pool.submit(merge, self._folder, paths))

    def close(self) -> None:
        """Wait for the blocks that are being merged."""
        self._pool.shutdown(wait=True)
        for future in self._merging:
            future.result()


def _delete(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
