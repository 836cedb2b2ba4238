"""The losses that an attack climbs (Croce and Hein 2020), for pictures with one right class or several.

``right`` is N x C: true for the classes that count as right. With one right class the losses are the published ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

LEAST_CLASSES = {"ce": 2, "dlr": 3}
"""The number of classes that each loss needs."""


def cross_entropy(logits: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return minus the log probability of the right classes together."""
    return logits.logsumexp(1) - logits.masked_fill(~right, -float("inf")).logsumexp(1)


def logit_ratio(logits: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the difference of logits ratio: (best wrong - best right) / (first - third), whose scale does not matter."""
    ordered = logits.sort(dim=1, descending=True).values
    best_right = logits.masked_fill(~right, -float("inf")).amax(1)
    best_wrong = logits.masked_fill(right, -float("inf")).amax(1)
    return (best_wrong - best_right) / (ordered[:, 0] - ordered[:, 2] + 1e-12)


LOSSES: dict[str, Loss] = {"ce": cross_entropy, "dlr": logit_ratio}
"""The losses by the name that ``--attack`` gives them."""
