"""Nearest in-distribution neighbours of encoded images, as tasks of an engine that communicate by files.

The features of the in-distribution images are rotated once into a bank of files that every worker
reads. A task reads files of features, searches the bank and writes the distances. Each file records the
hash of the content it was computed from, and is recomputed if that differs or the file is damaged.
Stopped work therefore resumes, and other options are searched without the encoder.
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
from sorites.evaluation.engines.interrupts import stop_if_requested
from sorites.evaluation.facts.encoding import about_encoded
from sorites.evaluation.facts.rulers import HALVES
from sorites.evaluation.images import LeftOut
from sorites.evaluation.storage.tensors import read_header, read_tensors
from sorites.io.files import local_copies, write_bytes
from sorites.measures.decomposition import Decomposition
from sorites.measures.neighbours import Index, Kind, evenly
from sorites.measures.neighbours import exact_kth_distance as kth_distance

Array = NDArray[np.float32]
MATRIX = "decomposition.safetensors"
_reading = threading.RLock()


@dataclass(frozen=True)
class Bank:
    """The in-distribution features in a folder by half, and how they are searched.

    Attributes:
        folder: The folder.
        parts: The names of the files.
        rows: The number of images.
        content: A hash of all features.
        k: Which neighbour.
        neighbours: "exact", "ivf" or "hnsw".
    """

    folder: Path
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
        for path in _local_files(self):
            stop_if_requested()
            yield read_tensors(path, (), (half,))[1][half]

    def halves(self, features: Array) -> dict[str, Array]:
        """Return features by half."""
        decomposition = Decomposition(read_tensors(self.folder / MATRIX, ())[1]["matrix"].astype(np.float64))
        return {half: getattr(decomposition, half)(features) for half in HALVES}

    def index_file(self, half: str) -> Path:
        """Return the file of the index over a half."""
        return self.folder / f"{half}-{self.neighbours}-{self.content}.faiss"


def make_bank(work: Path, files: Sequence[Path], split: Decomposition, k: int, neighbours: str) -> Bank:
    """Rotate the features in files into a bank unless it exists; build an index unless the search is
    exact.
    """
    folder = work / f"bank-{digest(files[0].parent.name, split.matrix.tobytes().hex(), size=8).hex()}"
    existing = {path.name for path in folder.glob("*")}
    if not _is_current(folder / MATRIX, MATRIX, existing):
        _write_arrays(folder / MATRIX, {"matrix": split.matrix}, MATRIX)
    parts, contents, rows = [], [], 0
    for file in files:
        about = about_encoded(file, "sample_id")
        if not (count := len(about["sample_id"])):
            continue
        if not _is_current(folder / file.name, about["content"], existing):
            features = read_tensors(file, ("sample_id",))[1]["features"]
            _write_arrays(
                folder / file.name,
                {half: getattr(split, half)(features) for half in HALVES},
                about["content"],
            )
        parts.append(file.name)
        contents.append(about["content"])
        rows += count
    if rows < k:
        raise SoritesError(f"k={k} exceeds the {rows} in-distribution images; use more images or a smaller k")
    bank = Bank(folder, tuple(parts), rows, digest(*contents, size=8).hex(), k, neighbours)
    for half in HALVES if neighbours != "exact" else ():
        if bank.index_file(half).name not in existing:
            index = Index.build(np.concatenate(list(bank.blocks(half))), _kind(bank), k)
            write_bytes(index.packed(), bank.index_file(half))
    return bank


def _write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], content: str) -> None:
    from safetensors.numpy import save

    write_bytes(save(dict(arrays), metadata={"of": json.dumps(content)}), path)


def _is_current(path: Path, content: str, existing: Collection[str]) -> bool:
    """Return whether a file exists, is complete, and was computed from this content."""
    try:
        return path.name in existing and read_header(path).get("of") == content
    except SoritesError:
        return False


def forget() -> None:
    """Clear the cached indexes of this process."""
    _index.cache_clear()
    _local_files.cache_clear()


@functools.lru_cache(maxsize=2)
def _local_files(bank: Bank) -> list[Path]:
    """Return local paths of a bank's files, cached per process."""
    return local_copies([bank.folder / part for part in bank.parts])


def _kind(bank: Bank) -> Kind:
    return "ivf" if bank.neighbours == "ivf" else "hnsw"


@functools.lru_cache(maxsize=4)
def _index(bank: Bank, half: str) -> Index:
    """Return the index over a half, read once per process."""
    return Index.read(local_copies([bank.index_file(half)])[0], _kind(bank), bank.k)


def search_files(bank: Bank, work: Path, group: tuple[str, tuple[Path, ...]]) -> int:
    """Measure the distances of all features in files, store them, and return their number."""
    content, files = group
    parts = [read_tensors(file, ())[1]["features"] for file in files]
    non_empty = [part for part in parts if len(part)]
    empty = np.empty(0, np.float32)
    halves = bank.halves(np.concatenate(non_empty)) if non_empty else {}
    distances = {half: _distances(bank, half, halves[half]) if non_empty else empty for half in HALVES}
    _write_arrays(found_file(bank, work, files), distances, content)
    return len(distances[HALVES[0]])


def _distances(bank: Bank, half: str, queries: Array) -> Array:
    if bank.neighbours == "exact":
        return kth_distance(queries, bank.blocks(half), bank.k)
    with _reading:
        index = _index(bank, half)
    return index.kth_distance(queries)


def found_file(bank: Bank, work: Path, files: Sequence[Path]) -> Path:
    """Return the file with the distances of the features in some files."""
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
    """Search the groups of files that are not searched yet; each is a task of the engine."""
    existing = {path.name for path in (work / f"found-{bank.key}").glob("*.safetensors")}
    contents = [digest(*(about_encoded(file, key)["content"] for file in files)).hex() for files in groups]
    todo = [
        (content, tuple(files))
        for content, files in zip(contents, groups, strict=True)
        if not _is_current(found_file(bank, work, files), content, existing)
    ]
    tick(len(groups) - len(todo))
    for _ in engine(todo, functools.partial(search_files, bank, work), workers):
        tick(1)


def found_rows(
    bank: Bank, work: Path, groups: Sequence[Sequence[Path]], key: str, left: LeftOut
) -> pl.DataFrame:
    """Return one row per image with its id under ``key`` and its distances; count unreadable images in
    ``left``.
    """
    frames = []
    for files in groups:
        ids: list[str] = []
        for file in files:
            about = about_encoded(file, key)
            ids += about[key]
            left.join(*about["left_out"])
        distances = read_tensors(found_file(bank, work, files), ())[1]
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
