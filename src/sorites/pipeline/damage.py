"""Files of a run folder that are no longer what was written: found by reading all of them, and set aside on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from sorites.errors import SoritesError
from sorites.files import locked
from sorites.pipeline.explanations import LIST, ROOM, read_list, read_picture
from sorites.pipeline.folder import read_info
from sorites.pipeline.heads import read_head_file
from sorites.pipeline.shards import read_facts, read_record, read_shard
from sorites.pipeline.tensors import read_tensors

ASIDE = "damaged"
"""The folder inside a run folder that damaged files are moved to; nothing reads it."""

Read = Callable[[Path], object]
_READERS: tuple[tuple[str, str, Read, str], ...] = (
    ("predictions", "*.parquet", read_shard, "type the run's command again"),
    (
        "features",
        "*.safetensors",
        lambda path: read_tensors(path, ("image_id",)),
        "type the run's command again with --keep-features",
    ),
    ("fits", "*.safetensors", lambda path: read_tensors(path, ("sample_id", "label")), "type the run's command again"),
    ("heads", "*.safetensors", read_head_file, "type the run's command again with --keep-features"),
    ("facts", "*.parquet", read_facts, "type the command that measured them again"),
    ("facts", "*.json", read_record, "type the command that measured them again"),
    (ROOM, LIST, read_list, "type: sorites explain RUN"),
    (ROOM, "*.webp", read_picture, "type: sorites explain RUN"),
)
"""Room, names, how a file is read in full, and what makes it again."""


@dataclass(frozen=True)
class Damage:
    """A file that cannot be read, why, and what makes it again."""

    path: Path
    why: str
    remedy: str


def damage(folder: Path) -> list[Damage]:
    """Read every value of every file that can be made again, and return those that cannot be read."""
    return list(_found(folder, read_info(folder)["run_id"]))


def _found(folder: Path, run_id: str) -> Iterator[Damage]:
    for room, names, read, remedy in _READERS:
        for path in sorted((folder / room).glob(names)):
            try:
                held = read(path)
            except SoritesError as error:
                said = str(error).removeprefix(f"{path} cannot be read: ").partition(". Type: ")[0]
                yield Damage(path, said, remedy)
                continue
            if room == "predictions" and isinstance(held, pl.DataFrame) and (held["run_id"].ne_missing(run_id)).any():
                yield Damage(path, "it holds rows of another run", remedy)


def set_aside(folder: Path) -> list[tuple[Damage, Path]]:
    """Move the damaged files of a run folder into its folder ``damaged``, so that they are made again; nothing is deleted.

    Facts go together with the record of their making. Return each with where it is now.
    """
    moved: list[tuple[Damage, Path]] = []
    with locked(folder):
        for one in damage(folder):
            twin = one.path.with_suffix(".json" if one.path.suffix == ".parquet" else ".parquet")
            together = (one.path, twin) if one.path.parent.name == "facts" else (one.path,)
            moved += [(one, _move(path, folder / ASIDE / path.parent.name)) for path in together if path.exists()]
    return moved


def _move(path: Path, into: Path) -> Path:
    """Move a file into a folder, under a further name where one of its name lies there from before."""
    try:
        into.mkdir(parents=True, exist_ok=True)
        names = (path.name, *(f"{path.stem}~{n}{path.suffix}" for n in range(2, 10_000)))
        place = next(into / name for name in names if not (into / name).exists())
        return path.rename(place)
    except OSError as error:
        raise SoritesError(f"cannot move {path} to {into}: {error.strerror or error}") from error


def lines(found: list[Damage]) -> list[str]:
    """Say what is damaged, a line each, the first ten."""
    more = [f"and {len(found) - 10} more"] if len(found) > 10 else []
    return [f"{one.path} cannot be read: {one.why}" for one in found[:10]] + more
