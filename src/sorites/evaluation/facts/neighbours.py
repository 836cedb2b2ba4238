"""The nearest in-distribution images of encoded ones, as units of an engine that know nothing but files.

The features of the in-distribution images are rotated once into a bank: files that every worker reads. A
unit takes some files of features, searches the bank and writes the distances. Each file says from
which content it was made, and is made again where that is another one or the file is damaged. So
work that was stopped goes on, and other options search without the encoder.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.core.progress import Tick
from sorites.core.rng import digest
from sorites.evaluation.engines import Engine
from sorites.evaluation.engines.interrupts import leave_if_asked
from sorites.evaluation.facts.encoding import about_encoded
from sorites.evaluation.facts.rulers import HALVES
from sorites.evaluation.images import LeftOut
from sorites.evaluation.storage.tensors import read_header, read_tensors
from sorites.io.files import at_hand, write_bytes
from sorites.measures.decomposition import Decomposition
from sorites.measures.neighbours import Index, Kind, evenly
from sorites.measures.neighbours import exact_kth_distance as kth_distance

Array = NDArray[np.float32]
MATRIX = "decomposition.safetensors"
_reading = threading.RLock()


@dataclass(frozen=True)
class Bank:
    """The in-distribution features in a folder, by half, and how they are searched; ``content`` is a hash
    of them all.
    """

    folder: Path
    parts: tuple[str, ...]
    rows: int
    content: str
    k: int
    neighbours: str

    @property
    def key(self) -> str:
        """The name of what is found by this search."""
        return digest(self.folder.name, self.content, self.k, self.neighbours, size=8).hex()

    def blocks(self, half: str) -> Iterator[Array]:
        """Yield the in-distribution features of a half, file by file."""
        for path in _at_hand(self):
            leave_if_asked()
            yield read_tensors(path, (), (half,))[1][half]

    def halves(self, found: Array) -> dict[str, Array]:
        """Return features by half."""
        split = Decomposition(read_tensors(self.folder / MATRIX, ())[1]["matrix"].astype(np.float64))
        return {half: getattr(split, half)(found) for half in HALVES}

    def index_file(self, half: str) -> Path:
        """Return the file of the index over a half."""
        return self.folder / f"{half}-{self.neighbours}-{self.content}.faiss"


def make_bank(work: Path, files: Sequence[Path], split: Decomposition, k: int, neighbours: str) -> Bank:
    """Rotate the features in some files into a bank, or find it there; an index is built over it
    unless the search is exact.
    """
    folder = work / f"bank-{digest(files[0].parent.name, split.matrix.tobytes().hex(), size=8).hex()}"
    there = {path.name for path in folder.glob("*")}
    if not _is_of(folder / MATRIX, MATRIX, there):
        _keep(folder / MATRIX, {"matrix": split.matrix}, MATRIX)
    parts, contents, rows = [], [], 0
    for file in files:
        about = about_encoded(file, "sample_id")
        if not (count := len(about["sample_id"])):
            continue
        if not _is_of(folder / file.name, about["content"], there):
            found = read_tensors(file, ("sample_id",))[1]["features"]
            _keep(
                folder / file.name, {half: getattr(split, half)(found) for half in HALVES}, about["content"]
            )
        parts.append(file.name)
        contents.append(about["content"])
        rows += count
    if rows < k:
        raise SoritesError(
            f"expected the {k}th nearest of the in-distribution images, which are only {rows}; give more of them or a"
            " smaller k"
        )
    bank = Bank(folder, tuple(parts), rows, digest(*contents, size=8).hex(), k, neighbours)
    for half in HALVES if neighbours != "exact" else ():
        if bank.index_file(half).name not in there:
            index = Index.build(np.concatenate(list(bank.blocks(half))), _kind(bank), k)
            write_bytes(index.packed(), bank.index_file(half))
    return bank


def _keep(path: Path, arrays: Mapping[str, NDArray[Any]], of: str) -> None:
    from safetensors.numpy import save

    write_bytes(save(dict(arrays), metadata={"of": json.dumps(of)}), path)


def _is_of(path: Path, of: str, there: Collection[str]) -> bool:
    """Return whether a file is there, whole, and made from this content."""
    try:
        return path.name in there and read_header(path).get("of") == of
    except SoritesError:
        return False


def forget() -> None:
    """Let go of the indexes that this process holds."""
    _index.cache_clear()
    _at_hand.cache_clear()


@functools.lru_cache(maxsize=2)
def _at_hand(bank: Bank) -> list[Path]:
    """Return where the files of a bank can be read on this machine, which a process asks once."""
    return at_hand([bank.folder / part for part in bank.parts])


def _kind(bank: Bank) -> Kind:
    return "ivf" if bank.neighbours == "ivf" else "hnsw"


@functools.lru_cache(maxsize=4)
def _index(bank: Bank, half: str) -> Index:
    """Return the index over a half, which a process reads once."""
    return Index.read(at_hand([bank.index_file(half)])[0], _kind(bank), bank.k)


def search_files(bank: Bank, work: Path, group: tuple[str, tuple[Path, ...]]) -> int:
    """A unit of work: measure the distances of all features in some files of a content, and return
    how many there are.
    """
    content, files = group
    parts = [read_tensors(file, ())[1]["features"] for file in files]
    kept = [part for part in parts if len(part)]
    empty = np.empty(0, np.float32)
    halves = bank.halves(np.concatenate(kept)) if kept else {}
    found = {half: _distances(bank, half, halves[half]) if kept else empty for half in HALVES}
    _keep(found_file(bank, work, files), found, content)
    return len(found[HALVES[0]])


def _distances(bank: Bank, half: str, asked: Array) -> Array:
    if bank.neighbours == "exact":
        return kth_distance(asked, bank.blocks(half), bank.k)
    with _reading:
        index = _index(bank, half)
    return index.kth_distance(asked)


def found_file(bank: Bank, work: Path, files: Sequence[Path]) -> Path:
    """Return the file of the distances of the features in some files."""
    names = [name for file in files for name in file.parts[-2:]]
    return work / f"found-{bank.key}" / f"{digest(*names, size=8).hex()}.safetensors"


def search_all(
    bank: Bank,
    work: Path,
    groups: Sequence[Sequence[Path]],
    key: str,
    engine: Engine,
    workers: int,
    tick: Tick,
) -> None:
    """Search for the groups of files that are not searched yet; each is a unit of the engine."""
    there = {path.name for path in (work / f"found-{bank.key}").glob("*.safetensors")}
    contents = [digest(*(about_encoded(file, key)["content"] for file in files)).hex() for files in groups]
    todo = [
        (content, tuple(files))
        for content, files in zip(contents, groups, strict=True)
        if not _is_of(found_file(bank, work, files), content, there)
    ]
    tick(len(groups) - len(todo))
    for _ in engine(todo, functools.partial(search_files, bank, work), workers):
        tick(1)


def found_rows(
    bank: Bank, work: Path, groups: Sequence[Sequence[Path]], key: str, left: LeftOut
) -> pl.DataFrame:
    """Return one row per image: its id under ``key`` and its distance in each half; what could
    not be read is counted.
    """
    frames = []
    for files in groups:
        ids: list[str] = []
        for file in files:
            about = about_encoded(file, key)
            ids += about[key]
            left.join(*about["left_out"])
        found = read_tensors(found_file(bank, work, files), ())[1]
        frames.append(
            pl.DataFrame({key: pl.Series(ids, dtype=pl.String), **{half: found[half] for half in HALVES}})
        )
    return pl.concat(frames)


def search_names(bank: Bank, files: Sequence[Path], key: str) -> dict[str, str]:
    """Name the search of each half with the recall that is measured on some features of the files;
    nothing where it is exact.
    """
    if bank.neighbours == "exact":
        return {}
    counts = [len(about_encoded(file, key)[key]) for file in files]
    places, ends, some = evenly(sum(counts)), np.cumsum(counts), []
    for file, end, count in zip(files, ends, counts, strict=True):
        rows = places[(places >= end - count) & (places < end)] - (end - count)
        if len(rows):
            some.append(read_tensors(file, (key,))[1]["features"][rows])
    halves = bank.halves(np.concatenate(some))
    return {half: _index(bank, half).name(halves[half], bank.blocks(half)) for half in HALVES}
