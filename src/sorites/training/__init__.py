"""Train robust models: augmentations, recipes, the training loop, attacks and explanations.

The augmentations are torch modules; their names are imported lazily so that importing this package is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sorites.core.errors import MissingExtra

if TYPE_CHECKING:
    from sorites.training.augment import (
        Augmentation,
        AugMix,
        AugMixReleased,
        CameraAugment,
        Cascade,
        Digital,
        ImageTransform,
        LensAugment,
        OpticsAugment,
        ShiftAugment,
        augmentation,
        jsd_loss,
    )

__all__ = [
    "AugMix",
    "AugMixReleased",
    "Augmentation",
    "CameraAugment",
    "Cascade",
    "Digital",
    "ImageTransform",
    "LensAugment",
    "OpticsAugment",
    "ShiftAugment",
    "augmentation",
    "jsd_loss",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sorites.training' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module("sorites.training.augment"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra(f"sorites.training.{name}", "train") from error


def __dir__() -> list[str]:
    return sorted(__all__)
