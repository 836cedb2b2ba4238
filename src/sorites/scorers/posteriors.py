"""OOD scores that compare the logits of an image with those of training images of each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sorites.core import Batches, Head, Outputs, add_scorer
from sorites.core.errors import SoritesError
from sorites.scorers.base import (
    ROWS_PER_BLOCK,
    Fitted,
    Narrow,
    Score,
    Wide,
    logits_of,
    logsumexp,
    narrow_scored,
    scored,
    whole,
)

# Probabilities below this are 0 in the product that finds the candidates of ``klm``; their total is part of
# the tolerance.
SMALL = np.float32(1e-5)
# Up to this share of larger probabilities a sparse product is faster than a dense one.
MAX_SPARSE_SHARE = 0.1
# Relative error of a float32 product of up to 10,000 terms.
FLOAT32_ERROR = 1e-4
# Pairs of images and classes that are compared in float64 at a time.
PAIRS_PER_BLOCK = 1 << 14
# Distances are moved to this value before a Weibull distribution is fitted, as in libMR.
WEIBULL_ORIGIN = 10_000.0
MAX_SHAPE = 1e12


@add_scorer
class klm(Fitted):
    """KL divergence from the nearest typical prediction (Hendrycks et al. 2022).

    The typical prediction of a class is the mean probability vector of the training images that the model
    assigns to it; labels are not used. Classes that the model never predicts have none.
    """

    needs: ClassVar = frozenset({"training"})
    _typical: Wide | None = None

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        totals, counts = np.zeros((0, 0)), np.zeros(0)
        for logits, _, _ in self.training_logits(batches):
            if not len(counts):
                totals, counts = np.zeros((logits.shape[1], logits.shape[1])), np.zeros(logits.shape[1])
            predicted = logits.argmax(axis=1)
            order = np.argsort(predicted, kind="stable")
            counts += np.bincount(predicted, minlength=len(counts))
            for start in range(0, len(order), ROWS_PER_BLOCK):
                some = order[start : start + ROWS_PER_BLOCK]
                classes, starts = np.unique(predicted[some], return_index=True)
                totals[classes] += np.add.reduceat(_likely(logits[some])[0], starts, axis=0)
        present = counts > 0
        self.fitted["classes"] = int(present.sum())
        means = totals[present] / counts[present, None]
        self._typical = np.log(np.maximum(means, np.finfo(np.float64).tiny))
        self._columns = np.ascontiguousarray(self._typical.T, np.float32)
        return self

    def __call__(self, outputs: Outputs) -> Score:
        typical = self.ready(self._typical)
        return narrow_scored(self._divergence, logits_of(outputs, self.name, typical.shape[1]))

    def _divergence(self, logits: Narrow) -> Wide:
        likely, entropies = _likely(logits)
        rows, columns = self._candidates(likely)
        typical, nearest = self.ready(self._typical), np.full(len(likely), -np.inf)
        for start in range(0, len(rows), PAIRS_PER_BLOCK):
            of, to = rows[start : start + PAIRS_PER_BLOCK], columns[start : start + PAIRS_PER_BLOCK]
            np.maximum.at(nearest, of, np.einsum("nc,nc->n", likely[of], typical[to]))
        return np.asarray(-entropies - nearest)

    def _candidates(self, likely: Wide) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return pairs of rows and classes among which each row has its nearest class.

        A float32 product finds them; the sum of the probabilities that it leaves out, times the largest
        logarithm, and its rounding error are the tolerance.
        """
        large = np.flatnonzero(likely > SMALL)
        left_out: Wide | float = 0.0
        if len(large) > MAX_SPARSE_SHARE * likely.size:
            crosses = likely.astype(np.float32) @ self._columns
        else:
            from scipy import sparse

            rows, columns = np.divmod(large, likely.shape[1])
            values = likely.ravel()[large]
            kept = np.bincount(rows, values, len(likely))
            left_out = (np.maximum(1 - kept, 0) + FLOAT32_ERROR / 100) * -float(self._columns.min())
            ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(likely)))])
            few = sparse.csr_array((values.astype(np.float32), columns, ends), shape=likely.shape)
            crosses = few @ self._columns
        best = crosses.max(axis=1)
        limit = (best - FLOAT32_ERROR * (1 + np.abs(best)) - left_out).astype(np.float32)
        return np.divmod(np.flatnonzero(crosses >= limit[:, None]), crosses.shape[1])


def _likely(logits: Narrow) -> tuple[Wide, Wide]:
    """Return the probabilities of each row and their entropy, in float64."""
    moved = logits.astype(np.float64)
    moved -= moved.max(axis=1, keepdims=True)
    likely = np.exp(moved)
    totals = likely.sum(axis=1)
    likely /= totals[:, None]
    return likely, np.log(totals) - np.einsum("nc,nc->n", likely, moved)


