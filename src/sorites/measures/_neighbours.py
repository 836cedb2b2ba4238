"""The exact distance to the k-th nearest familiar neighbour, in bounded memory.

Long et al., "Rethinking the Evaluation of Out-of-Distribution Detection: A Sorites Paradox", NeurIPS 2024, equation 4 and
appendix C: the distance of a picture is its cosine distance to the tenth nearest familiar one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError

Array = NDArray[np.float32]
Bank = NDArray[np.floating] | Iterable[NDArray[np.floating]]
"""Features of familiar pictures, N x D: an array (also one mapped from a file, which may exceed memory), or blocks of one."""

K = 10
"""The neighbour that counts, as published; the nearest one would be noisy."""
Search = Callable[[Array, Array, Array], Array]
"""A function of queries, a block of the bank and the k best similarities so far; it returns the k best with that block."""

ROWS, COLUMNS = 1024, 4096
"""The numbers of queries and neighbours compared at a time: 16 MB of similarities, whatever the size of either."""


def kth_distance(queries: NDArray[np.floating], bank: Bank, k: int = K) -> Array:
    """Return the cosine distance (0 to 2) of each query to its ``k``-th nearest row of ``bank``; a row equal to it counts too.

    Every pair is compared, one block at a time. A bank larger than memory is searched by faiss where that is installed.
    """
    if k < 1:
        raise SoritesError(f"wanted the k-th neighbour with k of 1 or more, got {k}")
    wanted = directions(queries, "queries")
    best = np.full((len(wanted), k), -np.inf, np.float32)
    search = (_faiss() if _too_large(bank) else None) or _matmul()
    seen = 0
    for block in _blocks(bank):
        rows = directions(block, "the familiar", seen)
        if rows.shape[1] != wanted.shape[1]:
            raise SoritesError(f"queries have {wanted.shape[1]} dimensions and the familiar {rows.shape[1]}: not the same space")
        for start in range(0, len(wanted), ROWS):
            some = slice(start, start + ROWS)
            best[some] = search(wanted[some], rows, best[some])
        seen += len(rows)
    if seen < k:
        raise SoritesError(f"wanted the {k}th nearest of the familiar, which are only {seen}; give more of them or a smaller k")
    return np.asarray(np.clip(1 - best.min(axis=1), 0, 2), np.float32)


def directions(rows: NDArray[np.floating], what: str, first: int = 0) -> Array:
    """Return the rows scaled to length 1; a row that is not finite, or has no direction, is an error that names it."""
    rows = np.asarray(rows)
    if rows.ndim != 2:
        raise SoritesError(f"{what}: wanted an array of N x D, got shape {rows.shape}")
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
    """Return a search by one matmul per block, into memory that is reused: fresh memory would cost as much as the search.

    Only similarities above the k-th best so far can matter. After the first blocks they are few, unless the bank is
    sorted the worst way; then the whole block is partitioned.
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
    return isinstance(bank, np.memmap) and bank.nbytes > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
