"""The base of every augmentation: batches in and out on their own device, and a generator that
belongs to it alone.
"""

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

# Batches to images of 8 bits, which is what Pillow and files hold.


def as_images(images_u8: Tensor) -> NDArray[np.float32]:
    """Return the batch as N x H x W x 3 floats in 0..1 on the CPU."""
    images: NDArray[np.float32] = np.ascontiguousarray(
        images_u8.detach().permute(0, 2, 3, 1).cpu().float().numpy()
    )
    return np.clip(images, 0, 1, out=np.empty_like(images))


def as_uint8(images: Tensor) -> NDArray[np.uint8]:
    """Return the batch as N x H x W x 3 values of 8 bits on the CPU, rounded to the nearest."""
    return (as_images(images) * np.float32(255) + np.float32(0.5)).astype(np.uint8)


# The distance that values may lie beyond 0..1 because of rounding.
SLACK = 1e-3


class Augmentation(torch.nn.Module, abc.ABC):
    """Moves images while a model is trained: N x 3 x H x W floats in 0..1 in, the same out, on
    the device of the batch.

    Every draw comes from a generator of its own on the CPU, so that no other random number of a
    program moves it and every device draws alike. ``seed`` restarts it; its state is in
    ``state_dict``, so that a restored training goes on with the draws it would have had. In
    ``eval`` mode images pass as they are, as with dropout. No gradient goes through. ``size`` is
    the side of the images, if it is known: others are then refused.
    """

    def __init__(self, size: int | None = None) -> None:
        super().__init__()
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise SoritesError(
                f"{type(self).__name__}: wanted the side of the images in px as size, got {size!r}"
            )
        self.size = size
        self.generator = torch.Generator()
        self.seed(torch.initial_seed())

    @abc.abstractmethod
    def augment(self, images: Tensor) -> Tensor:
        """Return the moved images; the batch that is given has been checked, holds at least one,
        and is not written into.
        """

    def forward(self, images: Tensor) -> Tensor:
        return self._moved(images, in_range=False)

    def _moved(self, images: Tensor, in_range: bool = True) -> Tensor:
        """Return the moved images; values that are known to be in 0..1 are not looked at again."""
        self._check(images)
        if not self.training or not len(images):
            return images
        if not in_range:
            self._check_values(images)
        with torch.no_grad():
            return self.augment(images)

    def seed(self, *words: object) -> None:
        """Restart the generator from a hash of the words, such as a seed, an epoch and a rank;
        parts get their own streams.
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
        """Draw numbers that are uniform from ``low`` to ``high``, on the CPU."""
        return torch.rand(shape, generator=self.generator, dtype=torch.float64) * (high - low) + low

    def whole(self, *shape: int, below: int) -> Tensor:
        """Draw whole numbers from 0 to ``below`` - 1, on the CPU."""
        return torch.randint(below, shape, generator=self.generator)

    def dirichlet(self, rows: int, parts: int, alpha: float = 1.0) -> Tensor:
        """Draw rows of ``parts`` weights that sum to one, with the same ``alpha`` for each part, on
        the CPU.
        """
        return torch._sample_dirichlet(torch.full((rows, parts), alpha, dtype=torch.float64), self.generator)

    def _check(self, images: Tensor) -> None:
        name = type(self).__name__
        if (
            not isinstance(images, Tensor)
            or images.ndim != 4
            or images.shape[1] != 3
            or not images.is_floating_point()
        ):
            came = (
                f"{images.dtype} of shape {tuple(images.shape)}"
                if isinstance(images, Tensor)
                else type(images).__name__
            )
            raise SoritesError(
                f"{name}: wanted a batch of images as floats in 0..1 of shape (N, 3, height, width), got"
                f" {came}"
            )
        if self.size is not None and images.shape[2:] != (self.size, self.size):
            height, width = images.shape[2:]
            raise SoritesError(f"{name}: wanted images of {self.size}x{self.size} px, got {width}x{height}")

    def _check_values(self, images: Tensor) -> None:
        """Refuse values that are not in 0..1, by one look at all of them in the order in which they
        lie in memory.
        """
        if images.is_meta:
            return
        flat = images.detach()
        least, most = map(float, torch.aminmax(flat if flat.is_contiguous() else flat.permute(0, 2, 3, 1)))
        if not (least >= -SLACK and most <= 1 + SLACK):
            raise SoritesError(
                f"{type(self).__name__}: wanted images in 0..1, got values from {least:.3g} to {most:.3g}. "
                "Augment first, normalise afterwards; divide values in 0..255 by 255."
            )


class Mixing(Augmentation):
    """An augmentation that mixes each image with what it makes of it, by a weight of its own from
    Beta(alpha, alpha).
    """

    def __init__(self, size: int | None = None, alpha: float = 1.0) -> None:
        super().__init__(size)
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha < 1e6:
            raise SoritesError(f"{type(self).__name__}: wanted a number above 0 as alpha, got {alpha!r}")
        self.alpha = float(alpha)

    @abc.abstractmethod
    def mix(self, images: Tensor, weights: Tensor) -> Tensor:
        """Return (1 - weight) x image + weight x the moved image, for one weight per image."""

    def weights(self, number: int) -> Tensor:
        """Draw the weights of so many images; with alpha = 1 they are uniform in 0..1."""
        return self.dirichlet(number, 2, self.alpha)[:, 0].float()

    def augment(self, images: Tensor) -> Tensor:
        return self.mix(images, self.weights(len(images)))


class Chain(Augmentation):
    """Several augmentations, one after another in the order given, each with its own generator and
    at its own full strength.
    """

    def __init__(self, parts: Sequence[Augmentation], size: int | None = None) -> None:
        super().__init__(size)
        self.parts = torch.nn.Sequential(*parts)
        self.seed(torch.initial_seed())

    def seed(self, *words: object) -> None:
        super().seed(*words)
        for place, part in enumerate(getattr(self, "parts", ())):
            part.seed(*words, place)

    def augment(self, images: Tensor) -> Tensor:
        for part in cast(Iterable[Augmentation], self.parts):
            images = part._moved(images)
        return images


class NoAugment(Augmentation):
    """Leaves every image as it is, for the arm that the others are compared with."""

    def augment(self, images: Tensor) -> Tensor:
        return images


class Flip(Augmentation):
    """Mirrors each image left to right with probability one half."""

    def augment(self, images: Tensor) -> Tensor:
        mirrored = (self.whole(len(images), below=2) == 1).to(images.device)
        return torch.where(mirrored[:, None, None, None], images.flip(-1), images)
