"""OOD scores from kernels between an image and the training images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from sorites.core import Batches, Head, Outputs, add_scorer
from sorites.core.errors import TooFewImages
from sorites.core.rng import rng_for
from sorites.scorers.base import (
    Bank,
    Fitted,
    Narrow,
    Score,
    Wide,
    above,
    features_of,
    log_probabilities,
    logits_of,
    scored,
    share,
    whole,
)
from sorites.scorers.knn import directions

# Images scored at a time; each is compared with the whole bank.
ROWS = 64


@add_scorer
class relation(Fitted):
    """Negative sum of relations to the training images (Kim, Yun and Song 2023).

    The relation of two images is the cosine of their features, at least 0, times the inner product of their
    probability vectors; relations up to ``threshold`` are dropped and the others are raised to ``power``. At
    most ``bank`` training images are stored, chosen by a hash of their ids.
    """

    needs: ClassVar = frozenset({"training", "features"})
    ranges: ClassVar = {"power": (1, 2, 4, 6, 8)}
    _features: Wide | None = None

    def __init__(self, power: float = 1, threshold: float = 0.03, bank: int = 10_000) -> None:
        self.power, self.threshold = above(power, 0, "relation", "power"), threshold
        self.threshold = above(threshold, -1e-300, "relation", "threshold")
        self.bank = whole(bank, "relation", "bank")

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        bank, width = Bank(self.bank), 0
        for batch in self.training(batches):
            width = batch.features.shape[1]
            bank.add(np.concatenate([batch.features, batch.logits], axis=1), batch.ids)
        rows = bank.rows().astype(np.float64)
        self.fitted["bank"] = len(rows)
        self._features = directions(rows[:, :width])
        self._likely = np.exp(log_probabilities(rows[:, width:]))
        return self

    def __call__(self, outputs: Outputs) -> Score:
        bank = self.ready(self._features)

        def rule(rows: Wide, logits: Wide) -> Wide:
            alike = np.exp(log_probabilities(logits)) @ self._likely.T
            alike *= np.maximum(directions(rows) @ bank.T, 0)
            alike[alike <= self.threshold] = 0
            return np.asarray(-(alike if self.power == 1 else alike**self.power).sum(axis=1))

        return scored(
            rule,
            features_of(outputs, self.name, bank.shape[1]),
            logits_of(outputs, self.name, self._likely.shape[1]),
            rows=ROWS,
        )


@dataclass(frozen=True)
class _Map:
    """Random Fourier features of unit rows, their mean, and the principal directions around it."""

    frequencies: Wide
    phases: Wide
    mean: Wide
    principal: Wide

    def __call__(self, rows: Wide) -> Wide:
        """Return the centred random features of rows."""
        return _fourier(rows, self.frequencies, self.phases) - self.mean


@add_scorer
class corp(Fitted):
    """Reconstruction error of kernel PCA with a cosine-Gaussian kernel (Fang et al. 2024).

    Features are scaled to unit length and mapped to ``dim`` random Fourier features of a Gaussian kernel
    exp(-``gamma`` d^2). The score is the distance to the principal directions with at least ``variance`` of
    the variance of training images, of which at most ``bank`` are used. The random frequencies are the same
    in every run.
    """

    needs: ClassVar = frozenset({"training", "features"})
    _map: _Map | None = None

    def __init__(
        self, gamma: float = 3.0, dim: int = 4096, variance: float = 0.5, bank: int = 50_000
    ) -> None:
        self.gamma, self.dim = above(gamma, 0, "corp", "gamma"), whole(dim, "corp", "dim")
        self.variance, self.bank = share(variance, "corp", "variance"), whole(bank, "corp", "bank")

    def enough(self, count: int) -> int:
        if count < 2:
            raise TooFewImages(f"scorer {self.name}: expected at least two training images, got {count}")
        return count

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        bank = Bank(self.bank)
        for batch in self.training(batches):
            bank.add(batch.features, batch.ids)
        rows = bank.rows()
        self.fitted["bank"] = self.enough(len(rows))
        rng = rng_for(0, "corp", f"{rows.shape[1]} {self.dim}")
        frequencies = np.sqrt(2 * self.gamma) * rng.standard_normal((rows.shape[1], self.dim))
        phases = 2 * np.pi * rng.random(self.dim)
        self._map = self._learn(rows, frequencies, phases)
        return self

    def _learn(self, rows: Narrow, frequencies: Wide, phases: Wide) -> _Map:
        if len(rows) <= self.dim:
            mapped = _fourier(rows.astype(np.float64), frequencies, phases)
            mean = mapped.mean(axis=0)
            _, singular, vectors = np.linalg.svd(mapped - mean, full_matrices=False)
            values = singular**2
            return _Map(frequencies, phases, mean, vectors[: self._count(values)].T)
        total, products = np.zeros(self.dim), np.zeros((self.dim, self.dim))
        for start in range(0, len(rows), 1024):
            mapped = _fourier(rows[start : start + 1024].astype(np.float64), frequencies, phases)
            total += mapped.sum(axis=0)
            products += mapped.T @ mapped
        mean = total / len(rows)
        values, vectors = np.linalg.eigh(products / len(rows) - np.outer(mean, mean))
        return _Map(frequencies, phases, mean, vectors[:, ::-1][:, : self._count(values[::-1])])

    def _count(self, values: Wide) -> int:
        """Return how many of the largest variances make up the share ``variance`` of all."""
        shares = np.cumsum(np.maximum(values, 0))
        return int(np.searchsorted(shares, self.variance * shares[-1])) + 1

    def __call__(self, outputs: Outputs) -> Score:
        learnt = self.ready(self._map)

        def rule(rows: Wide) -> Wide:
            mapped = learnt(rows)
            mapped -= (mapped @ learnt.principal) @ learnt.principal.T
            return np.asarray(np.linalg.norm(mapped, axis=1))

        return scored(rule, features_of(outputs, self.name, len(learnt.frequencies)), rows=ROWS)


def _fourier(rows: Wide, frequencies: Wide, phases: Wide) -> Wide:
    mapped = directions(rows) @ frequencies + phases
    np.cos(mapped, out=mapped)
    return np.asarray(mapped * np.sqrt(2 / len(phases)))
