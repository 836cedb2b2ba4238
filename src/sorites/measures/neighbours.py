"""Distance to the k-th nearest in-distribution neighbour, exact or by a faiss index, and levels of
distances.

Long et al., "Rethinking the Evaluation of Out-of-Distribution Detection: A Sorites Paradox", NeurIPS
2024, equation 4 and appendix C: the distance of an image is its cosine distance to the tenth nearest
in-distribution image.
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
# Features of in-distribution images, N x D: an array, possibly memory-mapped, or blocks of one.
Bank = NDArray[np.floating] | Iterable[NDArray[np.floating]]

# The published default; the nearest neighbour alone would be noisy.
K = 10
# A function of queries, a block of the bank and the k best similarities so far; it returns the k best
# including that block.
Search = Callable[[Array, Array, Array], Array]

# Queries and neighbours compared at a time: 16 MB of similarities for any sizes.
QUERIES_PER_BLOCK, NEIGHBOURS_PER_BLOCK = 1024, 4096


def exact_kth_distance(queries: NDArray[np.floating], bank: Bank, k: int = K) -> Array:
    """Return the cosine distance (0 to 2) of each query to its k-th nearest row of ``bank``, in bounded
    memory.

    Every pair is compared, one block at a time. A bank larger than memory is searched by faiss where it
    is installed.

    Args:
        queries: N x D features.
        bank: In-distribution features; a row equal to a query counts too.
        k: Which neighbour.

    Raises:
        SoritesError: If k exceeds the size of the bank, or the dimensions differ.
    """
    if k < 1:
        raise SoritesError(f"k must be at least 1, got {k}")
    query_directions = directions(queries, "queries")
    best = np.full((len(query_directions), k), -np.inf, np.float32)
    search = (_faiss_search() if _too_large(bank) else None) or _matmul_search()
    count = 0
    for block in _blocks(bank):
        rows = directions(block, "the in-distribution images", count)
        if rows.shape[1] != query_directions.shape[1]:
            raise SoritesError(
                f"queries have {query_directions.shape[1]} dimensions and in-distribution images"
                f" {rows.shape[1]}: not the same space"
            )
        for start in range(0, len(query_directions), QUERIES_PER_BLOCK):
            block_queries = slice(start, start + QUERIES_PER_BLOCK)
            best[block_queries] = search(query_directions[block_queries], rows, best[block_queries])
        count += len(rows)
    if count < k:
        raise SoritesError(
            f"k={k} exceeds the {count} in-distribution images; use more images or a smaller k"
        )
    return np.asarray(np.clip(1 - best.min(axis=1), 0, 2), np.float32)


def directions(rows: NDArray[np.floating], what: str, first: int = 0) -> Array:
    """Return the rows scaled to unit length.

    Args:
        rows: N x D features.
        what: What the rows are, for error messages.
        first: The index of the first row, for error messages.

    Raises:
        SoritesError: If a row is zero or not finite.
    """
    rows = np.asarray(rows)
    if rows.ndim != 2:
        raise SoritesError(f"{what}: expected an array of N x D, got shape {rows.shape}")
    scaled = rows.astype(np.float32)
    lengths = np.sqrt(np.einsum("nd,nd->n", scaled, scaled, dtype=np.float64))
    invalid = np.flatnonzero(~np.isfinite(lengths) | (lengths == 0))
    if invalid.size:
        kind = "zero, which has no direction" if lengths[invalid[0]] == 0 else "not finite"
        raise SoritesError(f"{what}: row {first + invalid[0]} is {kind} ({invalid.size} such rows)")
    scaled /= lengths[:, None].astype(np.float32)
    return scaled


def _blocks(bank: Bank) -> Iterator[NDArray[np.floating]]:
    for part in [bank] if isinstance(bank, np.ndarray) else bank:
        yield from (
            part[start : start + NEIGHBOURS_PER_BLOCK] for start in range(0, len(part), NEIGHBOURS_PER_BLOCK)
        )


def _matmul_search() -> Search:
    """Return a search by one matmul per block into reused buffers; fresh memory would cost as much as the
    search.

    Only similarities above the k-th best so far matter. They are few after the first blocks, unless the
    bank is sorted in the worst order; then the whole block is partitioned.
    """
    buffer, above = (
        np.empty(QUERIES_PER_BLOCK * NEIGHBOURS_PER_BLOCK, np.float32),
        np.empty(QUERIES_PER_BLOCK * NEIGHBOURS_PER_BLOCK, bool),
    )

    def merge(queries: Array, rows: Array, best: Array) -> Array:
        shape, size, k = (len(queries), len(rows)), len(queries) * len(rows), best.shape[1]
        similar = np.matmul(queries, rows.T, out=buffer[:size].reshape(shape))
        np.greater(similar, best.min(axis=1)[:, None], out=above[:size].reshape(shape))
        if np.count_nonzero(above[:size]) < size / 16:
            return _merge_candidates(best, np.flatnonzero(above[:size]), similar)
        similar.partition(max(len(rows) - k, 0), axis=1)
        return _largest(np.concatenate([best, similar[:, max(len(rows) - k, 0) :]], axis=1), k)

    return merge


def _merge_candidates(best: Array, indexes: NDArray[np.intp], similar: Array) -> Array:
    """Return the k best of each row after adding the values at the flat ``indexes`` of ``similar``."""
    if not indexes.size:
        return best
    rows = indexes // similar.shape[1]
    counts = np.bincount(rows, minlength=len(best))
    nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    candidates = np.full((len(best), int(counts.max())), -np.inf, np.float32)
    candidates[rows, nth] = similar.reshape(-1)[indexes]
    return _largest(np.concatenate([best, candidates], axis=1), best.shape[1])


def _largest(values: Array, k: int) -> Array:
    """Return the k largest values of each row, unordered."""
    return np.partition(values, values.shape[1] - k, axis=1)[:, values.shape[1] - k :]


def _too_large(bank: Bank) -> bool:
    """Return whether a memory-mapped array exceeds the memory of this machine."""
    return isinstance(bank, np.memmap) and bank.nbytes > os.sysconf("SC_PAGE_SIZE") * os.sysconf(
        "SC_PHYS_PAGES"
    )


def _faiss_search() -> Search | None:
    """Return a search by faiss's exact search of a block, or None where faiss is not installed."""
    try:
        import faiss
    except ImportError:
        return None

    def merge(queries: Array, rows: Array, best: Array) -> Array:
        k = best.shape[1]
        similar, _ = faiss.knn(queries, rows, min(k, len(rows)), metric=faiss.METRIC_INNER_PRODUCT)
        return _largest(np.concatenate([best, similar], axis=1), k)

    return merge


