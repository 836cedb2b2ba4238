"""The shards that make up the table of a run: single ones, and merged ones that replace others.

A merged shard names the shards whose rows it has, in its own metadata; readers ignore those. It is valid as
soon as it exists, and the others are deleted afterwards, so that a process may be killed at any moment.

``index.json`` saves requests. It has the contents of merged shards by name, which never change because a name
ends with the digest of the content. On a store it also has the names of all shards, so that nobody lists
them; whoever writes or removes a shard deletes it first. It is never needed: without it, or if it is damaged,
the shards are listed and read.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core.errors import Damaged, SoritesError
from sorites.core.messages import command
from sorites.io import digests
from sorites.io.stores import is_on_store

# Subfolder of a run with its shards, and their suffix.
PREDICTIONS, PARQUET = "predictions", ".parquet"
INDEX = "index.json"
# Marks the stems of merged shards, before the number of shards that they replace.
MERGED_MARK = "~"
# Key of the metadata of a merged shard.
_CONTAINED = "sorites.contained"

# Stems of shards, and the number of rows of each, in order.
Contained = list[tuple[str, int]]


@dataclass(frozen=True)
class Index:
    """Content of ``index.json``.

    Attributes:
        merged: What each merged shard contains, by name.
        shards: The names of all shards; None if they must be listed.
    """

    merged: Mapping[str, Contained] = field(default_factory=dict)
    shards: tuple[str, ...] | None = None


def read_index(folder: Path) -> Index:
    """Read the index of a run folder.

    Raises:
        Damaged: It is missing, or it has changed.
    """
    remedy = "Delete it: it is made again from the shards."
    content = digests.read_sealed(folder / INDEX, remedy)
    try:
        names = content.get("shards")
        index = Index(
            {str(name): _contained(entries) for name, entries in content["merged"].items()},
            None if names is None else tuple(map(str, names)),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Damaged(folder / INDEX, error, remedy) from error
    for name in (*index.merged, *(index.shards or ())):
        if "/" in name or digests.digest_in(name) is None:
            raise Damaged(folder / INDEX, f"expected names of shards with a digest, got {name!r}", remedy)
    return index


def verify_index(folder: Path) -> None:
    """Compare the index of a run folder with its shards; readers trust it.

    Raises:
        Damaged: It is missing, it has changed, or it is that of other shards, such as a former version of it.
    """
    index, shards = read_index(folder), RunShards(folder, fresh=True, tolerant=True)
    names = {path.name for path in shards.listed.values()}
    unlike = set() if index.shards is None else names.symmetric_difference(index.shards)
    unlike |= {name for name in names & index.merged.keys() if index.merged[name] != shards.merged[name]}
    if unlike:
        remedy = "Delete it: it is made again from the shards."
        raise Damaged(folder / INDEX, f"it is not the index of these shards: {min(unlike)}", remedy)


def _contained(entries: Any) -> Contained:
    return [(str(stem), int(count)) for stem, count in entries]


def write_index(folder: Path) -> None:
    """Write the index of a run folder, if it would save requests; the caller holds the lock."""
    forget_index(folder)
    parts = RunShards(folder)
    names = sorted(path.name for path in parts.listed.values()) if is_on_store(folder) else None
    if parts.merged or names:
        content: dict[str, Any] = {"merged": dict(parts.merged)}
        digests.write_sealed(content | ({} if names is None else {"shards": names}), folder / INDEX)


def forget_index(folder: Path) -> None:
    """Delete the index before shards are written or removed."""
    (folder / INDEX).unlink(missing_ok=True)


class RunShards:
    """The shards of a run folder.

    Args:
        folder: The run folder.
        fresh: List the shards and read the merged ones, whatever the index says.
        tolerant: A merged shard that cannot be read counts as one that replaces nothing, instead of an error.

    Attributes:
        listed: All shards by stem.
        merged: What each merged shard contains, by name.
        covered: The stems that merged shards contain, with the merged shard of each.
    """

    def __init__(self, folder: Path, fresh: bool = False, tolerant: bool = False) -> None:
        index = Index() if fresh else _index_or_empty(folder)
        self.listed = _listed(folder, index)
        self.merged: dict[str, Contained] = {}
        self.covered: dict[str, Path] = {}
        for stem, path in self.listed.items():
            if MERGED_MARK in stem:
                contained = index.merged.get(path.name) or _read_contained(path, tolerant)
                self.merged[path.name] = contained
                self.covered |= dict.fromkeys((name for name, _ in contained), path)

    def files(self) -> list[Path]:
        """Return the files that make up the table, in order."""
        return sorted(path for stem, path in self.listed.items() if stem not in self.covered)

    def single(self) -> dict[str, Path]:
        """Return the shards that are not merged, by stem."""
        return {
            stem: path
            for stem, path in self.listed.items()
            if stem not in self.covered and MERGED_MARK not in stem
        }


def _index_or_empty(folder: Path) -> Index:
    try:
        return read_index(folder)
    except SoritesError:
        return Index()


def _listed(folder: Path, index: Index) -> dict[str, Path]:
    room = folder / PREDICTIONS
    if index.shards is not None and is_on_store(folder):
        return {digests.stem_of(name) or name: room / name for name in index.shards}
    return digests.shards_in(room, PARQUET)


def _read_contained(path: Path, tolerant: bool) -> Contained:
    """Return what a merged shard contains.

    Raises:
        Damaged: It does not match its digest, or does not say what it contains.
    """
    remedy = f"Type: {command('check', str(path.parent.parent), repair=True)}"
    try:
        metadata = pl.read_parquet_metadata(io.BytesIO(digests.read_shard(path, remedy)))
        return _contained(json.loads(metadata[_CONTAINED]))
    except (KeyError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
        if tolerant:
            return []
        raise Damaged(path, f"it does not name its shards: {error}", remedy) from error
    except Damaged:
        if tolerant:
            return []
        raise


def write_merged(folder: Path, frame: pl.DataFrame, contained: Sequence[tuple[str, int]]) -> Path:
    """Write a merged shard, named after its first shard, which preserves the order; return its path.

    Args:
        folder: The run folder.
        frame: The rows of the shards, in order.
        contained: The stems of the shards and their numbers of rows.
    """
    forget_index(folder)
    buffer = io.BytesIO()
    metadata = {_CONTAINED: json.dumps([list(entry) for entry in contained])}
    frame.write_parquet(buffer, compression="zstd", metadata=metadata)
    stem = f"{contained[0][0]}{MERGED_MARK}{len(contained)}"
    return digests.write_shard(folder / PREDICTIONS, stem, PARQUET, buffer.getvalue())
