"""AugMix: pictures mixed with chains of simple operations on themselves, and the loss that holds their answers together.

Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty", ICLR 2020.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sorites.errors import SoritesError
from sorites.training.augment._eight_bits import as_pictures
from sorites.training.augment._operations import OPERATIONS, STEPS
from sorites.training.augment.base import Mixing

LEAST_LEVEL = 0.1
RANDOM_DEPTH = 3


class AugMix(Mixing):
    """Mixes ``width`` chains of operations by Dirichlet(alpha, ...), and the result with the picture by Beta(alpha, alpha).

    Each chain has ``depth`` operations, or 1 to 3 drawn uniformly where that is -1; each operation is one of the original nine,
    at a level drawn from 0.1 to ``severity`` (the original has 3 for CIFAR and 1 for ImageNet). They give what Pillow gives, on
    pictures rounded to 8 bits, so a batch on a GPU travels to the CPU and back: there, use a ``PictureTransform`` in the
    workers of a data loader instead.
    """

    def __init__(
        self, size: int | None = None, *, severity: float = 3.0, width: int = 3, depth: int = -1, alpha: float = 1.0
    ) -> None:
        super().__init__(size, alpha)
        if isinstance(severity, bool) or not isinstance(severity, int | float) or not LEAST_LEVEL <= severity <= STEPS:
            raise SoritesError(f"AugMix: wanted a severity from {LEAST_LEVEL} to {STEPS}, got {severity!r}")
        if isinstance(width, bool) or not isinstance(width, int) or width < 1:
            raise SoritesError(f"AugMix: wanted at least one chain as width, got {width!r}")
        if isinstance(depth, bool) or not isinstance(depth, int) or (depth < 1 and depth != -1):
            raise SoritesError(f"AugMix: wanted the operations per chain as depth, or -1 for 1 to 3 at random, got {depth!r}")
        self.severity, self.width, self.depth = float(severity), width, depth

    def views(self, pictures: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the pictures as they are and two mixtures of them, for ``jsd_loss``."""
        return pictures, self(pictures), self(pictures)

    def mix(self, pictures: Tensor, weights: Tensor) -> Tensor:
        moved = self.chains(pictures)
        return torch.lerp(pictures, moved, weights.to(pictures.device, pictures.dtype)[:, None, None, None])

    def chains(self, pictures: Tensor) -> Tensor:
        """Return the mixture of the chains alone, before any of the pictures themselves is mixed in."""
        number, longest = len(pictures), max(self.depth, RANDOM_DEPTH)
        shape = (number, self.width, longest)
        shares = self.dirichlet(number, self.width, self.alpha).tolist()
        lengths = (self.whole(number, self.width, below=RANDOM_DEPTH) + 1).tolist()
        kinds = self.whole(*shape, below=len(OPERATIONS)).tolist()
        levels = self.uniform(*shape, low=LEAST_LEVEL, high=self.severity).tolist()
        signs = (self.whole(*shape, below=2) * 2 - 1).tolist()
        mixed = np.zeros((number, *pictures.shape[2:], 3), np.float32)
        for place, start in enumerate(as_pictures(pictures)):
            for chain in range(self.width):
                picture = start
                for step in range(lengths[place][chain] if self.depth == -1 else self.depth):
                    operation = OPERATIONS[kinds[place][chain][step]]
                    picture = operation(picture, levels[place][chain][step], signs[place][chain][step])
                mixed[place] += np.float32(shares[place][chain] / 255) * picture
        return torch.from_numpy(mixed).permute(0, 3, 1, 2).contiguous().to(pictures.device, pictures.dtype)


def jsd_loss(logits: Tensor | Sequence[Tensor], labels: Tensor, weight: float = 12.0) -> Tensor:
    """Return the cross-entropy of the clean view plus ``weight`` times the Jensen-Shannon divergence of the three views.

    ``logits`` are those of the views of ``AugMix.views`` in their order: three tensors of N x C, or one of 3N x C.
    """
    three = tuple(logits.chunk(3)) if isinstance(logits, Tensor) else tuple(logits)
    if len(three) != 3 or any(view.shape != three[0].shape or len(view) != len(labels) for view in three):
        raise SoritesError(
            f"jsd_loss: wanted the logits of three views of {len(labels)} pictures, got {[len(view) for view in three]}"
        )
    shares = torch.stack([functional.softmax(view, dim=1) for view in three])
    mixture = shares.mean(0).clamp(1e-7, 1).log()
    divergence = torch.stack([functional.kl_div(mixture, share, reduction="batchmean") for share in shares]).mean()
    return functional.cross_entropy(three[0], labels) + weight * divergence
