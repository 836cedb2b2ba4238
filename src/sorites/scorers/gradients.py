"""OOD scores from gradients: with respect to the last layer's weights (closed form) or the image (backward
pass).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from sorites.core import ImageU8, Model, Outputs, add_scorer
from sorites.scorers import layers
from sorites.scorers.base import Fitted, Score, Wide, above, features_of, logits_of, scored
from sorites.scorers.logits import odds


@add_scorer
def gradnorm(outputs: Outputs, temperature: float = 1.0) -> Score:
    """Negative L1 norm of the gradient of the cross-entropy to the uniform distribution (Huang, Geng and Li
    2021).

    The gradient is taken with respect to the weights of the last layer. It is an outer product, so its norm
    is the L1 norm of the features times the L1 norm of softmax - uniform, divided by the temperature.
    """
    above(temperature, 0, "gradnorm", "temperature")

    def rule(rows: Wide, logits: Wide) -> Wide:
        exponentials = np.exp((logits - logits.max(axis=1)[:, None]) / temperature)
        total = exponentials.sum(axis=1)
        uneven = np.abs(exponentials - total[:, None] / logits.shape[1]).sum(axis=1) / total
        return np.asarray(-np.abs(rows).sum(axis=1) * uneven / temperature)

    return scored(rule, features_of(outputs, "gradnorm"), logits_of(outputs, "gradnorm"))


@add_scorer
class odin(Fitted):
    """Log-odds against the top class after a step of ``eps`` towards a more confident prediction (Liang, Li
    and Srikant 2018).

    The logits are divided by ``temperature``; ``eps`` is a fraction of the full scale of a pixel.
    """

    needs: ClassVar = frozenset({"gradient"})
    ranges: ClassVar = {"temperature": (1, 10, 100, 1000), "eps": (0.0014, 0.0028)}

    def __init__(self, temperature: float = 1000, eps: float = 0.0014) -> None:
        self.temperature = above(temperature, 0, "odin", "temperature")
        self.eps = above(eps, -1e-300, "odin", "eps")

    def look(self, model: Model, images: Sequence[ImageU8], framed: bool = False) -> Score:
        return layers.rows(model, images, framed, self.name, self._score_images)

    def _score_images(self, module: Any, batch: Any) -> Wide:
        import torch

        with torch.enable_grad():
            batch.requires_grad_()
            logits = layers.logits(module, batch) / self.temperature
            loss = torch.nn.functional.cross_entropy(logits, logits.argmax(dim=1), reduction="sum")
            (gradient,) = torch.autograd.grad(loss, batch)
        with torch.no_grad():
            logits_after_step = layers.logits(module, batch - 255 * self.eps * gradient.sign())
        return odds(logits_after_step.cpu().double().numpy() / self.temperature)[:, None]

    def __call__(self, outputs: Outputs) -> Score:
        return self.inside(outputs)[:, 0]