# Approximate search by a faiss index: faster than comparing all pairs.

Kind = Literal["ivf", "hnsw"]
# Evenly spaced queries on which the recall is measured.
RECALL_QUERIES = 500
# IVF: cells searched. HNSW: links per node, and candidates kept in a search.
IVF_PROBES, HNSW_LINKS, HNSW_CANDIDATES = 32, 32, 128
# Rows added to an index or searched at a time.
INDEX_ROWS_PER_BLOCK = 65_536


class Index:
    """A faiss index over in-distribution features, which can measure its own recall."""

    def __init__(self, index: Any, kind: Kind, k: int) -> None:
        self.kind, self.k, self._index = kind, k, index

    @classmethod
    def build(cls, bank: Array, kind: Kind, k: int) -> Index:
        """Build an index over the rows of a bank."""
        if len(bank) < k:
            raise SoritesError(
                f"k={k} exceeds the {len(bank)} in-distribution images; use more images or a smaller k"
            )
        return cls(_build_index(_import_faiss(), bank, kind), kind, k)

    @classmethod
    def read(cls, path: Path, kind: Kind, k: int) -> Index:
        """Read an index from a file with the bytes of ``packed``."""
        try:
            return cls(_import_faiss().deserialize_index(np.fromfile(path, np.uint8)), kind, k)
        except RuntimeError as error:
            raise SoritesError(
                f"{path} is not a faiss index: {error}. Delete it, and it will be rebuilt."
            ) from error

    def packed(self) -> bytes:
        """Return the index as bytes."""
        data: bytes = _import_faiss().serialize_index(self._index).tobytes()
        return data

    @property
    def options(self) -> str:
        """The search options, as they appear in the name of a result."""
        if self.kind == "hnsw":
            return f"links={HNSW_LINKS}, effort={self._index.hnsw.efSearch}"
        return f"cells={self._index.nlist}, probes={self._index.nprobe}"

    def search(self, queries: Array) -> Array:
        """Return the k largest similarities that the index finds for each query, largest first."""
        parts = [
            self._index.search(directions(queries[i : i + INDEX_ROWS_PER_BLOCK], "queries", i), self.k)[0]
            for i in range(0, len(queries), INDEX_ROWS_PER_BLOCK)
        ]
        return np.concatenate(parts) if parts else np.empty((0, self.k), np.float32)

    def kth_distance(self, queries: Array) -> Array:
        """Return the cosine distance of each query to the k-th nearest row found; never below the exact
        distance.
        """
        return np.asarray(np.clip(1 - self.search(queries)[:, -1], 0, 2), np.float32)

    def recall(self, queries: Array, bank: Bank, most: int = RECALL_QUERIES) -> tuple[float, int]:
        """Return the share of the true k nearest rows that the index finds, and the number of queries it
        was measured on.
        """
        sampled = queries[evenly(len(queries), most)]
        min_similarity = 1 - exact_kth_distance(sampled, bank, self.k)[:, None]
        return float((self.search(sampled) >= min_similarity - 1e-5).mean()), len(sampled)

    def name(self, queries: Array, bank: Bank) -> str:
        """Return the name of a result of this index, with its options and measured recall."""
        share, count = self.recall(queries, bank)
        return f"{self.kind}({self.options}), recall {share:.3f} of the {self.k} nearest on {count} queries"


