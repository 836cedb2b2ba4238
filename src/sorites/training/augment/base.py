"""Base classes of augmentations: checked batches in and out, and a private random generator."""

from __future__ import annotations

import abc
import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Rows:
    """The images ``first`` to ``first`` + ``count`` - 1 of a batch of ``total``."""

    first: int
    count: int
    total: int


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

    in_loader: bool = False
    """True if it works on the CPU, one image at a time; a training runs it where images are decoded."""

    @property
    def moves_objects(self) -> bool:
        """Whether objects may be elsewhere in the augmented image, so that boxes would have to follow."""
        return any(part.moves_objects for part in self.children() if isinstance(part, Augmentation))

    def __init__(self, size: int | None = None) -> None:
        super().__init__()
        self._rows: Rows | None = None
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

    def forward(self, images: Tensor, *targets: Any) -> Tensor:
        """Augment a batch (N, 3, height, width), or a single image (3, height, width).

        Subclasses of tensors, such as ``tv_tensors.Image``, are kept.

        Raises:
            SoritesError: It is not a batch of images, or there are targets.
        """
        name = type(self).__name__
        if targets:
            raise SoritesError(
                f"{name}: expected images only, got {len(targets)} more arguments. For images with boxes or"
                f" labels use sorites.transforms.as_torchvision({name}(...)) or ImageTransform({name}(...))"
            )
        if not (isinstance(images, Tensor) and images.ndim == 3):
            changed = self._augment_checked(images, in_range=False)
        elif images.shape[0] == 3 and images.is_floating_point():
            changed = self._augment_checked(images[None], in_range=False)[0]
        else:
            raise self._refusal(images)
        return changed if type(images) is Tensor else changed.as_subclass(type(images))

    def _augment_checked(self, images: Tensor, in_range: bool = True) -> Tensor:
        """Check and augment a batch; ``in_range`` skips the check of values."""
        self._check(images)
        if not self.training or not len(images):
            return images
        if not in_range:
            self._check_values(images)
        with torch.no_grad():
            return self.augment(images)

    def of_rows(self, images: Tensor, first: int, total: int, views: bool = False) -> tuple[Tensor, ...]:
        """Augment some images of a batch as if the whole batch were augmented.

        The numbers for the whole batch are drawn and those of these images are used, so that neither the
        number of processes nor the order in which images are decoded changes an image. Values are not
        checked, because reading them would wait for the device.

        Args:
            images: The images.
            first: The position of the first of them in the batch.
            total: The number of images of the batch.
            views: Return the views of ``AugMix.views`` instead of one.
        """
        parts = [part for part in self.modules() if isinstance(part, Augmentation)]
        for part in parts:
            part._rows = Rows(first, len(images), total)
        try:
            with torch.no_grad():
                return self.several(images) if views else (self._augment_checked(images),)
        finally:
            for part in parts:
                part._rows = None

    def several(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return several views of valid images; an augmentation without views has one."""
        return (self._augment_checked(images),)

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
        # As an array: torch passes tensors to other processes as file descriptors, of which too many fail.
        return {**self.__dict__, "generator": self.generator.get_state().numpy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.generator = torch.Generator()
        self.generator.set_state(torch.from_numpy(np.array(state["generator"])))

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Draw uniform numbers from ``low`` to ``high`` on the CPU; the first dimension is that of images."""
        drawn = torch.rand(self._drawn(shape), generator=self.generator, dtype=torch.float64)
        return self._own(drawn, shape) * (high - low) + low

    def whole(self, *shape: int, below: int) -> Tensor:
        """Draw integers from 0 to ``below`` - 1 on the CPU; the first dimension is that of images."""
        return self._own(torch.randint(below, self._drawn(shape), generator=self.generator), shape)

    def dirichlet(self, rows: int, parts: int, alpha: float = 1.0) -> Tensor:
        """Draw rows of ``parts`` weights from a symmetric Dirichlet distribution on the CPU."""
        shape = (rows, parts)
        alphas = torch.full(self._drawn(shape), alpha, dtype=torch.float64)
        return self._own(torch._sample_dirichlet(alphas, self.generator), shape)

    def _drawn(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a draw for the whole batch, if these images are some of it."""
        rows = self._rows
        return shape if rows is None or shape[:1] != (rows.count,) else (rows.total, *shape[1:])

    def _own(self, drawn: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return what was drawn for these images."""
        rows = self._rows
        return drawn if rows is None or drawn.shape == shape else drawn[rows.first : rows.first + rows.count]

    def _check(self, images: Tensor) -> None:
        if (
            not isinstance(images, Tensor)
            or images.ndim != 4
            or images.shape[1] != 3
            or not images.is_floating_point()
        ):
            raise self._refusal(images)
        if self.size is not None and images.shape[2:] != (self.size, self.size):
            height, width = images.shape[2:]
            raise SoritesError(
                f"{type(self).__name__}: expected images of {self.size}x{self.size} px, got {width}x{height}"
            )

    def _refusal(self, images: object) -> SoritesError:
        name = type(self).__name__
        received = (
            f"{images.dtype} of shape {tuple(images.shape)}"
            if isinstance(images, Tensor)
            else type(images).__name__
        )
        return SoritesError(
            f"{name}: expected images as floats in 0..1 of shape (N, 3, height, width) or (3, height, width),"
            f" got {received}. ImageTransform({name}(...)) takes single images as 8-bit values, grey, RGBA,"
            " arrays and Pillow images"
        )

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
        self._span = 0, len(parts)
        self.seed(torch.initial_seed())

    def seed(self, *words: object) -> None:
        super().seed(*words)
        for index, part in enumerate(getattr(self, "parts", ())):
            part.seed(*words, index)

    @property
    def in_loader(self) -> bool:  # type: ignore[override]
        return any(part.in_loader for part in cast(Iterable[Augmentation], self.parts))

    @property
    def moves_objects(self) -> bool:
        return any(part.moves_objects for part in cast(Iterable[Augmentation], self.parts))

    def split(self) -> tuple[Chain | None, Chain | None]:
        """Return the chain up to the last part that runs in the loader, and the rest, with the same seeds."""
        parts = list(cast(Iterable[Augmentation], self.parts))
        count = max((index + 1 for index, part in enumerate(parts) if part.in_loader), default=0)
        spans = ((0, count), (count, len(parts)))
        halves = [self._only(span) if span[0] < span[1] else None for span in spans]
        return halves[0], halves[1]

    def _only(self, span: tuple[int, int]) -> Chain:
        chain = copy.copy(self)
        chain._span = span
        return chain

    def augment(self, images: Tensor) -> Tensor:
        first, last = self._span
        for part in list(cast(Iterable[Augmentation], self.parts))[first:last]:
            images = part._augment_checked(images)
        return images


def split(augmentation: Augmentation) -> tuple[Augmentation | None, Augmentation | None]:
    """Return what runs in the loader of a training and what runs on its device; None if nothing does."""
    if isinstance(augmentation, Chain):
        return augmentation.split()
    return (augmentation, None) if augmentation.in_loader else (None, augmentation)


class NoAugment(Augmentation):
    """Returns images unchanged; the baseline arm of comparisons."""

    def augment(self, images: Tensor) -> Tensor:
        return images


class Flip(Augmentation):
    """Mirrors each image horizontally with probability one half."""

    @property
    def moves_objects(self) -> bool:
        return True

    def augment(self, images: Tensor) -> Tensor:
        mirrored = (self.whole(len(images), below=2) == 1).to(images.device)
        return torch.where(mirrored[:, None, None, None], images.flip(-1), images)
