"""ViM: energy combined with the feature residual outside the principal subspace of the training images."""

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


@add_scorer
class vim(Fitted):
    """Energy plus a virtual logit: the length of the features outside the ``dim`` principal directions (Wang
    et al. 2022).

    The principal directions are those of the training images. If the features have at most ``dim``
    dimensions, half of them are principal. The origin is the point where the logits of the last layer are
    0.
    """

    needs: ClassVar = frozenset({"training", "features", "head"})
    ranges: ClassVar = {"dim": (256, 1000)}

    def __init__(self, dim: int = 256) -> None:
        self.dim = whole(dim, "vim", "dim")
        self._residual: Wide | None = None

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        weight, bias = self.head(head)
        moments, sample, max_logits = Moments(), Bank(SCALE_IMAGES), 0.0
        for batch in self.training(batches):
            moments.add(batch.features)
            sample.add(batch.features, batch.ids)
            max_logits += float(batch.logits.max(axis=1).astype(np.float64).sum())
        principal = self._dimensions(len(moments.total), moments.count)
        self._origin: Wide = -np.linalg.lstsq(weight, bias, rcond=1e-15)[0].astype(np.float64, copy=False)
        vectors = np.linalg.eigh(moments.scatter(self._origin))[1]
        residual = vectors[:, : len(vectors) - principal]
        lengths = np.linalg.norm((sample.rows() - self._origin) @ residual, axis=1)
        self._alpha = max_logits / moments.count / lengths.mean()
        self._residual = residual
        return self

    def _dimensions(self, width: int, count: int) -> int:
        """Return the number of principal directions; it must be below the number of training images."""
        principal = self.dim if self.dim < width else width // 2
        if count <= principal:
            raise SoritesError(
                f"scorer {self.name}: expected more training images than its {principal} principal"
                f" directions, got {count}. Use more training images, or vim(dim={max(1, count // 2)})"
            )
        return principal

    def __call__(self, outputs: Outputs) -> Score:
        residual = self.ready(self._residual)
        offset = self._origin @ residual

        def rule(rows: Narrow, logits: Narrow) -> Wide:
            projected = rows.astype(np.float64) @ residual - offset
            return np.asarray(
                self._alpha * np.sqrt(np.einsum("nd,nd->n", projected, projected)) - logsumexp(logits)
            )

        return narrow_scored(
            rule, features_of(outputs, self.name, len(residual)), logits_of(outputs, self.name)
        )
