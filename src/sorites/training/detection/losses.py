"""The losses of FCOS: focal loss of the classes, generalised IoU of the boxes, and centre-ness.

Each is a sum over locations; ``detection_loss`` divides them by the number of locations with an object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sorites.training.detection.targets import BACKGROUND

if TYPE_CHECKING:
    from torch import Tensor

# Weight of the object's class, and exponent of the focal loss (Lin et al. 2017).
ALPHA, GAMMA = 0.25, 2.0
# Added to areas, so that boxes without one have a gradient.
EPSILON = 1e-7


def focal_loss(logits: Tensor, ground_truth: Tensor, alpha: float = ALPHA, gamma: float = GAMMA) -> Tensor:
    """Return the focal loss of each logit: -alpha_t (1 - p_t)^gamma log p_t.

    Args:
        logits: Logits.
        ground_truth: 1 where the class is present, else 0; of the same shape.
        alpha: The weight of present classes; that of others is 1 - alpha.
        gamma: The exponent.
    """
    from torch.nn import functional

    probability = logits.sigmoid()
    cross_entropy = functional.binary_cross_entropy_with_logits(logits, ground_truth, reduction="none")
    wrong = probability + ground_truth - 2 * probability * ground_truth
    weight = alpha * ground_truth + (1 - alpha) * (1 - ground_truth)
    return weight * cross_entropy * wrong**gamma


def giou_loss(distances: Tensor, ground_truth: Tensor) -> Tensor:
    """Return 1 - GIoU of pairs of boxes around one location (Rezatofighi et al. 2019).

    Args:
        distances: Distances to the left, top, right and bottom side, N x 4, not negative.
        ground_truth: The same of the other boxes.
    """
    import torch

    near, far = torch.minimum(distances, ground_truth), torch.maximum(distances, ground_truth)
    both, hull = _areas(near), _areas(far)
    union = _areas(distances) + _areas(ground_truth) - both
    return 1 - both / (union + EPSILON) + (hull - union) / (hull + EPSILON)


def _areas(distances: Tensor) -> Tensor:
    left, top, right, bottom = distances.unbind(-1)
    return (left + right) * (top + bottom)


def centreness(distances: Tensor) -> Tensor:
    """Return the centre-ness of locations: 1 in the middle of a box, 0 at its sides.

    Args:
        distances: Distances to the left, top, right and bottom side, N x 4.
    """
    left, top, right, bottom = distances.unbind(-1)
    across = left.minimum(right) / left.maximum(right)
    down = top.minimum(bottom) / top.maximum(bottom)
    return (across * down).sqrt()


def detection_loss(outputs: tuple[Tensor, Tensor, Tensor], targets: Tensor) -> Tensor:
    """Return the loss of a batch: the three losses, divided by the number of locations with an object.

    Args:
        outputs: Class logits (N x P x C), distances (N x P x 4) and logits of the centre-ness (N x P).
        targets: Class and distances of every location, N x P x 5 (see ``targets_of``).
    """
    import torch
    from torch.nn import functional

    logits, distances, centres = outputs
    labels = targets[..., 0].long()
    is_object, counts = labels >= 0, labels >= BACKGROUND
    present = torch.zeros_like(logits)
    present[is_object] = functional.one_hot(labels[is_object], logits.shape[-1]).to(logits.dtype)
    wanted = targets[..., 1:][is_object]
    total = (
        focal_loss(logits[counts], present[counts]).sum()
        + giou_loss(distances[is_object], wanted).sum()
        + functional.binary_cross_entropy_with_logits(centres[is_object], centreness(wanted), reduction="sum")
    )
    return total / is_object.sum().clamp(min=1)
