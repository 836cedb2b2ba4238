"""Augmentations: torch modules that transform batches of images during training.

Importing this package imports torch; ``sorites.training`` exposes the same names lazily.
"""

from sorites.training.augment.augmix import AugMix, AugMixReleased, jsd_loss
from sorites.training.augment.base import Augmentation, Chain, Flip, Mixing, NoAugment
from sorites.training.augment.digital import Digital
from sorites.training.augment.named import Cascade, augmentation
from sorites.training.augment.optics import OpticsAugment
from sorites.training.augment.shifts import CameraAugment, LensAugment, ShiftAugment
from sorites.training.augment.transform import ImageTransform

__all__ = [
    "AugMix",
    "AugMixReleased",
    "Augmentation",
    "CameraAugment",
    "Cascade",
    "Chain",
    "Digital",
    "Flip",
    "ImageTransform",
    "LensAugment",
    "Mixing",
    "NoAugment",
    "OpticsAugment",
    "ShiftAugment",
    "augmentation",
    "jsd_loss",
]  # fmt: skip
