"""Use augmentations in data loaders of other frameworks: one image in, one out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.training.augment.base import Augmentation

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

# Modes of Pillow and numbers of channels that can be augmented.
MODES = ("L", "RGB", "RGBA")
CHANNELS = (1, 3, 4)
FLOATS = (np.float16, np.float32, np.float64)
# Targets with places in the image: keys of detection targets, and classes of torchvision's ``tv_tensors``.
PLACES = ("boxes", "masks", "keypoints", "BoundingBoxes", "Mask", "KeyPoints")
# Weights of the luma of ITU-R BT.601, as in Pillow's conversion to grey.
LUMA = (0.299, 0.587, 0.114)


class ImageTransform:
    """Augments one image at a time and returns the same type.

    Images are Pillow images (RGB, RGBA or L), arrays H x W or H x W x 1, 3 or 4, or tensors C x H x W of 1, 3
    or 4 channels, both uint8 or floats in 0..1; subclasses such as torchvision's ``tv_tensors.Image`` are
    kept. A grey image is augmented as RGB and becomes its luma; the fourth channel of RGBA is kept as it is.

    Further arguments are targets (boxes, masks, labels) and come back unchanged behind the image, as in a
    pipeline of ``torchvision.transforms.v2``. Boxes, masks and keypoints would be wrong behind ``Flip`` or
    the geometric operations of ``AugMix``, and are refused there; ``OpticsAugment`` moves nothing.

    Random draws depend only on ``seed``, the epoch, and the pixels of the image (or ``key`` if given), not on
    worker, batch or history, so any number of workers and a resumed epoch give the same images. Call
    ``set_epoch`` before each epoch, as with torch's ``DistributedSampler``; otherwise an image is augmented
    the same way in every epoch. Running workers see the new epoch too.

    Examples:
        >>> from sorites.training import OpticsAugment
        >>> transform = ImageTransform(OpticsAugment(), seed=1)
        >>> image, target = transform(torch.zeros(3, 32, 32), {"boxes": torch.zeros(1, 4)})
        >>> image.shape, list(target)
        (torch.Size([3, 32, 32]), ['boxes'])
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

    def __call__(self, image: Any, *targets: Any, key: object = None) -> Any:
        if isinstance(image, tuple | list) and not targets:
            return type(image)(self(*image, key=key)) if len(image) > 1 else (self(*image, key=key),)
        if self.augmentation.moves_objects and (place := _place(targets)):
            raise SoritesError(
                f"{self!r} moves objects, and targets ({place}) do not follow it. Use it for images without"
                " such targets, or an augmentation that moves nothing."
            )
        batch = _batch(image)
        image_key = digest(batch.shape, batch.numpy().tobytes()).hex() if key is None else key
        self.augmentation.seed(self.seed, int(self._epoch), image_key)
        augmented = _like(image, self._colours(_floats(batch))[0])
        return (augmented, *targets) if targets else augmented

    def _colours(self, batch: Tensor) -> Tensor:
        """Augment a batch of grey, RGB or RGBA images."""
        channels = batch.shape[1]
        if channels == 3:
            colours: Tensor = self.augmentation(batch)
            return colours
        augmented: Tensor = self.augmentation(batch[:, :3] if channels == 4 else batch.expand(-1, 3, -1, -1))
        if channels == 4:
            return torch.cat([augmented, batch[:, 3:].to(augmented)], 1)
        luma = torch.tensor(LUMA, dtype=augmented.dtype)[None, :, None, None]
        return (augmented * luma).sum(1, keepdim=True)

    def __repr__(self) -> str:
        return f"ImageTransform({self.augmentation!r}, seed={self.seed})"


def _place(target: object) -> str | None:
    """Return the name of the first target that has places in the image."""
    if type(target).__name__ in PLACES:
        return type(target).__name__
    if isinstance(target, Mapping):
        named = next((key for key in target if key in PLACES), None)
        return named or _place(list(target.values()))
    if isinstance(target, tuple | list):
        return next((place for one in target if (place := _place(one))), None)
    return None


def _batch(image: Any) -> Tensor:
    """Return a batch of one image with unchanged values."""
    if isinstance(image, Tensor):
        return _batch_of_tensor(image)
    if _is_pillow(image) and image.mode not in MODES:
        raise _type_error(f"a Pillow image of mode {image.mode}; convert it with image.convert('RGB')")
    if isinstance(image, Mapping):
        raise SoritesError(
            "ImageTransform: expected an image, got a dictionary; nested samples need"
            " sorites.transforms.as_torchvision(...)"
        )
    array = np.asarray(image) if isinstance(image, np.ndarray) or _is_pillow(image) else None
    if array is None:
        raise _type_error(type(image).__name__)
    if (
        (array.dtype != np.uint8 and array.dtype not in FLOATS)
        or array.ndim not in (2, 3)
        or (array.ndim == 3 and array.shape[2] not in CHANNELS)
    ):
        raise _type_error(f"{array.dtype} of shape {array.shape}")
    planes = array.reshape(*array.shape[:2], -1).transpose(2, 0, 1)
    return torch.from_numpy(np.ascontiguousarray(planes)[None].copy())


def _batch_of_tensor(image: Tensor) -> Tensor:
    plain = image.detach().as_subclass(Tensor)
    if plain.ndim == 4:
        raise SoritesError(
            f"ImageTransform: expected one image, got a batch of shape {tuple(plain.shape)}; give batches to"
            " the augmentation itself"
        )
    known = plain.dtype == torch.uint8 or plain.is_floating_point()
    if plain.ndim == 3 and plain.shape[0] in CHANNELS and known:
        return plain.cpu()[None].contiguous()
    raise _type_error(f"a tensor {plain.dtype} of shape {tuple(plain.shape)}")


def _type_error(received: str) -> SoritesError:
    return SoritesError(
        "ImageTransform: expected a grey, RGB or RGBA image: a Pillow image, an array of (height, width) or"
        " (height, width, 1, 3 or 4), or a tensor of (1, 3 or 4, height, width), both uint8 or floats; got"
        f" {received}"
    )


def _is_pillow(image: object) -> bool:
    from PIL.Image import Image

    return isinstance(image, Image)


def _floats(batch: Tensor) -> Tensor:
    return batch.float() / 255 if batch.dtype == torch.uint8 else batch


def _like(image: Any, augmented: Tensor) -> Any:
    """Convert an augmented image to the type of the input, rounding if that is 8-bit."""
    if isinstance(image, Tensor) and image.is_floating_point():
        return augmented.to(image.device, image.dtype).as_subclass(type(image))
    if isinstance(image, np.ndarray) and image.dtype in FLOATS:
        return (
            np.ascontiguousarray(augmented.permute(1, 2, 0).numpy()).astype(image.dtype).reshape(image.shape)
        )
    rounded = (augmented * 255 + 0.5).clamp(0, 255).to(torch.uint8)
    if isinstance(image, Tensor):
        return rounded.to(image.device).as_subclass(type(image))
    array = np.ascontiguousarray(rounded.permute(1, 2, 0).numpy())
    if _is_pillow(image):
        return _pillow(array[..., 0] if array.shape[2] == 1 else array)
    return array.reshape(image.shape)


def _pillow(array: np.ndarray[Any, np.dtype[np.uint8]]) -> PillowImage:
    from PIL import Image

    return Image.fromarray(array)
