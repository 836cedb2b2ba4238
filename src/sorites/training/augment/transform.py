"""An augmentation for the data sets of others: one image in, one out, whatever worker of a data
loader calls it.
"""

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
    """Augments one image at a time and gives it back as what it came: a Pillow image, an 8-bit
    array H x W x 3, or a tensor.

    A tensor is 3 x H x W, 8-bit or floats in 0..1. What is drawn for an image follows from
    ``seed``, the epoch, and the image's own pixels, or ``key`` where one is given: not from the
    worker, the batch or what came before. A loader with two workers, without any, or one that goes
    on in the middle of an epoch therefore gives the same images. Call ``set_epoch`` before each
    epoch, as with torch's ``DistributedSampler``: without it an image that arrives unchanged is
    augmented the same way in every epoch. Running workers see the new epoch too.
    """

    def __init__(self, augmentation: Augmentation, seed: int = 0) -> None:
        if not isinstance(augmentation, Augmentation):
            raise SoritesError(
                "ImageTransform: wanted an augmentation such as OpticsAugment(), got"
                f" {type(augmentation).__name__}"
            )
        self.augmentation, self.seed = augmentation, seed
        self._epoch: Tensor = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        """Draw afresh for every image from now on; the same epoch draws the same."""
        self._epoch.fill_(epoch)

    def __call__(self, image: Kind, key: object = None) -> Kind:
        batch = _batch(image)
        drawn_for = digest(batch.shape, batch.numpy().tobytes()).hex() if key is None else key
        self.augmentation.seed(self.seed, int(self._epoch), drawn_for)
        moved: Kind = _like(image, self.augmentation(_floats(batch))[0])
        return moved

    def __repr__(self) -> str:
        return f"ImageTransform({self.augmentation!r}, seed={self.seed})"


def _batch(image: Any) -> Tensor:
    """Return a batch of this one image, with its values as they came."""
    if isinstance(image, Tensor):
        if (
            image.ndim == 3
            and image.shape[0] == 3
            and (image.dtype == torch.uint8 or image.is_floating_point())
        ):
            return image.detach().cpu()[None].contiguous()
        raise _unfit(f"a tensor {image.dtype} of shape {tuple(image.shape)}")
    array = np.asarray(image) if isinstance(image, np.ndarray) or _is_pillow(image) else None
    if array is None:
        raise _unfit(type(image).__name__)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise _unfit(f"{array.dtype} of shape {array.shape}")
    return torch.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1))[None].copy())


def _unfit(came: str) -> SoritesError:
    return SoritesError(
        "ImageTransform: wanted an RGB image: a Pillow image, an 8-bit array of (height, width, 3), or a"
        f" tensor of (3, height, width), 8-bit or floats; got {came}"
    )


def _is_pillow(image: object) -> bool:
    from PIL.Image import Image

    return isinstance(image, Image)


def _floats(batch: Tensor) -> Tensor:
    return batch.float() / 255 if batch.dtype == torch.uint8 else batch


def _like(image: Any, moved: Tensor) -> Any:
    """Return the moved image as the kind of object that came in, rounded to the nearest where that
    has 8 bits.
    """
    if isinstance(image, Tensor) and image.is_floating_point():
        return moved.to(image.device, image.dtype)
    eight = (moved * 255 + 0.5).clamp(0, 255).to(torch.uint8)
    if isinstance(image, Tensor):
        return eight.to(image.device)
    array = np.ascontiguousarray(eight.permute(1, 2, 0).numpy())
    return array if isinstance(image, np.ndarray) else _pillow(array)


def _pillow(array: np.ndarray[Any, np.dtype[np.uint8]]) -> PillowImage:
    from PIL import Image

    return Image.fromarray(array)
