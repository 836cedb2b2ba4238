"""OOD scores from the nearest training images, of which at most a fixed number is stored (Bank)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sorites.core import Batches, Head, Outputs, add_scorer
from sorites.core.errors import TooFewImages
from sorites.scorers.base import (
    ROWS_PER_BLOCK,
    Bank,
    Fitted,
    Real,
    Score,
    TrainingBatch,
    Wide,
    features_of,
    logits_of,
    logsumexp,
    whole,
)
from sorites.scorers.products import BlockProduct, block_product

Rows = NDArray[np.float32]
# Similarities in memory at a time: 16 MB for any size of the bank.
SIMILARITIES_PER_BLOCK = 1 << 22
# Neighbours whose float32 similarity (of unit rows) is within this tolerance of the k-th are compared again
# in float64.
FLOAT32_TOLERANCE = 1e-5


@add_scorer
class knn(Fitted):
    """Euclidean distance to the ``k``-th nearest training image, with features scaled to unit length (Sun et
    al. 2022).

    At most ``bank`` training images are stored, chosen by a hash of their ids. A zero feature vector has no
    direction; its distance to every other is 1.
    """

    needs: ClassVar = frozenset({"training", "features"})
    ranges: ClassVar = {"k": (50, 100, 200, 500, 1000)}

    def __init__(self, k: int = 50, bank: int = 50_000) -> None:
        self.k, self.bank = whole(k, "knn", "k"), whole(bank, "knn", "bank")
        self._bank: Rows | None = None

    def enough(self, count: int) -> int:
        return check_k(min(count, self.bank), self.k, self.name)

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        self._bank = build_bank(self, batches, lambda batch: directions(batch.features))
        return self

    def __call__(self, outputs: Outputs) -> Score:
        bank = self.ready(self._bank)
        queries = directions(features_of(outputs, self.name, bank.shape[1]))
        block_size = max(1, SIMILARITIES_PER_BLOCK // len(bank))
        scores = [
            _kth_distance(queries[i : i + block_size], bank, self.k)
            for i in range(0, len(queries), block_size)
        ]
        return np.concatenate(scores).astype(np.float32) if scores else np.empty(0, np.float32)


@add_scorer
class nnguide(Fitted):
    """Energy guided by the ``k`` nearest training images, each weighted by its energy (Park, Jung and Teoh
    2023).

    At most ``bank`` training images are stored; the default is about 1 % of ImageNet, as in the paper.
    """

    needs: ClassVar = frozenset({"training", "features"})
    version: ClassVar[int | str] = 2

    def __init__(self, k: int = 100, bank: int = 10_000) -> None:
        self.k, self.bank = whole(k, "nnguide", "k"), whole(bank, "nnguide", "bank")
        self._bank: Rows | None = None

    def enough(self, count: int) -> int:
        return check_k(min(count, self.bank), self.k, self.name)

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        def weighed(batch: TrainingBatch) -> Rows:
            return (directions(batch.features) * logsumexp(batch.logits.astype(np.float64))[:, None]).astype(
                np.float32
            )

        self._bank = build_bank(self, batches, weighed)
        return self

    def __call__(self, outputs: Outputs) -> Score:
        bank = self.ready(self._bank)
        queries, logits = features_of(outputs, self.name, bank.shape[1]), logits_of(outputs, self.name)

        blocks = block_product(np.ascontiguousarray(bank.T))
        similarity = self._exact_similarity if blocks is None else self._block_similarity(blocks)
        block_size = ROWS_PER_BLOCK if blocks else max(1, SIMILARITIES_PER_BLOCK // len(bank))
        scores = [
            similarity(directions(queries[i : i + block_size]))
            * logsumexp(logits[i : i + block_size].astype(np.float64))
            for i in range(0, len(queries), block_size)
        ]
        return -np.concatenate(scores).astype(np.float32) if scores else np.empty(0, np.float32)

    def _block_similarity(self, product: BlockProduct) -> Callable[[Rows], Wide]:
        """Return a function for the mean similarity of the ``k`` most similar rows, all in float32.

        It is faster than ``_exact_similarity``, because it need not decide between almost equal rows.
        """

        def similarity(queries: Rows) -> Wide:
            similar = product(queries)
            similar.partition(similar.shape[1] - self.k, axis=1)
            return np.asarray(similar[:, -self.k :].sum(axis=1, dtype=np.float64) / self.k)

        return similarity

    def _exact_similarity(self, queries: Rows) -> Wide:
        """Return the mean similarity of the ``k`` most similar rows, chosen in float32 and summed in
        float64.
        """
        bank = self.ready(self._bank)
        near = _find_neighbours(
            queries @ bank.T, self.k, FLOAT32_TOLERANCE * float(np.linalg.norm(bank, axis=1).max())
        )
        total = np.einsum("nd,nd->n", queries.astype(np.float64), near.certain @ bank.astype(np.float64))
        exact = _undecided(queries, bank, near, lambda a, b: np.einsum("nd,nd->n", a, b))
        order = np.lexsort((-exact, near.rows))
        rank_in_query = np.arange(len(order)) - np.searchsorted(near.rows, near.rows)
        selected = rank_in_query < (self.k - near.certain_counts)[near.rows]
        nearest = np.bincount(near.rows[selected], exact[order][selected], len(queries))
        return np.asarray((total + nearest) / self.k)


def build_bank(scorer: knn | nnguide, batches: Batches, rows_of: Callable[[TrainingBatch], Rows]) -> Rows:
    """Return the rows of the training images that the scorer stores."""
    bank = Bank(scorer.bank)
    for batch in scorer.training(batches):
        bank.add(rows_of(batch), batch.ids)
    rows = bank.rows()
    scorer.fitted["bank"] = scorer.enough(len(rows))
    return rows


def check_k(count: int, k: int, scorer: str) -> int:
    """Return ``count``; raise an error if there are fewer than ``k`` training images."""
    if count < k:
        kind = scorer.partition("(")[0]
        raise TooFewImages(
            f"scorer {scorer}: expected at least k={k} training images, got {count}. "
            f"Use more training images, or {kind}(k={max(1, count // 2)})"
        )
    return count


def directions(rows: NDArray[Real]) -> NDArray[Real]:
    """Scale rows to unit length in their own precision; zero rows stay zero."""
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))
    return np.asarray(rows / np.where(lengths == 0, 1, lengths)[:, None]).astype(rows.dtype)


@dataclass(frozen=True)
class Neighbours:
    """The most similar bank rows of each query, found in float32.

    Attributes:
        certain: A sparse matrix (queries x bank) with ones at rows certainly among the k most similar.
        rows: The query of each pair that float32 leaves undecided.
        columns: The bank row of each such pair.
    """

    certain: Any
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]

    @property
    def certain_counts(self) -> NDArray[np.intp]:
        """The number of certain neighbours of each query."""
        return np.asarray(np.diff(self.certain.indptr), np.intp)


def _find_neighbours(similar: Rows, k: int, tolerance: float) -> Neighbours:
    """Split the neighbours of each query into certain ones and those within ``tolerance`` of the k-th
    similarity.
    """
    from scipy.sparse import csr_array

    kth = np.partition(similar, -k, axis=1)[:, -k]
    rows, columns = np.divmod(np.flatnonzero(similar >= kth[:, None] - tolerance), similar.shape[1])
    certain = similar[rows, columns] > kth[rows] + tolerance
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows[certain], minlength=len(similar)))])
    ones = csr_array((np.ones(certain.sum()), columns[certain], starts), shape=similar.shape)
    return Neighbours(ones, rows[~certain], columns[~certain])


def _kth_distance(queries: Rows, bank: Rows, k: int) -> Wide:
    """Return the distance to the k-th nearest row: a float32 matmul finds candidates, float64 decides among
    them.
    """
    similar = queries @ bank.T
    empty = ~bank.any(axis=1)
    if empty.any():
        # A zero row is at distance 1, like a unit row with similarity 0.5.
        similar[:, empty] += 0.5
    near = _find_neighbours(similar, k, FLOAT32_TOLERANCE)
    exact = _undecided(queries, bank, near, lambda a, b: np.linalg.norm(a - b, axis=1))
    order = np.lexsort((exact, near.rows))
    return np.asarray(
        exact[order][np.searchsorted(near.rows, np.arange(len(queries))) + k - 1 - near.certain_counts]
    )


def _undecided(queries: Rows, bank: Rows, near: Neighbours, rule: Callable[[Wide, Wide], Wide]) -> Wide:
    """Return ``rule`` of each undecided pair, computed in float64."""
    scores, block_size = np.empty(len(near.rows)), max(1, SIMILARITIES_PER_BLOCK // bank.shape[1])
    for i in range(0, len(scores), block_size):
        block = slice(i, i + block_size)
        scores[block] = rule(
            queries[near.rows[block]].astype(np.float64), bank[near.columns[block]].astype(np.float64)
        )
    return scores
