"""Augmentations as MAITE's ``Augmentation``, by structure: MAITE itself is not imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sorites.transforms.wrapped import image_transform, refuse_targets

if TYPE_CHECKING:
    from sorites.training.augment import Augmentation, ImageTransform

# Images, targets and metadata of a batch.
Batch = tuple[Sequence[Any], Sequence[Any], Sequence[Mapping[str, Any]]]


class MaiteAugmentation:
    """Changes the images of a batch; targets and metadata pass.

    Args:
        images: The transform.

    Attributes:
        metadata: The identifier that MAITE asks for.
    """

    def __init__(self, images: ImageTransform) -> None:
        self.images = images
        self.metadata = {"id": repr(images)}

    def __call__(self, batch: Batch, /) -> Batch:
        images, targets, metadata = batch
        for target in targets:
            if hasattr(target, "boxes"):
                refuse_targets(self.images, "boxes")
        changed = [self._one(image, about) for image, about in zip(images, metadata, strict=True)]
        return changed, targets, metadata

    def _one(self, image: Any, about: Mapping[str, Any]) -> Any:
        """Change an image (channels, height, width), as MAITE has them."""
        key = f"{about['id']}"
        if not isinstance(image, np.ndarray):
            return self.images(image, key=key)
        moved = self.images(np.ascontiguousarray(np.moveaxis(image, 0, -1)), key=key)
        return np.ascontiguousarray(np.moveaxis(moved, -1, 0))


def as_maite(transform: ImageTransform | Augmentation) -> MaiteAugmentation:
    """Return an augmentation as MAITE's protocol describes it, for classification and object detection.

    Images are (channels, height, width), arrays or tensors. The draws depend on the seed and on the ``id`` of
    the datum, not on its place in a batch. Boxes come back unchanged; where the transform moves objects they
    are refused.

    Args:
        transform: A transform such as ``Coma()``, or an augmentation such as ``OpticsAugment()``.

    Example:
        >>> import numpy as np
        >>> from sorites.transforms import as_maite, shift_transform
        >>> augment = as_maite(shift_transform("coma", severity=2))
        >>> images, _, _ = augment(([np.zeros((3, 32, 32), np.uint8)], [None], [{"id": 7}]))
        >>> images[0].shape
        (3, 32, 32)
    """
    return MaiteAugmentation(image_transform(transform))
