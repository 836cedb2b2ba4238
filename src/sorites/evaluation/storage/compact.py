"""The small shards of a run merged into few files, and back: the table stays the same, row for row.

``compacted.json`` says which shards a merged file holds. It is written after the merged files and
before the shards are deleted, and readers follow it alone: at every moment each row stands once. A
verb that continues a run brings its shards back first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from sorites.core.errors import SoritesError
from sorites.core.progress import Bar
from sorites.core.table import COMPACTED, MERGED, read_compacted, shard_files, write
from sorites.evaluation.storage.folder import read_info
from sorites.evaluation.storage.shards import read_shard
from sorites.evaluation.unfinished import unfinished
from sorites.io.files import locked, write_bytes
from sorites.io.stores import place

# Rows of a merged file, as far as whole shards allow.
ROWS = 1_000_000


def compact(run: str | Path, rows: int = ROWS, bar: Bar | None = None) -> tuple[int, int]:
    """Merge the shards of a finished run; return how many files held its table before and how many do now."""
    folder = place(run)
    read_info(folder)
    if (left := unfinished(folder)) is not None:
        raise SoritesError(f"{left.found()} Type the run's command again, then compact it.")
    with locked(folder):
        before = shard_files(folder)
        merged = read_compacted(folder)
        single = [path for path in before if path.name not in merged]
        if len(single) < 2:
            return len(before), len(before)
        tick = bar("merging", len(single)) if bar else lambda n: None
        made = {}
        for name, held, frame in _parts(single, rows):
            write(frame, folder / "predictions" / name)
            made[name] = held
            tick(len(held))
        write_bytes(json.dumps({**merged, **made}).encode(), folder / COMPACTED)
        _delete(single)
    return len(before), len(merged) + len(made)


def expand(folder: Path) -> bool:
    """Bring the shards of a compacted run back, if it is one; the caller holds the folder."""
    merged = read_compacted(folder)
    for name, held in merged.items():
        frame, start = read_shard(folder / "predictions" / name), 0
        for stem, count in held:
            write(frame.slice(start, count), folder / "predictions" / f"{stem}.parquet")
            start += count
    if merged:
        (folder / COMPACTED).unlink()
        _delete([folder / "predictions" / name for name in merged])
    return bool(merged)


def _parts(shards: Sequence[Path], rows: int) -> Iterator[tuple[str, list[tuple[str, int]], pl.DataFrame]]:
    """Yield merged files, each named by its first shard so that the order of the table stays, with
    what they hold.
    """
    held: list[tuple[str, int]] = []
    frames: list[pl.DataFrame] = []
    for path in shards:
        frame = read_shard(path)
        held.append((path.stem, frame.height))
        frames.append(frame)
        if sum(count for _, count in held) >= rows:
            yield f"{held[0][0]}{MERGED}{len(held)}.parquet", held, pl.concat(frames, how="diagonal")
            held, frames = [], []
    if held:
        yield f"{held[0][0]}{MERGED}{len(held)}.parquet", held, pl.concat(frames, how="diagonal")


def _delete(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
