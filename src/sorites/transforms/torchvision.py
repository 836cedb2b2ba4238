"""Augmentations as transforms of ``torchvision.transforms.v2``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sorites.core.compute.torch_tools import import_with_torchvision
from sorites.core.errors import SoritesError
from sorites.transforms.wrapped import image_transform, refuse_targets

if TYPE_CHECKING:
    from sorites.training.augment import Augmentation, ImageTransform


@functools.cache
def _kind() -> type[Any]:
    v2 = import_with_torchvision("torchvision.transforms.v2", "as_torchvision", "timm")
    tv_tensors = import_with_torchvision("torchvision.tv_tensors", "as_torchvision", "timm")

    class ImageTransformV2(v2.Transform):  # type: ignore[misc, name-defined]
        """Changes images; boxes, masks and labels pass."""

        def __init__(self, images: ImageTransform) -> None:
            super().__init__()
            self.images = images

        def set_epoch(self, epoch: int) -> None:
            """Set the epoch, which changes the random draws of every image."""
            self.images.set_epoch(epoch)

        def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
            if isinstance(inpt, tv_tensors.Video):
                raise SoritesError("as_torchvision: expected an image, got a video; transform its frames")
            if isinstance(inpt, tv_tensors.TVTensor) and not isinstance(inpt, tv_tensors.Image):
                refuse_targets(self.images, type(inpt).__name__)
                return inpt
            return self.images(inpt)

        def extra_repr(self) -> str:
            return repr(self.images)

        def __reduce__(self) -> tuple[Any, ...]:
            return as_torchvision, (self.images,)

    return ImageTransformV2


def as_torchvision(transform: ImageTransform | Augmentation) -> Any:
    """Return a ``torchvision.transforms.v2.Transform``.

    It takes what transforms of v2 take: an image, several arguments, or a nested structure. Boxes and masks
    come back unchanged; where the transform moves objects they are refused. Draws do not come from torch's
    global generator but from seed, epoch and pixels, as those of ``ImageTransform``.

    Args:
        transform: A transform such as ``Coma()``, or an augmentation such as ``OpticsAugment()``.

    Raises:
        MissingExtra: torchvision is not installed.
    """
    return _kind()(image_transform(transform))
