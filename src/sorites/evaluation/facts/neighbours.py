"""Nearest in-distribution neighbours of encoded images, as tasks of an engine that communicate by files.

The features of the in-distribution images are rotated once into a bank of files that every worker
reads. A task reads files of features, searches the bank and writes the distances. Each file records the
hash of the content it was computed from, and is recomputed if that differs or the file is damaged.
Stopped work therefore resumes, and other options are searched without the encoder.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.core.progress import Tick
from sorites.core.rng import digest
from sorites.evaluation.engines import Engine
from sorites.evaluation.engines.interrupts import stop_if_requested
from sorites.evaluation.facts.encoding import about_encoded, forget_files
from sorites.evaluation.facts.rulers import HALVES
from sorites.evaluation.images import LeftOut
from sorites.evaluation.storage.shards import SAFETENSORS
from sorites.evaluation.storage.tensors import read_header, read_tensors, write_tensors
from sorites.io.digests import read_shard, shards_in, stem_of, write_shard
from sorites.io.files import local_copies
from sorites.measures.decomposition import Decomposition
from sorites.measures.neighbours import Index, Kind, evenly, exact_kth_distance

Array = NDArray[np.float32]
MATRIX, FAISS = "decomposition", ".faiss"
_reading = threading.RLock()


@dataclass(frozen=True)
class Bank:
    """The in-distribution features in a folder by half, and how they are searched.

    Attributes:
        folder: The folder.
        matrix: The name of the file of the decomposition.
        parts: The names of the files.
        rows: The number of images.
        content: A hash of all features.
        k: Which neighbour.
        neighbours: "exact", "ivf" or "hnsw".
    """

    folder: Path
    matrix: str
    parts: tuple[str, ...]
    rows: int
    content: str
    k: int
    neighbours: str

    @property
    def key(self) -> str:
        """The key of the results of this search."""
        return digest(self.folder.name, self.content, self.k, self.neighbours, size=8).hex()

    def blocks(self, half: str) -> Iterator[Array]:
        """Yield the in-distribution features of a half, file by file."""
        for part in self.parts:
            stop_if_requested()
            yield read_tensors(self.folder / part, (), (half,))[1][half]

    def halves(self, features: Array) -> dict[str, Array]:
        """Return features by half."""
        matrix = read_tensors(self.folder / self.matrix, ())[1]["matrix"]
        decomposition = Decomposition(matrix.astype(np.float64))
        return {half: getattr(decomposition, half)(features) for half in HALVES}

    def index_stem(self, half: str) -> str:
        """Return the file stem of the index over a half."""
        return f"{half}-{self.neighbours}-{self.content}"


def make_bank(work: Path, files: Sequence[Path], split: Decomposition, k: int, neighbours: str) -> Bank:
    """Rotate the features in files into a bank unless it exists; build an index unless the search is
    exact.
    """
    folder = work / f"bank-{digest(files[0].parent.name, split.matrix.tobytes().hex(), size=8).hex()}"
    existing = shards_in(folder, SAFETENSORS)
    matrix = existing.get(MATRIX)
    if not _is_current(matrix, MATRIX):
        forget_files([matrix])
        matrix = write_tensors(folder, MATRIX, {"matrix": split.matrix}, of=MATRIX)
    parts, contents, rows = [], [], 0
    for file in files:
        about = about_encoded(file, "sample_id")
        if not (count := len(about["sample_id"])):
            continue
        part = existing.get(stem := stem_of(file.name) or "")
        if not _is_current(part, about["content"]):
            forget_files([part])
            features = read_tensors(file, ("sample_id",))[1]["features"]
            halves = {half: getattr(split, half)(features) for half in HALVES}
            part = write_tensors(folder, stem, halves, of=about["content"])
        parts.append(part.name)
        contents.append(about["content"])
        rows += count
    if rows < k:
        raise SoritesError(f"k={k} exceeds the {rows} in-distribution images; use more images or a smaller k")
    bank = Bank(folder, matrix.name, tuple(parts), rows, digest(*contents, size=8).hex(), k, neighbours)
    for half in HALVES if neighbours != "exact" else ():
        if bank.index_stem(half) not in shards_in(folder, FAISS):
            index = Index.build(np.concatenate(list(bank.blocks(half))), _kind(bank), k)
            write_shard(folder, bank.index_stem(half), FAISS, index.packed())
    return bank


def _is_current(path: Path | None, content: str) -> TypeGuard[Path]:
    """Return whether a file exists, is undamaged, and was computed from this content."""
    try:
        return path is not None and read_header(path).get("of") == content
    except SoritesError:
        return False


def forget() -> None:
    """Clear the cached indexes of this process."""
    _index.cache_clear()


def _kind(bank: Bank) -> Kind:
    return "ivf" if bank.neighbours == "ivf" else "hnsw"


@functools.lru_cache(maxsize=4)
def _index(bank: Bank, half: str) -> Index:
    """Return the index over a half, read once per process."""
    path = shards_in(bank.folder, FAISS)[bank.index_stem(half)]
    read_shard(path, f"Delete {bank.folder}, and it will be computed again.")
    return Index.read(local_copies([path])[0], _kind(bank), bank.k)


def search_files(bank: Bank, work: Path, group: tuple[str, tuple[Path, ...]]) -> int:
    """Measure the distances of all features in files, store them, and return their number."""
    content, files = group
    parts = [read_tensors(file, ())[1]["features"] for file in files]
    non_empty = [part for part in parts if len(part)]
    empty = np.empty(0, np.float32)
    halves = bank.halves(np.concatenate(non_empty)) if non_empty else {}
    distances = {half: _distances(bank, half, halves[half]) if non_empty else empty for half in HALVES}
    write_tensors(_found_folder(bank, work), _found_stem(files), distances, of=content)
    return len(distances[HALVES[0]])


def _distances(bank: Bank, half: str, queries: Array) -> Array:
    if bank.neighbours == "exact":
        return exact_kth_distance(queries, bank.blocks(half), bank.k)
    with _reading:
        index = _index(bank, half)
    return index.kth_distance(queries)


def _found_folder(bank: Bank, work: Path) -> Path:
    """Return the folder with the distances that a search found."""
    return work / f"found-{bank.key}"


def _found_stem(files: Sequence[Path]) -> str:
    """Return the stem of the file with the distances of the features in some files."""
    names = [name for file in files for name in (file.parent.name, stem_of(file.name))]
    return digest(*names, size=8).hex()


def search_all(
    bank: Bank,
    work: Path,
    groups: Sequence[Sequence[Path]],
    key: str,
    engine: Engine,
    workers: int,
    tick: Tick,
) -> None:
    """Search the groups of files that are not searched yet; each is a task of the engine."""
    existing = shards_in(_found_folder(bank, work), SAFETENSORS)
    contents = [digest(*(about_encoded(file, key)["content"] for file in files)).hex() for files in groups]
    todo = [
        (content, tuple(files))
        for content, files in zip(contents, groups, strict=True)
        if not _is_current(existing.get(_found_stem(files)), content)
    ]
    forget_files(existing.get(_found_stem(files)) for _, files in todo)
    tick(len(groups) - len(todo))
    for _ in engine(todo, functools.partial(search_files, bank, work), workers):
        tick(1)


def found_rows(
    bank: Bank, work: Path, groups: Sequence[Sequence[Path]], key: str, left: LeftOut
) -> pl.DataFrame:
    """Return one row per image with its id under ``key`` and its distances; count unreadable images in
    ``left``.
    """
    frames, found = [], shards_in(_found_folder(bank, work), SAFETENSORS)
    for files in groups:
        ids: list[str] = []
        for file in files:
            about = about_encoded(file, key)
            ids += about[key]
            left.join(*about["left_out"])
        distances = read_tensors(found[_found_stem(files)], ())[1]
        frames.append(
            pl.DataFrame({key: pl.Series(ids, dtype=pl.String), **{half: distances[half] for half in HALVES}})
        )
    return pl.concat(frames)


def search_names(bank: Bank, files: Sequence[Path], key: str) -> dict[str, str]:
    """Return the name of each half's search with its measured recall; empty if the search is exact."""
    if bank.neighbours == "exact":
        return {}
    counts = [len(about_encoded(file, key)[key]) for file in files]
    indexes, ends, sampled = evenly(sum(counts)), np.cumsum(counts), []
    for file, end, count in zip(files, ends, counts, strict=True):
        rows = indexes[(indexes >= end - count) & (indexes < end)] - (end - count)
        if len(rows):
            sampled.append(read_tensors(file, (key,))[1]["features"][rows])
    halves = bank.halves(np.concatenate(sampled))
    return {half: _index(bank, half).name(halves[half], bank.blocks(half)) for half in HALVES}