@dataclass(frozen=True)
class _Tails:
    """Class means of the logits (NaN for a class without), and the Weibull tail of the distances to them:
    the smallest distance of the tail, shape and log scale.
    """

    means: Wide
    least: Wide
    shape: Wide
    log_scale: Wide


@add_scorer
class openmax(Fitted):
    """Log-odds of the unknown class after OpenMax (Bendale and Boult 2016).

    Each class has the mean logits of its correctly classified training images and a Weibull distribution,
    fitted to the ``tail`` largest distances from it. The ``alpha`` largest logits are lowered by the
    probability that the image is further away, and what they lose is the logit of the unknown class. A class
    without such images always counts as far away.
    """

    needs: ClassVar = frozenset({"training"})
    _tails: _Tails | None = None

    def __init__(self, tail: int = 20, alpha: int = 3) -> None:
        self.tail, self.alpha = whole(tail, "openmax", "tail"), whole(alpha, "openmax", "alpha")

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        kept: list[Narrow] = []
        labels: list[NDArray[np.int64]] = []
        for logits, given, _ in self.training_logits(batches):
            correct = logits.argmax(axis=1) == given
            kept.append(logits[correct])
            labels.append(given[correct])
        rows, classes = np.concatenate(kept).astype(np.float64), np.concatenate(labels)
        if not len(rows):
            raise SoritesError(
                f"scorer {self.name}: expected labelled training images that the model classifies"
                " correctly, got none"
            )
        self.fitted |= {"correct": len(rows), "classes": len(np.unique(classes))}
        count = rows.shape[1]
        means, tails = np.full((count, count), np.nan), np.zeros((count, self.tail))
        for label in np.unique(classes):
            own = rows[classes == label]
            # A fixed order of addition: the mean does not depend on the order of the training images.
            means[label] = np.sort(own, axis=0).mean(axis=0)
            largest = np.sort(np.linalg.norm(own - means[label], axis=1))[-self.tail :]
            tails[label] = np.resize(largest, self.tail) if len(largest) == self.tail else np.nan
            tails[label, : len(largest)] = largest
        least = np.nanmin(tails, axis=1)
        shape, log_scale = _fit_weibull(np.log(tails - least[:, None] + WEIBULL_ORIGIN))
        self._tails = _Tails(means, least, shape, log_scale)
        return self

    def __call__(self, outputs: Outputs) -> Score:
        tails = self.ready(self._tails)
        return scored(self._unknown, logits_of(outputs, self.name, len(tails.means)))

    def _unknown(self, logits: Wide) -> Wide:
        tails, alpha = self.ready(self._tails), min(self.alpha, logits.shape[1])
        top = np.argsort(-logits, axis=1, kind="stable")[:, :alpha]
        values = np.take_along_axis(logits, top, axis=1)
        distances = np.stack(
            [np.linalg.norm(logits - tails.means[top[:, i]], axis=1) for i in range(alpha)], axis=1
        )
        moved = np.maximum(distances - tails.least[top] + WEIBULL_ORIGIN, 1e-300)
        with np.errstate(over="ignore"):
            far = -np.expm1(-np.exp(tails.shape[top] * (np.log(moved) - tails.log_scale[top])))
        weights = np.where(np.isnan(far), 1, far) * (alpha - np.arange(alpha)) / alpha
        revised = logits.copy()
        np.put_along_axis(revised, top, values * (1 - weights), axis=1)
        return np.asarray((values * weights).sum(axis=1) - logsumexp(revised))


def _fit_weibull(logs: Wide) -> tuple[Wide, Wide]:
    """Return shape and logarithm of the scale of Weibull distributions by maximum likelihood.

    The likelihood equation has one root, as its left side grows with the shape; it is bisected for all rows
    together.

    Args:
        logs: Logarithms of the values, one distribution per row; NaN is missing.

    Returns:
        The shapes, at most ``MAX_SHAPE`` (equal values have no finite one), and the log scales.
    """
    top = np.nanmax(logs, axis=1, keepdims=True)
    below, counts = logs - top, np.sum(~np.isnan(logs), axis=1)
    mean = np.nanmean(below, axis=1)
    low, high = np.full(len(logs), 1e-6), np.full(len(logs), MAX_SHAPE)
    for _ in range(120):
        shape = np.sqrt(low * high)
        powers = np.exp(shape[:, None] * below)
        excess = np.nansum(powers * below, axis=1) / np.nansum(powers, axis=1) - 1 / shape - mean
        low, high = np.where(excess < 0, shape, low), np.where(excess < 0, high, shape)
    powers = np.exp(high[:, None] * below)
    return high, top[:, 0] + np.log(np.nansum(powers, axis=1) / counts) / high
