"""OOD score from a mixture of one Gaussian per class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sorites.core import Batches, Head, Outputs, add_scorer
from sorites.core.errors import SoritesError
from sorites.scorers.base import Bank, Fitted, Score, Wide, above, features_of, logsumexp, scored, whole

# Images scored at a time: each is projected on the directions of all classes.
ROWS = 128


@dataclass(frozen=True)
class _Gaussians:
    """K Gaussians with covariance reg * I plus a few directions each.

    Attributes:
        means: K x D.
        directions: D x sum of ranks; the directions of all classes side by side, each scaled so that its
            squared projection is what the distance is smaller by, relative to 1 / reg.
        offsets: The projections of the means on their own directions.
        starts: First direction of each class.
        constants: Log weight minus half the log determinant, per class.
    """

    means: Wide
    directions: Wide
    offsets: Wide
    starts: NDArray[np.int64]
    constants: Wide


@add_scorer
class gmm(Fitted):
    """Negative log-likelihood of the features under one Gaussian per class (Mukhoti et al.
    2023).

    Each class has its own mean, covariance (plus ``reg`` on the diagonal) and weight. At most ``bank``
    training images are used, chosen by a hash of their ids; those without a label are ignored. A covariance
    of n images has n - 1 directions, so classes with few images cost little.
    """

    needs: ClassVar = frozenset({"training", "features"})
    _gaussians: _Gaussians | None = None

    def __init__(self, reg: float = 1e-6, bank: int = 50_000) -> None:
        self.reg, self.bank = above(reg, 0, "gmm", "reg"), whole(bank, "gmm", "bank")

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        bank = Bank(self.bank)
        for batch in self.training(batches):
            labelled = np.flatnonzero(batch.labels >= 0)
            ids = None if batch.ids is None else [batch.ids[i] for i in labelled.tolist()]
            labels = batch.labels[labelled, None].astype(np.float32)
            bank.add(np.concatenate([batch.features[labelled], labels], axis=1), ids)
        rows = bank.rows()
        if not len(rows):
            raise SoritesError(
                f"scorer {self.name}: expected training images with labels of the model's classes, got none"
            )
        labels, features = rows[:, -1].astype(np.int64), rows[:, :-1].astype(np.float64)
        classes = [features[labels == label] for label in np.unique(labels)]
        self.fitted |= {"bank": len(rows), "classes": len(classes)}
        self._gaussians = self._learn(classes, len(rows))
        return self

    def _learn(self, classes: list[Wide], total: int) -> _Gaussians:
        width = classes[0].shape[1]
        means, parts, offsets, ranks, constants = [], [], [], [], []
        for rows in classes:
            mean = rows.mean(axis=0)
            values, vectors = _spectrum(rows - mean)
            used = values > 1e-12 * self.reg
            values, vectors = values[used], vectors[:, used]
            scaled = vectors * np.sqrt(values / (values + self.reg))
            log_det = np.log1p(values / self.reg).sum() + width * np.log(self.reg)
            means.append(mean)
            parts.append(scaled)
            offsets.append(mean @ scaled)
            ranks.append(scaled.shape[1])
            constants.append(np.log(len(rows) / total) - 0.5 * (log_det + width * np.log(2 * np.pi)))
        starts = np.concatenate([[0], np.cumsum(ranks)[:-1]]).astype(np.int64)
        return _Gaussians(
            np.stack(means),
            np.concatenate(parts, axis=1),
            np.concatenate(offsets),
            starts,
            np.array(constants),
        )

    def __call__(self, outputs: Outputs) -> Score:
        learnt = self.ready(self._gaussians)
        squares = np.einsum("kd,kd->k", learnt.means, learnt.means)

        def rule(rows: Wide) -> Wide:
            apart = np.einsum("nd,nd->n", rows, rows)[:, None] - 2 * (rows @ learnt.means.T) + squares
            inside = rows @ learnt.directions - learnt.offsets
            np.square(inside, out=inside)
            distances = (np.maximum(apart, 0) - _sums(inside, learnt.starts)) / self.reg
            return -logsumexp(learnt.constants - 0.5 * np.maximum(distances, 0))

        return scored(rule, features_of(outputs, self.name, learnt.means.shape[1]), rows=ROWS)


def _spectrum(centred: Wide) -> tuple[Wide, Wide]:
    """Return the variances and directions of rows, from the smaller of the two products."""
    count, width = centred.shape
    if count >= width:
        return np.linalg.eigh(centred.T @ centred / count)
    _, singular, vectors = np.linalg.svd(centred, full_matrices=False)
    return singular**2 / count, vectors.T


def _sums(values: Wide, starts: NDArray[np.int64]) -> Wide:
    """Return the sum of the columns of each class; a class may have none."""
    ends = np.append(starts[1:], values.shape[1])
    sums = np.zeros((len(values), len(starts)))
    filled = ends > starts
    if filled.any():
        sums[:, filled] = np.add.reduceat(values, starts[filled], axis=1)
    return sums
