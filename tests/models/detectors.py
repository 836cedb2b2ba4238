"""A detector of torchvision with random weights, on torchvision's operators or on stand-ins for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from sorites.core.boxes import nms
from sorites.core.compute.torch_tools import import_with_torchvision

NAME = "ssdlite320_mobilenet_v3_large"


def works() -> bool:
    """Return whether torchvision's compiled operators load beside the installed torch."""
    library = import_with_torchvision("torchvision", "the test", "timm")
    try:
        library.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except RuntimeError:
        return False
    return True


@contextmanager
def operators() -> Iterator[None]:
    """Use torchvision's own operators where they load, else the package's non-maximum suppression
    in their place.
    """
    if works():
        yield
        return
    library = import_with_torchvision("torchvision", "the test", "timm")

    def suppress(boxes: Any, scores: Any, threshold: float) -> Any:
        return torch.from_numpy(nms(boxes.numpy(), scores.numpy(), threshold=threshold))

    before, library.extension._has_ops = library.extension._has_ops, lambda: True
    made = torch.library.Library("torchvision", "IMPL")
    made.impl("nms", suppress, "CPU")
    try:
        yield
    finally:
        made._destroy()
        library.extension._has_ops = before


def weights(path: Path, classes: int = 91) -> Path:
    """Write random weights for the detector, the same in every session."""
    library = import_with_torchvision("torchvision", "the test", "timm")
    torch.manual_seed(0)
    module = library.models.get_model(NAME, weights=None, weights_backbone=None, num_classes=classes)
    torch.save(module.state_dict(), path)
    return path
