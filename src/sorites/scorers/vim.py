"""ViM and its residual: features outside the principal subspace of the training images."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from sorites.core import Batches, Head, Outputs, add_scorer
from sorites.core.errors import SoritesError
from sorites.scorers.base import (
    Bank,
    Fitted,
    Moments,
    Narrow,
    Score,
    Wide,
    features_of,
    logits_of,
    logsumexp,
    narrow_scored,
    whole,
)

# The scale of the virtual logit is estimated on this many training images, chosen by a hash of their ids.
SCALE_IMAGES = 20_000


class _Subspace(Fitted):
    """Base class of scorers that use the features outside the principal directions of training images."""

    needs: ClassVar = frozenset({"training", "features", "head"})

    def __init__(self, dim: int) -> None:
        self.dim = whole(dim, type(self).__name__, "dim")
        self._residual: Wide | None = None

    def residual_of(self, moments: Moments, head: tuple[Wide, Wide]) -> Wide:
        """Return the directions outside the principal subspace, and store the origin."""
        weight, bias = head
        principal = self._dimensions(len(moments.total), moments.count)
        self._origin: Wide = -np.linalg.lstsq(weight, bias, rcond=1e-15)[0].astype(np.float64, copy=False)
        vectors = np.linalg.eigh(moments.scatter(self._origin))[1]
        return vectors[:, : len(vectors) - principal]

    def _dimensions(self, width: int, count: int) -> int:
        """Return the number of principal directions; it must be below the number of training images."""
        principal = self.dim if self.dim < width else width // 2
        if count <= principal:
            raise SoritesError(
                f"scorer {self.name}: expected more training images than its {principal} principal"
                f" directions, got {count}. Use more training images, or"
                f" {type(self).__name__}(dim={max(1, count // 2)})"
            )
        return principal

    def lengths(self, rows: Narrow, residual: Wide, offset: Wide) -> Wide:
        """Return the lengths of the parts of ``rows`` outside the subspace."""
        projected = rows.astype(np.float64) @ residual - offset
        return np.asarray(np.sqrt(np.einsum("nd,nd->n", projected, projected)))


@add_scorer
class vim(_Subspace):
    """Energy plus a virtual logit: the length of the features outside the ``dim`` principal directions (Wang
    et al. 2022).

    The principal directions are those of the training images. If the features have at most ``dim``
    dimensions, half of them are principal. The origin is the point where the logits of the last layer are
    0.
    """

    ranges: ClassVar = {"dim": (256, 1000)}

    def __init__(self, dim: int = 256) -> None:
        super().__init__(dim)

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        checked = self.head(head)
        moments, sample, max_logits = Moments(), Bank(SCALE_IMAGES), 0.0
        for batch in self.training(batches):
            moments.add(batch.features)
            sample.add(batch.features, batch.ids)
            max_logits += float(batch.logits.max(axis=1).astype(np.float64).sum())
        residual = self.residual_of(moments, checked)
        lengths = np.linalg.norm((sample.rows() - self._origin) @ residual, axis=1)
        self._alpha = max_logits / moments.count / lengths.mean()
        self._residual = residual
        return self

    def __call__(self, outputs: Outputs) -> Score:
        residual = self.ready(self._residual)
        offset = self._origin @ residual

        def rule(rows: Narrow, logits: Narrow) -> Wide:
            return np.asarray(self._alpha * self.lengths(rows, residual, offset) - logsumexp(logits))

        return narrow_scored(
            rule, features_of(outputs, self.name, len(residual)), logits_of(outputs, self.name)
        )


@add_scorer
class residual(_Subspace):
    """Length of the features outside the ``dim`` principal directions of the training images (Wang et al.
    2022).

    It is the virtual logit of ``vim`` alone, with the same origin and the same rule for few dimensions.
    """

    def __init__(self, dim: int = 512) -> None:
        super().__init__(dim)

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        checked, moments = self.head(head), Moments()
        for batch in self.training(batches):
            moments.add(batch.features)
        self._residual = self.residual_of(moments, checked)
        return self

    def __call__(self, outputs: Outputs) -> Score:
        outside = self.ready(self._residual)
        offset = self._origin @ outside
        return narrow_scored(
            lambda rows: self.lengths(rows, outside, offset), features_of(outputs, self.name, len(outside))
        )
