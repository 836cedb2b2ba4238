"""torchvision's FCOS, whose formulas are pure Python and run without its compiled operators."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sorites.core.compute.torch_tools import import_with_torchvision
from sorites.models.detectors.fcos import STRIDES, locations

library = import_with_torchvision("torchvision", "tests", "timm")
FCOS = import_with_torchvision("torchvision.models.detection.fcos", "tests", "timm")
UTILS = import_with_torchvision("torchvision.models.detection._utils", "tests", "timm")


def anchors(size: tuple[int, int]) -> torch.Tensor:
    centres, strides = locations(size)
    half = strides[:, None] / 2
    return torch.from_numpy(np.concatenate([centres - half, centres + half], 1))


def matched(boxes: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.int64]:
    """Return the box that torchvision assigns to every location, or -1."""
    found: list[torch.Tensor] = []

    def keep(targets: Any, outputs: Any, anchors: Any, matched_idxs: list[torch.Tensor]) -> None:
        found.extend(matched_idxs)

    counts = [(size[0] // stride) * (size[1] // stride) for stride in STRIDES]
    detector = SimpleNamespace(center_sampling_radius=1.5, head=SimpleNamespace(compute_loss=keep))
    target = {"boxes": torch.from_numpy(boxes).float(), "labels": torch.zeros(len(boxes), dtype=torch.int64)}
    FCOS.FCOS.compute_loss(detector, [target], {}, [anchors(size)], counts)
    return found[0].numpy()


def losses(
    outputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    boxes: NDArray[np.float64],
    labels: NDArray[np.int64],
    size: tuple[int, int],
) -> torch.Tensor:
    """Return the sum of torchvision's three losses of one image."""
    logits, distances, centreness = outputs
    strides = torch.from_numpy(locations(size)[1])
    target = {"boxes": torch.from_numpy(boxes).float(), "labels": torch.from_numpy(labels)}
    given = {
        "cls_logits": logits,
        "bbox_regression": distances / strides[None, :, None],
        "bbox_ctrness": centreness[..., None],
    }
    head = SimpleNamespace(box_coder=UTILS.BoxLinearCoder(normalize_by_size=True))
    own = torch.from_numpy(matched(boxes, size))
    parts = FCOS.FCOSHead.compute_loss(head, [target], given, [anchors(size)], [own])
    return torch.stack(list(parts.values())).sum()
