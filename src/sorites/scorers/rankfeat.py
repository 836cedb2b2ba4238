"""OOD score from the feature maps of a convolutional network, with their strongest component removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from sorites.core import ImageU8, Model, Outputs, add_scorer
from sorites.core.errors import SoritesError
from sorites.scorers import layers as layer_tools
from sorites.scorers.base import Fitted, Score, Wide, above, logsumexp


@add_scorer
class rankfeat(Fitted):
    """Energy of the logits without the largest rank-1 component of the feature maps (Song, Sebe and Wang
    2022).

    The component is removed at the end of each of the last ``blocks`` stages, one stage at a time, and the
    logits are averaged. A stage ends where the resolution changes. ``layers`` names other places to remove
    it.
    """

    needs: ClassVar = frozenset({"maps"})

    def __init__(self, blocks: int = 2, layers: Sequence[str] = (), temperature: float = 1.0) -> None:
        if blocks not in (1, 2):
            raise SoritesError(f"scorer rankfeat: expected 1 or 2 blocks, got {blocks!r}")
        self.blocks, self.layers = blocks, tuple(layers)
        self.temperature = above(temperature, 0, "rankfeat", "temperature")

    def look(self, model: Model, images: Sequence[ImageU8], framed: bool = False) -> Score:
        return layer_tools.rows(model, images, framed, self.name, self._score_images)

    def _score_images(self, module: Any, batch: Any) -> Wide:
        import torch

        spots = (
            layer_tools.named(module, self.layers, self.name)
            if self.layers
            else layer_tools.stages(module, batch, self.name)[-self.blocks :]
        )
        with torch.no_grad():
            logits = [self._logits_without(module, batch, spot) for spot in spots]
        mean = np.mean(logits, axis=0)
        return -self.temperature * logsumexp(mean / self.temperature)[:, None]

    def _logits_without(self, module: Any, batch: Any, spot: layer_tools.Spot) -> Wide:
        with layer_tools.tapped(module, [spot], lambda _, maps: without_strongest(maps)):
            return np.asarray(layer_tools.logits(module, batch).cpu().double().numpy())

    def __call__(self, outputs: Outputs) -> Score:
        return self.inside(outputs)[:, 0]


def without_strongest(maps: Any) -> Any:
    """Subtract the largest singular component of each image's C x HW matrix.

    It is spanned by the leading eigenvector of the smaller of the two Gram matrices.
    """
    import torch

    flat = layer_tools.wide(maps.flatten(2))
    wide = flat if flat.shape[1] <= flat.shape[2] else flat.mT
    first = torch.linalg.eigh(wide @ wide.mT)[1][:, :, -1:]
    rest = wide - first @ (first.mT @ wide)
    return (rest if flat.shape[1] <= flat.shape[2] else rest.mT).reshape(maps.shape).to(maps)
