"""The exact distance to the k-th nearest in-distribution neighbour, in bounded memory.

Long et al., "Rethinking the Evaluation of Out-of-Distribution Detection: A Sorites Paradox",
NeurIPS 2024, equation 4 and appendix C: the distance of an image is its cosine distance to the
tenth nearest in-distribution one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core.errors import MissingExtra, SoritesError

Array = NDArray[np.float32]
# Features of in-distribution images, N x D: an array (also one mapped from a file, which may exceed
# memory), or blocks of one.
Bank = NDArray[np.floating] | Iterable[NDArray[np.floating]]

# The neighbour that counts, as published; the nearest one would be noisy.
K = 10
# A function of queries, a block of the bank and the k best similarities so far; it returns the k
# best with that block.
Search = Callable[[Array, Array, Array], Array]

# The numbers of queries and neighbours compared at a time: 16 MB of similarities, whatever the size
# of either.
ROWS, COLUMNS = 1024, 4096


def exact_kth_distance(queries: NDArray[np.floating], bank: Bank, k: int = K) -> Array:
    """Return the cosine distance (0 to 2) of each query to its ``k``-th nearest row of ``bank``; a
    row equal to it counts too.

    Every pair is compared, one block at a time. A bank larger than memory is searched by faiss
    where that is installed.
    """
    if k < 1:
        raise SoritesError(f"expected the k-th neighbour with k of 1 or more, got {k}")
    wanted = directions(queries, "queries")
    best = np.full((len(wanted), k), -np.inf, np.float32)
    search = (_faiss() if _too_large(bank) else None) or _matmul()
    seen = 0
    for block in _blocks(bank):
        rows = directions(block, "the in-distribution images", seen)
        if rows.shape[1] != wanted.shape[1]:
            raise SoritesError(
                f"queries have {wanted.shape[1]} dimensions and the in-distribution {rows.shape[1]}: not the same"
                " space"
            )
        for start in range(0, len(wanted), ROWS):
            some = slice(start, start + ROWS)
            best[some] = search(wanted[some], rows, best[some])
        seen += len(rows)
    if seen < k:
        raise SoritesError(
            f"expected the {k}th nearest of the in-distribution images, which are only {seen}; give more of them or a"
            " smaller k"
        )
    return np.asarray(np.clip(1 - best.min(axis=1), 0, 2), np.float32)


def directions(rows: NDArray[np.floating], what: str, first: int = 0) -> Array:
    """Return the rows scaled to length 1; a row that is not finite, or has no direction, is an
    error that names it.
    """
    rows = np.asarray(rows)
    if rows.ndim != 2:
        raise SoritesError(f"{what}: expected an array of N x D, got shape {rows.shape}")
    found = rows.astype(np.float32)
    lengths = np.sqrt(np.einsum("nd,nd->n", found, found, dtype=np.float64))
    wrong = np.flatnonzero(~np.isfinite(lengths) | (lengths == 0))
    if wrong.size:
        kind = "zero, which has no direction" if lengths[wrong[0]] == 0 else "not finite"
        raise SoritesError(f"{what}: row {first + wrong[0]} is {kind} ({wrong.size} such rows)")
    found /= lengths[:, None].astype(np.float32)
    return found


def _blocks(bank: Bank) -> Iterator[NDArray[np.floating]]:
    for part in [bank] if isinstance(bank, np.ndarray) else bank:
        yield from (part[start : start + COLUMNS] for start in range(0, len(part), COLUMNS))


def _matmul() -> Search:
    """Return a search by one matmul per block, into memory that is reused: fresh memory would cost
    as much as the search.

    Only similarities above the k-th best so far can matter. After the first blocks they are few,
    unless the bank is sorted the worst way; then the whole block is partitioned.
    """
    room, above = np.empty(ROWS * COLUMNS, np.float32), np.empty(ROWS * COLUMNS, bool)

    def merge(queries: Array, rows: Array, best: Array) -> Array:
        shape, size, k = (len(queries), len(rows)), len(queries) * len(rows), best.shape[1]
        similar = np.matmul(queries, rows.T, out=room[:size].reshape(shape))
        np.greater(similar, best.min(axis=1)[:, None], out=above[:size].reshape(shape))
        if np.count_nonzero(above[:size]) < size / 16:
            return _joined(best, np.flatnonzero(above[:size]), similar)
        similar.partition(max(len(rows) - k, 0), axis=1)
        return _largest(np.concatenate([best, similar[:, max(len(rows) - k, 0) :]], axis=1), k)

    return merge


def _joined(best: Array, places: NDArray[np.intp], similar: Array) -> Array:
    """Return the k best of each row after those at flat ``places`` of ``similar`` have joined them."""
    if not places.size:
        return best
    rows = places // similar.shape[1]
    counts = np.bincount(rows, minlength=len(best))
    nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    found = np.full((len(best), int(counts.max())), -np.inf, np.float32)
    found[rows, nth] = similar.reshape(-1)[places]
    return _largest(np.concatenate([best, found], axis=1), best.shape[1])


def _largest(values: Array, k: int) -> Array:
    """Return the k largest of each row, in no order."""
    return np.partition(values, values.shape[1] - k, axis=1)[:, values.shape[1] - k :]


def _too_large(bank: Bank) -> bool:
    """Return whether an array is mapped from a file and does not fit into the memory of this machine."""
    return isinstance(bank, np.memmap) and bank.nbytes > os.sysconf("SC_PAGE_SIZE") * os.sysconf(
        "SC_PHYS_PAGES"
    )


def _faiss() -> Search | None:
    """Return the same search with faiss's exact search of a block, or None where faiss is not installed."""
    try:
        import faiss
    except ImportError:
        return None

    def merge(queries: Array, rows: Array, best: Array) -> Array:
        k = best.shape[1]
        similar, _ = faiss.knn(queries, rows, min(k, len(rows)), metric=faiss.METRIC_INNER_PRODUCT)
        return _largest(np.concatenate([best, similar], axis=1), k)

    return merge


