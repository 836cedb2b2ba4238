"""The cascade of AugMix and OpticsAugment, with weights from a flat Dirichlet distribution.

Mueller, Braun and Keuper, "Examining the Impact of Optical Aberrations to Image Classification and Object Detection", VI-B.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sorites.training.augment._options import refuse_unknown
from sorites.training.augment.augmix import AugMix
from sorites.training.augment.base import Augmentation
from sorites.training.augment.optics import OpticsAugment

PARTS = 4
"""The dimensions of the Dirichlet distribution: two weights that are used and two that only make those smaller."""


class Cascade(Augmentation):
    """AugMix first, OpticsAugment on its result, each with a weight of its own from one draw of Dirichlet(1, 1, 1, 1).

    The first of the four numbers is AugMix's weight in the place of its Beta draw, the second OpticsAugment's. Chained at full
    strength the two move pictures too far to be learnt from; here both are seldom strong at once, because their weights sum to
    at most one. The paper calls the weights uniform. They are not: each has the distribution Beta(1, 3), with a mean of 1/4 and
    above 1/2 in one picture of eight.
    """

    def __init__(
        self, size: int | None = None, *, optics: Mapping[str, Any] | None = None, augmix: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(size)
        refuse_unknown("augmix", AugMix, augmix or {})
        refuse_unknown("optics", OpticsAugment, optics or {})
        self.augmix = AugMix(size, **(augmix or {}))
        self.optics = OpticsAugment(size, **(optics or {}))
        self.seed(torch.initial_seed())

    def weights(self, number: int) -> tuple[Tensor, Tensor]:
        """Draw the weights of AugMix and of OpticsAugment for so many pictures."""
        drawn = self.dirichlet(number, PARTS).float()
        return drawn[:, 0], drawn[:, 1]

    def augment(self, pictures: Tensor) -> Tensor:
        mixed, blurred = self.weights(len(pictures))
        return self.optics.mix(self.augmix.mix(pictures, mixed), blurred)
