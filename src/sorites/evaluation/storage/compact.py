"""Merge the small shards of a finished run into few files, and split them again; the table stays the same.

``compacted.json`` lists the shards of each merged file. It is written after the merged files and before the
shards are deleted, and readers follow only this list, so that every row exists exactly once at any time. What
a killed process left over is deleted by the next one. Verbs that continue a run restore its shards first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from sorites.core.errors import SoritesError
from sorites.core.progress import Bar
from sorites.core.table import (
    COMPACTED,
    MERGED_MARK,
    PARQUET,
    PREDICTIONS,
    read_compacted,
    repair,
    shard_files,
    write_shard,
)
from sorites.evaluation.integrity.unfinished import unfinished
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.shards import read_shard
from sorites.io import digests
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
        before = shard_files(folder)
        merged = read_compacted(folder)
        _delete_unlisted(folder, merged)
        _delete_covered(folder, merged)
        single = [path for path in before if path.name not in merged]
        if len(single) < 2:
            return len(before), len(before)
        tick = bar("merging", len(single)) if bar else lambda n: None
        new = {}
        for stem, contained, frame in _parts(single, rows):
            new[write_shard(frame, folder, stem).name] = contained
            tick(len(contained))
        digests.write_sealed({"merged": {**merged, **new}}, folder / COMPACTED)
        _delete(single)
    return len(before), len(merged) + len(new)


def expand(folder: Path) -> bool:
    """Restore the shards of a compacted run, if it is one; the caller holds the lock."""
    merged = read_compacted(folder)
    present = digests.all_shards_in(folder / PREDICTIONS, PARQUET)
    for name, contained in merged.items():
        frame, start = read_shard(folder / PREDICTIONS / name), 0
        for stem, count in contained:
            _delete(present.get(stem, ()))
            write_shard(frame.slice(start, count), folder, stem)
            start += count
    if merged:
        (folder / COMPACTED).unlink()
        _delete(folder / PREDICTIONS / name for name in merged)
    _delete_unlisted(folder, ())
    return bool(merged)


def _delete_unlisted(folder: Path, listed: Collection[str]) -> None:
    """Delete merged files that a killed process did not list; their rows are in shards."""
    shards = digests.all_shards_in(folder / PREDICTIONS, PARQUET)
    merged = (path for stem, paths in shards.items() if MERGED_MARK in stem for path in paths)
    _delete(path for path in merged if path.name not in listed)


def _delete_covered(folder: Path, merged: Mapping[str, Sequence[tuple[str, int]]]) -> None:
    """Delete the shards that a killed process has merged, if the merged files are unchanged."""
    shards = digests.all_shards_in(folder / PREDICTIONS, PARQUET)
    left = [path for contained in merged.values() for stem, _ in contained for path in shards.get(stem, ())]
    if left:
        paths = [folder / PREDICTIONS / name for name in merged]
        digests.Verifier(folder).require(digests.named_digests(paths), repair(folder))
        _delete(left)


def _parts(shards: Sequence[Path], rows: int) -> Iterator[tuple[str, list[tuple[str, int]], pl.DataFrame]]:
    """Yield merged files with their shards; each is named after its first shard, which preserves the
    order.
    """
    contained: list[tuple[str, int]] = []
    frames: list[pl.DataFrame] = []
    for path in shards:
        frame = read_shard(path)
        contained.append((digests.stem_of(path.name) or "", frame.height))
        frames.append(frame)
        if sum(count for _, count in contained) >= rows:
            yield f"{contained[0][0]}{MERGED_MARK}{len(contained)}", contained, pl.concat(frames)
            contained, frames = [], []
    if contained:
        yield f"{contained[0][0]}{MERGED_MARK}{len(contained)}", contained, pl.concat(frames)


def _delete(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
