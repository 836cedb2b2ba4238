"""Use augmentations in data loaders of other frameworks: one image in, one out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.training.augment.base import Augmentation

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

Kind = TypeVar("Kind")


class ImageTransform:
    """Augments one image at a time and returns the same type.

    Images are Pillow images, uint8 arrays H x W x 3, or tensors.

    Tensors are 3 x H x W, uint8 or floats in 0..1. Random draws depend only on ``seed``, the epoch, and the
    pixels of the image (or ``key`` if given), not on worker, batch or history, so any number of workers and a
    resumed epoch give the same images. Call ``set_epoch`` before each epoch, as with torch's
    ``DistributedSampler``; otherwise an image is augmented the same way in every epoch. Running workers see
    the new epoch too.
    """

    def __init__(self, augmentation: Augmentation, seed: int = 0) -> None:
        if not isinstance(augmentation, Augmentation):
            raise SoritesError(
                "ImageTransform: expected an augmentation such as OpticsAugment(), got "
                f"{type(augmentation).__name__}"
            )
        self.augmentation, self.seed = augmentation, seed
        self._epoch: Tensor = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which changes the random draws of every image."""
        self._epoch.fill_(epoch)

    def __call__(self, image: Kind, key: object = None) -> Kind:
        batch = _batch(image)
        image_key = digest(batch.shape, batch.numpy().tobytes()).hex() if key is None else key
        self.augmentation.seed(self.seed, int(self._epoch), image_key)
        augmented: Kind = _like(image, self.augmentation(_floats(batch))[0])
        return augmented

    def __repr__(self) -> str:
        return f"ImageTransform({self.augmentation!r}, seed={self.seed})"


def _batch(image: Any) -> Tensor:
    """Return a batch of one image with unchanged values."""
    if isinstance(image, Tensor):
        if (
            image.ndim == 3
            and image.shape[0] == 3
            and (image.dtype == torch.uint8 or image.is_floating_point())
        ):
            return image.detach().cpu()[None].contiguous()
        raise _type_error(f"a tensor {image.dtype} of shape {tuple(image.shape)}")
    array = np.asarray(image) if isinstance(image, np.ndarray) or _is_pillow(image) else None
    if array is None:
        raise _type_error(type(image).__name__)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise _type_error(f"{array.dtype} of shape {array.shape}")
    return torch.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1))[None].copy())


def _type_error(received: str) -> SoritesError:
    return SoritesError(
        "ImageTransform: expected an RGB image: a Pillow image, a uint8 array of (height, width, "
        f"3), or a tensor of (3, height, width), uint8 or floats; got {received}"
    )


def _is_pillow(image: object) -> bool:
    from PIL.Image import Image

    return isinstance(image, Image)


def _floats(batch: Tensor) -> Tensor:
    return batch.float() / 255 if batch.dtype == torch.uint8 else batch


def _like(image: Any, augmented: Tensor) -> Any:
    """Convert an augmented image to the type of the input, rounding if that is 8-bit."""
    if isinstance(image, Tensor) and image.is_floating_point():
        return augmented.to(image.device, image.dtype)
    rounded = (augmented * 255 + 0.5).clamp(0, 255).to(torch.uint8)
    if isinstance(image, Tensor):
        return rounded.to(image.device)
    array = np.ascontiguousarray(rounded.permute(1, 2, 0).numpy())
    return array if isinstance(image, np.ndarray) else _pillow(array)


def _pillow(array: np.ndarray[Any, np.dtype[np.uint8]]) -> PillowImage:
    from PIL import Image

    return Image.fromarray(array)
