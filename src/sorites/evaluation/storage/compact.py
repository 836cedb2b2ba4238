"""Merge the small shards of a finished run into few files, and split them again; the table stays the same.

``compacted.json`` lists the shards of each merged file. It is written after the merged files and before the
shards are deleted, and readers follow only this list, so that every row exists exactly once at any time.
Verbs that continue a run restore its shards first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from sorites.core.errors import SoritesError
from sorites.core.progress import Bar
from sorites.core.table import COMPACTED, MERGED_MARK, read_compacted, shard_files, write
from sorites.evaluation.storage.folder import read_info
from sorites.evaluation.storage.shards import read_shard
from sorites.evaluation.unfinished import unfinished
from sorites.io.files import locked, write_bytes
from sorites.io.stores import to_path

# Approximate number of rows of a merged file; shards are not split.
ROWS = 1_000_000


def compact(run: str | Path, rows: int = ROWS, bar: Bar | None = None) -> tuple[int, int]:
    """Merge the shards of a finished run; return the number of files of its table before and after."""
    folder = to_path(run)
    read_info(folder)
    if (left := unfinished(folder)) is not None:
        raise SoritesError(f"{left.found()} Repeat the run to finish it, then compact it.")
    with locked(folder):
        before = shard_files(folder)
        merged = read_compacted(folder)
        single = [path for path in before if path.name not in merged]
        if len(single) < 2:
            return len(before), len(before)
        tick = bar("merging", len(single)) if bar else lambda n: None
        new = {}
        for name, contained, frame in _parts(single, rows):
            write(frame, folder / "predictions" / name)
            new[name] = contained
            tick(len(contained))
        write_bytes(json.dumps({**merged, **new}).encode(), folder / COMPACTED)
        _delete(single)
    return len(before), len(merged) + len(new)


def expand(folder: Path) -> bool:
    """Restore the shards of a compacted run, if it is one; the caller holds the lock."""
    merged = read_compacted(folder)
    for name, contained in merged.items():
        frame, start = read_shard(folder / "predictions" / name), 0
        for stem, count in contained:
            write(frame.slice(start, count), folder / "predictions" / f"{stem}.parquet")
            start += count
    if merged:
        (folder / COMPACTED).unlink()
        _delete([folder / "predictions" / name for name in merged])
    return bool(merged)


def _parts(shards: Sequence[Path], rows: int) -> Iterator[tuple[str, list[tuple[str, int]], pl.DataFrame]]:
    """Yield merged files with their shards; each is named after its first shard, which preserves the
    order.
    """
    contained: list[tuple[str, int]] = []
    frames: list[pl.DataFrame] = []
    for path in shards:
        frame = read_shard(path)
        contained.append((path.stem, frame.height))
        frames.append(frame)
        if sum(count for _, count in contained) >= rows:
            yield (
                f"{contained[0][0]}{MERGED_MARK}{len(contained)}.parquet",
                contained,
                pl.concat(frames, how="diagonal"),
            )
            contained, frames = [], []
    if contained:
        yield (
            f"{contained[0][0]}{MERGED_MARK}{len(contained)}.parquet",
            contained,
            pl.concat(frames, how="diagonal"),
        )


def _delete(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
