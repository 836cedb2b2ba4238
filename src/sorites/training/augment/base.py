"""Base classes of augmentations: checked batches in and out, and a private random generator."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sorites.core.errors import SoritesError
from sorites.core.rng import digest

# Conversion of batches to numpy.


def as_images(images_u8: Tensor) -> NDArray[np.float32]:
    """Return a batch as N x H x W x 3 floats in 0..1 on the CPU."""
    images: NDArray[np.float32] = np.ascontiguousarray(
        images_u8.detach().permute(0, 2, 3, 1).cpu().float().numpy()
    )
    return np.clip(images, 0, 1, out=np.empty_like(images))


def as_uint8(images: Tensor) -> NDArray[np.uint8]:
    """Return a batch as N x H x W x 3 uint8 on the CPU, rounded to nearest."""
    return (as_images(images) * np.float32(255) + np.float32(0.5)).astype(np.uint8)


# Tolerance for values outside 0..1 due to rounding.
RANGE_TOLERANCE = 1e-3


class Augmentation(torch.nn.Module, abc.ABC):
    """Base class: transforms N x 3 x H x W floats in 0..1 on the device of the batch.

    All random draws come from a private CPU generator, so they are independent of other random numbers and of
    the device. ``seed`` restarts it. Its state is part of ``state_dict``, so a restored training continues
    with the same draws. In ``eval`` mode images pass unchanged, as with dropout. No gradient is propagated.

    Args:
        size: Side of the images in px; if given, other sizes are refused.
    """

    def __init__(self, size: int | None = None) -> None:
        super().__init__()
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise SoritesError(
                f"{type(self).__name__}: size must be the side of the images in px, got {size!r}"
            )
        self.size = size
        self.generator = torch.Generator()
        self.seed(torch.initial_seed())

    @abc.abstractmethod
    def augment(self, images: Tensor) -> Tensor:
        """Return augmented images. The batch is not empty, has been checked, and must not be modified."""

    def forward(self, images: Tensor) -> Tensor:
        return self._augment_checked(images, in_range=False)

    def _augment_checked(self, images: Tensor, in_range: bool = True) -> Tensor:
        """Check and augment a batch; ``in_range`` skips the check of values."""
        self._check(images)
        if not self.training or not len(images):
            return images
        if not in_range:
            self._check_values(images)
        with torch.no_grad():
            return self.augment(images)

    def seed(self, *words: object) -> None:
        """Restart the generator from a hash of the arguments, such as a seed, an epoch and a rank.

        Child augmentations get their own streams.
        """
        self.generator.manual_seed(int.from_bytes(digest(type(self).__name__, *words, size=8), "little") >> 1)
        for name, part in self.named_children():
            if isinstance(part, Augmentation):
                part.seed(*words, name)

    def get_extra_state(self) -> Tensor:
        return self.generator.get_state()

    def set_extra_state(self, state: Any) -> None:
        self.generator.set_state(state.cpu())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "generator": self.generator.get_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.generator = torch.Generator()
        self.generator.set_state(state["generator"])

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Draw uniform numbers from ``low`` to ``high`` on the CPU."""
        return torch.rand(shape, generator=self.generator, dtype=torch.float64) * (high - low) + low

    def whole(self, *shape: int, below: int) -> Tensor:
        """Draw integers from 0 to ``below`` - 1 on the CPU."""
        return torch.randint(below, shape, generator=self.generator)

    def dirichlet(self, rows: int, parts: int, alpha: float = 1.0) -> Tensor:
        """Draw rows of ``parts`` weights from a symmetric Dirichlet distribution on the CPU."""
        return torch._sample_dirichlet(torch.full((rows, parts), alpha, dtype=torch.float64), self.generator)

    def _check(self, images: Tensor) -> None:
        name = type(self).__name__
        if (
            not isinstance(images, Tensor)
            or images.ndim != 4
            or images.shape[1] != 3
            or not images.is_floating_point()
        ):
            received = (
                f"{images.dtype} of shape {tuple(images.shape)}"
                if isinstance(images, Tensor)
                else type(images).__name__
            )
            raise SoritesError(
                f"{name}: expected a batch of images as floats in 0..1 of shape (N, 3, height, "
                f"width), got {received}"
            )
        if self.size is not None and images.shape[2:] != (self.size, self.size):
            height, width = images.shape[2:]
            raise SoritesError(f"{name}: expected images of {self.size}x{self.size} px, got {width}x{height}")

    def _check_values(self, images: Tensor) -> None:
        """Refuse values outside 0..1. One pass over the batch in memory order."""
        if images.is_meta:
            return
        flat = images.detach()
        least, most = map(float, torch.aminmax(flat if flat.is_contiguous() else flat.permute(0, 2, 3, 1)))
        if not (least >= -RANGE_TOLERANCE and most <= 1 + RANGE_TOLERANCE):
            raise SoritesError(
                f"{type(self).__name__}: expected images in 0..1, got values from {least:.3g} to "
                f"{most:.3g}. Augment before normalizing, and divide values in 0..255 by 255."
            )


class Mixing(Augmentation):
    """Base class of augmentations that blend each image with its augmented version.

    The weights are drawn from Beta(alpha, alpha).
    """

    def __init__(self, size: int | None = None, alpha: float = 1.0) -> None:
        super().__init__(size)
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha < 1e6:
            raise SoritesError(f"{type(self).__name__}: alpha must be a number above 0, got {alpha!r}")
        self.alpha = float(alpha)

    @abc.abstractmethod
    def mix(self, images: Tensor, weights: Tensor) -> Tensor:
        """Return (1 - weight) * image + weight * augmented image, with one weight per image."""

    def weights(self, number: int) -> Tensor:
        """Draw blending weights; with alpha = 1 they are uniform in 0..1."""
        return self.dirichlet(number, 2, self.alpha)[:, 0].float()

    def augment(self, images: Tensor) -> Tensor:
        return self.mix(images, self.weights(len(images)))


class Chain(Augmentation):
    """Applies several augmentations in order, each at full strength and with its own generator."""

    def __init__(self, parts: Sequence[Augmentation], size: int | None = None) -> None:
        super().__init__(size)
        self.parts = torch.nn.Sequential(*parts)
        self.seed(torch.initial_seed())

    def seed(self, *words: object) -> None:
        super().seed(*words)
        for index, part in enumerate(getattr(self, "parts", ())):
            part.seed(*words, index)

    def augment(self, images: Tensor) -> Tensor:
        for part in cast(Iterable[Augmentation], self.parts):
            images = part._augment_checked(images)
        return images


class NoAugment(Augmentation):
    """Returns images unchanged; the baseline arm of comparisons."""

    def augment(self, images: Tensor) -> Tensor:
        return images


class Flip(Augmentation):
    """Mirrors each image horizontally with probability one half."""

    def augment(self, images: Tensor) -> Tensor:
        mirrored = (self.whole(len(images), below=2) == 1).to(images.device)
        return torch.where(mirrored[:, None, None, None], images.flip(-1), images)
