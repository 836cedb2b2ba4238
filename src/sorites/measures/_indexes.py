"""The distance to the k-th nearest familiar neighbour by an index of faiss: faster than comparing all pairs, and not exact.

How much is missed is measured on some of the queries themselves, against all pairs, and stands in the name of the result.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from sorites.errors import MissingExtra, SoritesError
from sorites.measures._neighbours import Array, directions, kth_distance

Kind = Literal["ivf", "hnsw"]
JUDGED = 500
"""Queries on which the recall is measured, evenly among all."""
PROBES, LINKS, EFFORT = 32, 32, 128
"""Cells that an inverted file looks into; links of a node of the graph, and how many candidates its search keeps."""
ROWS = 65_536
"""Rows that are added to an index, or asked about, at a time."""


class Index:
    """An index over familiar features, built once; a search says how much it misses."""

    def __init__(self, bank: Array, kind: Kind, k: int) -> None:
        if len(bank) < k:
            raise SoritesError(f"wanted the {k}th nearest of the familiar, which are only {len(bank)}; give more of them")
        self.kind, self.k, self._bank = kind, k, bank
        self._index, self.options = _made(_faiss(), bank, kind)

    def search(self, queries: Array) -> Array:
        """Return the k largest similarities that the index finds of each query, the largest first."""
        found = [
            self._index.search(directions(queries[i : i + ROWS], "queries", i), self.k)[0] for i in range(0, len(queries), ROWS)
        ]
        return np.concatenate(found) if found else np.empty((0, self.k), np.float32)

    def kth_distance(self, queries: Array) -> Array:
        """Return the cosine distance of each query to the k-th nearest that the index finds: never nearer than the true one."""
        return np.asarray(np.clip(1 - self.search(queries)[:, -1], 0, 2), np.float32)

    def recall(self, queries: Array, most: int = JUDGED) -> tuple[float, int]:
        """Return the share of the true k nearest that the index finds, and on how many queries that was measured."""
        some = queries[np.unique(np.linspace(0, len(queries) - 1, min(most, len(queries))).round().astype(int))]
        limit = 1 - kth_distance(some, self._bank, self.k)[:, None]
        return float((self.search(some) >= limit - 1e-5).mean()), len(some)

    def name(self, queries: Array) -> str:
        """Return what a result of this index is called: with its options and its measured recall."""
        share, count = self.recall(queries)
        return f"{self.kind}({self.options}), recall {share:.3f} of the {self.k} nearest on {count} queries"


def _made(faiss: Any, bank: Array, kind: Kind) -> tuple[Any, str]:
    wide, near = bank.shape[1], faiss.METRIC_INNER_PRODUCT
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(wide, LINKS, near)
        index.hnsw.efConstruction = index.hnsw.efSearch = EFFORT
        options = f"links={LINKS}, effort={EFFORT}"
    elif kind == "ivf":
        cells = max(1, min(round(4 * math.sqrt(len(bank))), len(bank) // 39))
        index = faiss.index_factory(wide, f"IVF{cells},Flat", near)
        index.nprobe = min(PROBES, cells)
        index.train(directions(bank[:: max(1, len(bank) // (256 * cells))], "the familiar"))
        options = f"cells={cells}, probes={index.nprobe}"
    else:
        raise SoritesError(f"wanted exact, ivf or hnsw neighbours, got {kind}")
    for start in range(0, len(bank), ROWS):
        index.add(directions(bank[start : start + ROWS], "the familiar", start))
    return index, options


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtra("an index of neighbours", "faiss") from error
    return faiss
