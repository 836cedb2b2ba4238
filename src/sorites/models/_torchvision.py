"""Make torchvision importable on a CPU build of torch.

timm imports torchvision, whose usual wheel needs CUDA: on a CPU build of torch the import raises RuntimeError. The import asks
only for the schemas of two operators, not for the operators, so declaring the schemas is enough.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

SCHEMAS = ("nms", "qnms")


@functools.cache
def ready() -> Any:
    """Make ``import torchvision`` work; return the declarations that must stay alive, or None if it works as it is."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        return _declared()
    return None


def _declared() -> Any:
    module: Any = importlib.import_module("torch.library")
    library = module.Library("torchvision", "DEF")
    for name in SCHEMAS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    importlib.import_module("torchvision")
    return library