def evenly(count: int, most: int = RECALL_QUERIES) -> NDArray[np.intp]:
    """Return at most ``most`` evenly spaced indexes below ``count``."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(np.intp))


def _build_index(faiss: Any, bank: Array, kind: Kind) -> Any:
    width, metric = bank.shape[1], faiss.METRIC_INNER_PRODUCT
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(width, HNSW_LINKS, metric)
        index.hnsw.efConstruction = index.hnsw.efSearch = HNSW_CANDIDATES
    elif kind == "ivf":
        cells = max(1, min(round(4 * math.sqrt(len(bank))), len(bank) // 39))
        index = faiss.index_factory(width, f"IVF{cells},Flat", metric)
        index.nprobe = min(IVF_PROBES, cells)
        index.train(directions(bank[:: max(1, len(bank) // (256 * cells))], "the in-distribution images"))
    else:
        raise SoritesError(f"expected exact, ivf or hnsw, got {kind}")
    for start in range(0, len(bank), INDEX_ROWS_PER_BLOCK):
        index.add(directions(bank[start : start + INDEX_ROWS_PER_BLOCK], "the in-distribution images", start))
    return index


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtra("an index of neighbours", "faiss") from error
    return faiss


# Levels: intervals of a distance, counted from 1 for the nearest.

LEVELS = 8
# Percentiles that limit the intervals, so that outliers do not stretch them.
LEVEL_PERCENTILES = (1.0, 99.0)


def uniform(degrees: NDArray[np.floating], levels: int = LEVELS) -> tuple[float, ...]:
    """Return the ``levels - 1`` inner edges of equal intervals between the 1st and 99th percentile of
    distances.

    Values outside those percentiles belong to the first or last level. Distances that are not finite
    are ignored.

    Raises:
        SoritesError: If there are fewer than 2 levels, fewer distances than levels, or all
            distances are equal.
    """
    values = np.asarray(degrees, np.float64)
    values = values[np.isfinite(values)]
    if levels < 2:
        raise SoritesError(f"levels must be at least 2, got {levels}")
    if values.size < levels:
        raise SoritesError(
            f"expected at least {levels} distances to choose {levels} levels, got {values.size}"
        )
    low, high = np.percentile(values, LEVEL_PERCENTILES)
    if not low < high:
        raise SoritesError(f"the distances are all {low:.6g} and cannot be divided into levels")
    return tuple(float(edge) for edge in np.linspace(low, high, levels + 1)[1:-1])


def level_of(degrees: NDArray[np.floating], edges: Sequence[float]) -> pl.Series:
    """Return the level of each distance: 1 below the first edge, up to ``len(edges) + 1``.

    An edge belongs to the level above it. The level of a distance that is not finite is null.
    """
    inner = np.asarray(edges, np.float64)
    if inner.size == 0 or not np.isfinite(inner).all() or (np.diff(inner) <= 0).any():
        raise SoritesError(f"expected ascending edges, got {list(edges)}")
    values = np.asarray(degrees, np.float64)
    levels = pl.Series("level", 1 + np.searchsorted(inner, values, side="right"), dtype=pl.Int32)
    return pl.select(pl.when(pl.Series(np.isfinite(values))).then(levels).alias("level")).to_series()
