"""OOD score as the distance to training images that the scorer keeps in a bank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sorites.core import Batches, Head, Outputs, add_scorer
from sorites.core.errors import SoritesError
from sorites.scorers.base import Bank, Fitted, Score, Seen, Wide, features_of, logits_of, logsumexp, whole

Rows = NDArray[np.float32]
# This many similarities are in memory at a time: 16 MB, whatever the size of the bank.
CELLS = 1 << 22
# Neighbours whose float32 similarity, for rows of length 1, is this near the k-th are compared
# again in float64.
BAND = 1e-5


@add_scorer
class knn(Fitted):
    """Distance to the ``k``-th nearest training image, with features scaled to length 1 (Sun et al. 2022).

    At most ``bank`` training images are kept, chosen by a hash of their ids. A zero feature
    vector has no direction: it is at distance 1 from every other.
    """

    needs: ClassVar = frozenset({"training", "features"})
    ranges: ClassVar = {"k": (50, 100, 200, 500, 1000)}

    def __init__(self, k: int = 50, bank: int = 50_000) -> None:
        self.k, self.bank = whole(k, "knn", "k"), whole(bank, "knn", "bank")
        self._bank: Rows | None = None

    def enough(self, count: int) -> int:
        return check_k(min(count, self.bank), self.k, self.name)

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        self._bank = remembered(self, batches, lambda seen: directions(seen.features))
        return self

    def __call__(self, outputs: Outputs) -> Score:
        bank = self.ready(self._bank)
        queries = directions(features_of(outputs, self.name, bank.shape[1]))
        some = max(1, CELLS // len(bank))
        scores = [_kth(queries[i : i + some], bank, self.k) for i in range(0, len(queries), some)]
        return np.concatenate(scores).astype(np.float32) if scores else np.empty(0, np.float32)


@add_scorer
class nnguide(Fitted):
    """Energy guided by the ``k`` nearest training images, each weighted by its own energy (Park,
    Jung and Teoh 2023).

    At most ``bank`` training images are kept; the default is about the 1 % of ImageNet that the paper uses.
    """

    needs: ClassVar = frozenset({"training", "features"})

    def __init__(self, k: int = 100, bank: int = 10_000) -> None:
        self.k, self.bank = whole(k, "nnguide", "k"), whole(bank, "nnguide", "bank")
        self._bank: Rows | None = None

    def enough(self, count: int) -> int:
        return check_k(min(count, self.bank), self.k, self.name)

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        def weighed(seen: Seen) -> Rows:
            return (directions(seen.features) * logsumexp(seen.logits.astype(np.float64))[:, None]).astype(
                np.float32
            )

        self._bank = remembered(self, batches, weighed)
        return self

    def __call__(self, outputs: Outputs) -> Score:
        bank = self.ready(self._bank)
        queries, logits = features_of(outputs, self.name, bank.shape[1]), logits_of(outputs, self.name)

        some = max(1, CELLS // len(bank))
        scores = [
            _nearest(directions(queries[i : i + some]), bank, self.k)
            * logsumexp(logits[i : i + some].astype(np.float64))
            for i in range(0, len(queries), some)
        ]
        return -np.concatenate(scores).astype(np.float32) if scores else np.empty(0, np.float32)


def remembered(scorer: knn | nnguide, batches: Batches, rows_of: Callable[[Seen], Rows]) -> Rows:
    """Return the rows of the training images that the scorer's bank keeps."""
    bank = Bank(scorer.bank)
    for seen in scorer.training(batches):
        bank.add(rows_of(seen), seen.ids)
    rows = bank.rows()
    scorer.fitted["bank"] = scorer.enough(len(rows))
    return rows


def check_k(count: int, k: int, who: str) -> int:
    """Return ``count``; too few training images to have a k-th nearest are an error."""
    if count < k:
        kind = who.partition("(")[0]
        raise SoritesError(
            f"scorer {who}: wanted the {k} nearest of its training images, which are only {count}. "
            f"Give more of them, or type {kind}(k={max(1, count // 2)})"
        )
    return count


def directions(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """Scale rows to length 1 in their own precision; a zero row stays zero."""
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))
    return np.asarray(rows / np.where(lengths == 0, 1, lengths)[:, None]).astype(rows.dtype)


@dataclass(frozen=True)
class Close:
    """The rows of a bank most similar to each query, found in float32.

    ``sure`` is a sparse matrix with ones at the rows that are certainly among the k most similar;
    ``rows`` and ``columns`` are the pairs that float32 leaves undecided.
    """

    sure: Any
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]

    @property
    def counts(self) -> NDArray[np.intp]:
        """The number of certain neighbours of each query."""
        return np.asarray(np.diff(self.sure.indptr), np.intp)


def _close(similar: Rows, k: int, band: float) -> Close:
    """Split the neighbours of each query into certain ones and those within ``band`` of the k-th
    similarity.
    """
    from scipy.sparse import csr_array

    kth = np.partition(similar, -k, axis=1)[:, -k]
    rows, columns = np.divmod(np.flatnonzero(similar >= kth[:, None] - band), similar.shape[1])
    sure = similar[rows, columns] > kth[rows] + band
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows[sure], minlength=len(similar)))])
    ones = csr_array((np.ones(sure.sum()), columns[sure], starts), shape=similar.shape)
    return Close(ones, rows[~sure], columns[~sure])


def _kth(queries: Rows, bank: Rows, k: int) -> Wide:
    """Return the distance to the k-th nearest row, found by a float32 matmul and settled among the
    close ones in float64.
    """
    similar = queries @ bank.T
    empty = ~bank.any(axis=1)
    if empty.any():
        similar[:, empty] += 0.5  # a zero row is 1 away, as a row of length 1 with this similarity is
    near = _close(similar, k, BAND)
    exact = _pairs(queries, bank, near, lambda a, b: np.linalg.norm(a - b, axis=1))
    order = np.lexsort((exact, near.rows))
    return np.asarray(exact[order][np.searchsorted(near.rows, np.arange(len(queries))) + k - 1 - near.counts])


def _nearest(queries: Rows, bank: Rows, k: int) -> Wide:
    """Return the mean similarity of the k most similar rows, which a float32 matmul finds and
    float64 sums.
    """
    near = _close(queries @ bank.T, k, BAND * float(np.linalg.norm(bank, axis=1).max()))
    total = np.einsum("nd,nd->n", queries.astype(np.float64), near.sure @ bank.astype(np.float64))
    exact = _pairs(queries, bank, near, lambda a, b: np.einsum("nd,nd->n", a, b))
    order = np.lexsort((-exact, near.rows))
    place = np.arange(len(order)) - np.searchsorted(near.rows, near.rows)
    taken = place < (k - near.counts)[near.rows]
    return np.asarray((total + np.bincount(near.rows[taken], exact[order][taken], len(queries))) / k)


def _pairs(queries: Rows, bank: Rows, near: Close, rule: Callable[[Wide, Wide], Wide]) -> Wide:
    """Return ``rule`` of each pair that float32 leaves undecided, in float64."""
    scores, some = np.empty(len(near.rows)), max(1, CELLS // bank.shape[1])
    for i in range(0, len(scores), some):
        here = slice(i, i + some)
        scores[here] = rule(
            queries[near.rows[here]].astype(np.float64), bank[near.columns[here]].astype(np.float64)
        )
    return scores
