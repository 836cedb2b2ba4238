"""The validation part, shown to the network as it stands: loss and accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sorites.models._networks import Network
from sorites.training.batches import Prepared

if TYPE_CHECKING:
    from sorites.training.steps import Steps

BATCH = 100


def validate(network: Network, prepared: Prepared, steps: Steps) -> tuple[float, int, int]:
    """Return the mean cross-entropy, how many pictures are right, and how many there are; the network's mode is as before."""
    import torch
    from torch.nn import functional

    modes = {module: module.training for module in network.module.modules()}
    network.module.eval()
    loss, right, n = 0.0, 0, len(prepared)
    try:
        with torch.inference_mode():
            for first in range(0, n, BATCH):
                places = np.arange(first, min(first + BATCH, n))
                labels = torch.from_numpy(prepared.labels[places]).to(steps.device)
                logits = steps.logits(steps.normalised(steps.pictures(prepared.several(places, 0, 0))))
                loss += float(functional.cross_entropy(logits.float(), labels, reduction="sum"))
                right += int((logits.argmax(1) == labels).sum())
    finally:
        for module, mode in modes.items():
            module.training = mode
    return loss / n, right, n
