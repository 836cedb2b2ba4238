"""The distance to the k-th nearest familiar neighbour by an index of faiss: faster than comparing all pairs, and not exact.

How much is missed is measured on some of the queries themselves, against all pairs, and stands in the name of the result.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sorites.errors import MissingExtra, SoritesError
from sorites.measures._neighbours import Array, Bank, directions, kth_distance

Kind = Literal["ivf", "hnsw"]
JUDGED = 500
"""Queries on which the recall is measured, evenly among all."""
PROBES, LINKS, EFFORT = 32, 32, 128
"""Cells that an inverted file looks into; links of a node of the graph, and how many candidates its search keeps."""
ROWS = 65_536
"""Rows that are added to an index, or asked about, at a time."""


class Index:
    """An index over familiar features, built once; a search says how much it misses."""

    def __init__(self, index: Any, kind: Kind, k: int) -> None:
        self.kind, self.k, self._index = kind, k, index

    @classmethod
    def build(cls, bank: Array, kind: Kind, k: int) -> Index:
        """Return an index over the rows of a bank."""
        if len(bank) < k:
            raise SoritesError(f"wanted the {k}th nearest of the familiar, which are only {len(bank)}; give more of them")
        return cls(_made(_faiss(), bank, kind), kind, k)

    @classmethod
    def read(cls, path: Path, kind: Kind, k: int) -> Index:
        """Read an index from the file that ``packed`` gave."""
        try:
            return cls(_faiss().deserialize_index(np.fromfile(path, np.uint8)), kind, k)
        except RuntimeError as error:
            raise SoritesError(f"{path} is no index of faiss: {error}. Delete it; it is built again.") from error

    def packed(self) -> bytes:
        """Return the index as the bytes of a file."""
        data: bytes = _faiss().serialize_index(self._index).tobytes()
        return data

    @property
    def options(self) -> str:
        """The options by which it searches, as they stand in the name of a result."""
        if self.kind == "hnsw":
            return f"links={LINKS}, effort={self._index.hnsw.efSearch}"
        return f"cells={self._index.nlist}, probes={self._index.nprobe}"

    def search(self, queries: Array) -> Array:
        """Return the k largest similarities that the index finds of each query, the largest first."""
        found = [
            self._index.search(directions(queries[i : i + ROWS], "queries", i), self.k)[0] for i in range(0, len(queries), ROWS)
        ]
        return np.concatenate(found) if found else np.empty((0, self.k), np.float32)

    def kth_distance(self, queries: Array) -> Array:
        """Return the cosine distance of each query to the k-th nearest that the index finds: never nearer than the true one."""
        return np.asarray(np.clip(1 - self.search(queries)[:, -1], 0, 2), np.float32)

    def recall(self, queries: Array, bank: Bank, most: int = JUDGED) -> tuple[float, int]:
        """Return the share of the true k nearest in the bank that the index finds, and on how many queries it was measured."""
        some = queries[evenly(len(queries), most)]
        limit = 1 - kth_distance(some, bank, self.k)[:, None]
        return float((self.search(some) >= limit - 1e-5).mean()), len(some)

    def name(self, queries: Array, bank: Bank) -> str:
        """Return what a result of this index is called: with its options and its measured recall."""
        share, count = self.recall(queries, bank)
        return f"{self.kind}({self.options}), recall {share:.3f} of the {self.k} nearest on {count} queries"


def evenly(count: int, most: int = JUDGED) -> NDArray[np.intp]:
    """Return at most so many places evenly among ``count``."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(np.intp))


def _made(faiss: Any, bank: Array, kind: Kind) -> Any:
    wide, near = bank.shape[1], faiss.METRIC_INNER_PRODUCT
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(wide, LINKS, near)
        index.hnsw.efConstruction = index.hnsw.efSearch = EFFORT
    elif kind == "ivf":
        cells = max(1, min(round(4 * math.sqrt(len(bank))), len(bank) // 39))
        index = faiss.index_factory(wide, f"IVF{cells},Flat", near)
        index.nprobe = min(PROBES, cells)
        index.train(directions(bank[:: max(1, len(bank) // (256 * cells))], "the familiar"))
    else:
        raise SoritesError(f"wanted exact, ivf or hnsw neighbours, got {kind}")
    for start in range(0, len(bank), ROWS):
        index.add(directions(bank[start : start + ROWS], "the familiar", start))
    return index


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtra("an index of neighbours", "faiss") from error
    return faiss
