"""OOD score from feature maps, the outputs of a convolutional network before it pools them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from sorites.core import ImageU8, Model, Outputs, add_scorer
from sorites.core.errors import SoritesError
from sorites.scorers import layers as _network
from sorites.scorers.base import Fitted, Score, Wide, above, logsumexp


@add_scorer
class rankfeat(Fitted):
    """Energy of the logits without the strongest rank-1 part of the feature maps (Song, Sebe and Wang 2022).

    That part is removed at the end of each of the last ``blocks`` stages (a stage ends where the
    resolution changes), one at a time, and the logits are averaged. ``layers`` names other places
    to remove it.
    """

    needs: ClassVar = frozenset({"maps"})

    def __init__(self, blocks: int = 2, layers: Sequence[str] = (), temperature: float = 1.0) -> None:
        if blocks not in (1, 2):
            raise SoritesError(f"scorer rankfeat: wanted 1 or 2 blocks, got {blocks!r}")
        self.blocks, self.layers = blocks, tuple(layers)
        self.temperature = above(temperature, 0, "rankfeat", "temperature")

    def look(self, model: Model, images: Sequence[ImageU8], framed: bool = False) -> Score:
        return _network.rows(model, images, framed, self.name, self._one)

    def _one(self, module: Any, batch: Any) -> Wide:
        import torch

        spots = (
            _network.named(module, self.layers, self.name)
            if self.layers
            else _network.stages(module, batch, self.name)[-self.blocks :]
        )
        with torch.no_grad():
            seen = [self._without(module, batch, spot) for spot in spots]
        mean = np.mean(seen, axis=0)
        return -self.temperature * logsumexp(mean / self.temperature)

    def _without(self, module: Any, batch: Any, spot: _network.Spot) -> Wide:
        with _network.tapped(module, [spot], lambda _, maps: without_strongest(maps)):
            return np.asarray(_network.logits(module, batch).double().cpu().numpy())

    def __call__(self, outputs: Outputs) -> Score:
        return self.inside(outputs)[:, 0]


def without_strongest(maps: Any) -> Any:
    """Subtract from each image's C x HW matrix its largest singular component.

    That component is spanned by the leading eigenvector of the smaller of its two Gram matrices.
    """
    import torch

    flat = maps.flatten(2).double()
    wide = flat if flat.shape[1] <= flat.shape[2] else flat.mT
    first = torch.linalg.eigh(wide @ wide.mT)[1][:, :, -1:]
    rest = wide - first @ (first.mT @ wide)
    return (rest if flat.shape[1] <= flat.shape[2] else rest.mT).reshape(maps.shape).to(maps.dtype)