# The distance to the k-th nearest in-distribution neighbour by an index of faiss: faster than comparing all
# pairs, and not exact.


Kind = Literal["ivf", "hnsw"]
# Queries on which the recall is measured, evenly among all.
JUDGED = 500
# Cells that an inverted file looks into; links of a node of the graph, and how many candidates its
# search keeps.
PROBES, LINKS, EFFORT = 32, 32, 128
# Rows that are added to an index, or asked about, at a time.
INDEXES_ROWS = 65_536


class Index:
    """An index over in-distribution features, built once; a search says how much it misses."""

    def __init__(self, index: Any, kind: Kind, k: int) -> None:
        self.kind, self.k, self._index = kind, k, index

    @classmethod
    def build(cls, bank: Array, kind: Kind, k: int) -> Index:
        """Return an index over the rows of a bank."""
        if len(bank) < k:
            raise SoritesError(
                f"expected the {k}th nearest of the in-distribution images, which are only {len(bank)}; give more of them"
            )
        return cls(_made(_indexes_faiss(), bank, kind), kind, k)

    @classmethod
    def read(cls, path: Path, kind: Kind, k: int) -> Index:
        """Read an index from the file that ``packed`` gave."""
        try:
            return cls(_indexes_faiss().deserialize_index(np.fromfile(path, np.uint8)), kind, k)
        except RuntimeError as error:
            raise SoritesError(
                f"{path} is no index of faiss: {error}. Delete it; it is built again."
            ) from error

    def packed(self) -> bytes:
        """Return the index as the bytes of a file."""
        data: bytes = _indexes_faiss().serialize_index(self._index).tobytes()
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
            self._index.search(directions(queries[i : i + INDEXES_ROWS], "queries", i), self.k)[0]
            for i in range(0, len(queries), INDEXES_ROWS)
        ]
        return np.concatenate(found) if found else np.empty((0, self.k), np.float32)

    def kth_distance(self, queries: Array) -> Array:
        """Return the cosine distance of each query to the k-th nearest that the index finds: never
        nearer than the true one.
        """
        return np.asarray(np.clip(1 - self.search(queries)[:, -1], 0, 2), np.float32)

    def recall(self, queries: Array, bank: Bank, most: int = JUDGED) -> tuple[float, int]:
        """Return the share of the true k nearest in the bank that the index finds, and on how many
        queries it was measured.
        """
        some = queries[evenly(len(queries), most)]
        limit = 1 - exact_kth_distance(some, bank, self.k)[:, None]
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
        index.train(directions(bank[:: max(1, len(bank) // (256 * cells))], "the in-distribution images"))
    else:
        raise SoritesError(f"expected exact, ivf or hnsw neighbours, got {kind}")
    for start in range(0, len(bank), INDEXES_ROWS):
        index.add(directions(bank[start : start + INDEXES_ROWS], "the in-distribution images", start))
    return index


def _indexes_faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtra("an index of neighbours", "faiss") from error
    return faiss


# Levels of a distance: the interval that it falls into, 1 for the nearest.


LEVELS = 8
# Percentiles between which the intervals are laid, so that one odd image does not stretch them
# all.
CUT = (1.0, 99.0)


def uniform(degrees: NDArray[np.floating], levels: int = LEVELS) -> tuple[float, ...]:
    """Return the ``levels - 1`` inner edges of equal intervals between the 1st and the 99th
    percentile of the degrees.

    Values outside those percentiles fall into the first or the last level. Degrees that are not
    finite do not count.
    """
    values = np.asarray(degrees, np.float64)
    values = values[np.isfinite(values)]
    if levels < 2:
        raise SoritesError(f"expected two or more levels, got {levels}")
    if values.size < levels:
        raise SoritesError(
            f"expected {levels} or more degrees to choose {levels} levels from, got {values.size}"
        )
    low, high = np.percentile(values, CUT)
    if not low < high:
        raise SoritesError(f"the degrees are all {low:.6g}: there is nothing to divide into levels")
    return tuple(float(edge) for edge in np.linspace(low, high, levels + 1)[1:-1])


def level_of(degrees: NDArray[np.floating], edges: Sequence[float]) -> pl.Series:
    """Return level 1 below the first edge, up to ``len(edges) + 1``; an edge belongs to the level above it.

    The level of a degree that is not finite is null.
    """
    inner = np.asarray(edges, np.float64)
    if inner.size == 0 or not np.isfinite(inner).all() or (np.diff(inner) <= 0).any():
        raise SoritesError(f"expected edges that rise, got {list(edges)}")
    values = np.asarray(degrees, np.float64)
    found = pl.Series("level", 1 + np.searchsorted(inner, values, side="right"), dtype=pl.Int32)
    return pl.select(pl.when(pl.Series(np.isfinite(values))).then(found).alias("level")).to_series()
