"""AugMix: mix images with chains of simple operations on them; and its consistency loss.

Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty", ICLR 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional

from sorites.core import ImageU8
from sorites.core.errors import SoritesError
from sorites.training.augment.base import Mixing, as_uint8

# The nine operations of AugMix with the original magnitudes, bit-identical to Pillow.


# Red, green and blue of the pixels that come from outside of an image that is moved, from 0 to 255.
Fill = tuple[int, int, int]
BLACK: Fill = (0, 0, 0)

# Function of an image, a level from 0.1 to the severity (at most 10), a sign, and the colour of pixels from
# outside.
Operation = Callable[[ImageU8, float, int, Fill], ImageU8]

# Levels are tenths of the largest magnitude.
MAX_LEVEL = 10


def autocontrast(image: ImageU8, level: float, sign: int, fill: Fill = BLACK) -> ImageU8:
    """Stretch each channel to the full range (``ImageOps.autocontrast``)."""
    tables = np.tile(np.arange(256), (3, 1))
    for colour, table in enumerate(tables):
        values = image[..., colour]
        low, high = int(values.min()), int(values.max())
        if high > low:
            scale = 255.0 / (high - low)
            table[:] = np.clip((np.arange(256) * scale - low * scale).astype(np.int64), 0, 255)
    return _apply_tables(image, tables)


def equalize(image: ImageU8, level: float, sign: int, fill: Fill = BLACK) -> ImageU8:
    """Equalize the histogram of each channel (``ImageOps.equalize``)."""
    tables = np.tile(np.arange(256), (3, 1))
    for colour, table in enumerate(tables):
        counts = np.bincount(image[..., colour].ravel(), minlength=256)
        step = (counts.sum() - counts[np.flatnonzero(counts)[-1]]) // 255
        if step:
            table[:] = np.minimum((step // 2 + np.cumsum(counts) - counts) // step, 255)
    return _apply_tables(image, tables)


def posterize(image: ImageU8, level: float, sign: int, fill: Fill = BLACK) -> ImageU8:
    """Keep four to one bits per channel (``ImageOps.posterize``)."""
    dropped = 8 - (4 - int(level * 4 / MAX_LEVEL))
    return image & np.uint8(256 - 2**dropped)


def rotate(image: ImageU8, level: float, sign: int, fill: Fill = BLACK) -> ImageU8:
    """Rotate by whole degrees, up to 30."""
    turned = Image.fromarray(image).rotate(
        sign * int(level * 30 / MAX_LEVEL), resample=Image.Resampling.BILINEAR, fillcolor=fill
    )
    return np.asarray(turned)


def solarize(image: ImageU8, level: float, sign: int, fill: Fill = BLACK) -> ImageU8:
    """Invert values from a threshold upwards; nearly all of them at level 10 (``ImageOps.solarize``)."""
    return np.where(image < 256 - int(level * 256 / MAX_LEVEL), image, ~image)


def shear_x(image: ImageU8, level: float, sign: int, fill: Fill = BLACK) -> ImageU8:
    """Shear along the rows by up to 0.3."""
    return _affine(image, (1, sign * level * 0.3 / MAX_LEVEL, 0, 0, 1, 0), fill)


def shear_y(image: ImageU8, level: float, sign: int, fill: Fill = BLACK) -> ImageU8:
    """Shear along the columns by up to 0.3."""
    return _affine(image, (1, 0, 0, sign * level * 0.3 / MAX_LEVEL, 1, 0), fill)


def translate_x(image: ImageU8, level: float, sign: int, fill: Fill = BLACK) -> ImageU8:
    """Translate horizontally by whole pixels, up to a third of the width."""
    return _shift_rows(
        image.transpose(1, 0, 2), sign * int(level * image.shape[1] / 3 / MAX_LEVEL), fill
    ).transpose(1, 0, 2)


def translate_y(image: ImageU8, level: float, sign: int, fill: Fill = BLACK) -> ImageU8:
    """Translate vertically by whole pixels, up to a third of the height."""
    return _shift_rows(image, sign * int(level * image.shape[0] / 3 / MAX_LEVEL), fill)


def _shift_rows(image: ImageU8, by: int, fill: Fill) -> ImageU8:
    moved = np.empty_like(image)
    moved[:] = fill
    rows = len(image) - abs(by)
    moved[max(-by, 0) : max(-by, 0) + rows] = image[max(by, 0) : max(by, 0) + rows]
    return moved


def _affine(image: ImageU8, matrix: tuple[float, ...], fill: Fill) -> ImageU8:
    source, bilinear = Image.fromarray(image), Image.Resampling.BILINEAR
    moved = source.transform(source.size, Image.Transform.AFFINE, matrix, resample=bilinear, fillcolor=fill)
    return np.asarray(moved)


def _apply_tables(image: ImageU8, tables: NDArray[np.int64]) -> ImageU8:
    result = np.empty_like(image)
    for colour, table in enumerate(tables.astype(np.uint8)):
        result[..., colour] = table[image[..., colour]]
    return result


# All operations in the original order.
OPERATIONS: tuple[Operation, ...] = (
    autocontrast, equalize, posterize, rotate, solarize, shear_x, shear_y, translate_x, translate_y
)  # fmt: skip
# Those that leave objects where they are.
IN_PLACE: tuple[Operation, ...] = (autocontrast, equalize, posterize, solarize)


MIN_LEVEL = 0.1
MAX_RANDOM_DEPTH = 3


def _check_severity(severity: float) -> None:
    is_number = isinstance(severity, int | float) and not isinstance(severity, bool)
    if not is_number or not MIN_LEVEL <= severity <= MAX_LEVEL:
        raise SoritesError(f"AugMix: severity must be from {MIN_LEVEL} to {MAX_LEVEL}, got {severity!r}")


def _check_chains(width: int, depth: int) -> None:
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise SoritesError(f"AugMix: width must be at least 1, got {width!r}")
    if isinstance(depth, bool) or not isinstance(depth, int) or (depth < 1 and depth != -1):
        raise SoritesError(f"AugMix: depth must be at least 1, or -1 for 1 to 3 at random; got {depth!r}")


class AugMix(Mixing):
    """Mixes ``width`` operation chains by Dirichlet(alpha), then blends with the image by Beta(alpha, alpha).

    Operations match Pillow on images rounded to 8 bits, so a batch on a GPU is copied to the CPU and back.
    For GPU training use an ``ImageTransform`` in the data loader's workers instead.

    Args:
        size: Side of the images in px.
        severity: Operation levels are drawn from 0.1 to this (originally 3 for CIFAR, 1 for ImageNet).
        width: Number of chains.
        depth: Operations per chain; -1 draws 1 to 3.
        alpha: Parameter of both distributions.
        fill: Red, green and blue (0 to 255) of pixels from outside of a moved image; black in the original.
        geometric: Whether to rotate, shear and translate too; without, objects stay where they are, as the
            training of a detector needs.
    """

    in_loader = True

    def __init__(
        self,
        size: int | None = None,
        *,
        severity: float = 3.0,
        width: int = 3,
        depth: int = -1,
        alpha: float = 1.0,
        fill: Sequence[int] = BLACK,
        geometric: bool = True,
    ) -> None:
        super().__init__(size, alpha)
        if not isinstance(geometric, bool):
            raise SoritesError(f"AugMix: geometric must be true or false, got {geometric!r}")
        self.operations = OPERATIONS if geometric else IN_PLACE
        _check_severity(severity)
        _check_chains(width, depth)
        if len(fill) != 3 or not all(isinstance(value, int) and 0 <= value <= 255 for value in fill):
            raise SoritesError(f"AugMix: fill must be three integers from 0 to 255, got {list(fill)!r}")
        self.severity, self.width, self.depth = float(severity), width, depth
        self.fill: Fill = (fill[0], fill[1], fill[2])

    @property
    def moves_objects(self) -> bool:
        return any(operation not in IN_PLACE for operation in self.operations)

    def views(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the images and two augmented versions, for ``jsd_loss``."""
        return images, self(images), self(images)

    def several(self, images: Tensor) -> tuple[Tensor, ...]:
        return images, self._augment_checked(images), self._augment_checked(images)

    def mix(self, images: Tensor, weights: Tensor) -> Tensor:
        augmented = self.chains(images)
        return torch.lerp(images, augmented, weights.to(images.device, images.dtype)[:, None, None, None])

    def sums(self, step: int, steps: int) -> bool:
        """Return whether the image after a step of a chain is added to the mixture."""
        return step == steps - 1

    def weighted(self, image: ImageU8, share: float) -> NDArray[np.float32]:
        """Return the part that an image of a chain has in the mixture."""
        return np.float32(share / 255) * image

    def chains(self, images: Tensor) -> Tensor:
        """Return the mixture of the chains only, without blending in the images."""
        number, longest = len(images), max(self.depth, MAX_RANDOM_DEPTH)
        shape = (number, self.width, longest)
        shares = self.dirichlet(number, self.width, self.alpha).tolist()
        lengths = (self.whole(number, self.width, below=MAX_RANDOM_DEPTH) + 1).tolist()
        kinds = self.whole(*shape, below=len(self.operations)).tolist()
        levels = self.uniform(*shape, low=MIN_LEVEL, high=self.severity).tolist()
        signs = (self.whole(*shape, below=2) * 2 - 1).tolist()
        mixed = np.zeros((number, *images.shape[2:], 3), np.float32)
        for index, start in enumerate(as_uint8(images)):
            for chain in range(self.width):
                image = start
                steps = lengths[index][chain] if self.depth == -1 else self.depth
                for step in range(steps):
                    operation = self.operations[kinds[index][chain][step]]
                    level, sign = levels[index][chain][step], signs[index][chain][step]
                    image = operation(image, level, sign, self.fill)
                    if self.sums(step, steps):
                        mixed[index] += self.weighted(image, shares[index][chain])
        return torch.from_numpy(mixed).permute(0, 3, 1, 2).contiguous().to(images.device, images.dtype)


# The means of ImageNet's colours, by which the released code normalises.
IMAGENET_MEAN = (0.485, 0.456, 0.406)


class AugMixReleased(AugMix):
    """AugMix as the code released with OpticsAugment computes it (``optics_augment/augmix.py``).

    It differs from the paper of AugMix and from its original code in one place: weighted images are summed
    inside the loop over the depth of a chain, so every intermediate image counts with the weight of the chain
    and the weights sum to the mean depth (2) instead of 1. The sum is taken over normalised images, so the
    contrast about ``mean`` is about doubled, and values leave 0..1.

    Args:
        size: Side of the images in px.
        severity: As in ``AugMix``, as are ``width``, ``depth`` and ``alpha``.
        width: Number of chains.
        depth: Operations per chain; -1 draws 1 to 3.
        alpha: Parameter of both distributions.
        mean: Red, green and blue that normalising maps to 0; those of ImageNet in the released code.
    """

    def __init__(
        self,
        size: int | None = None,
        *,
        severity: float = 3.0,
        width: int = 3,
        depth: int = -1,
        alpha: float = 1.0,
        mean: Sequence[float] = IMAGENET_MEAN,
    ) -> None:
        super().__init__(size, severity=severity, width=width, depth=depth, alpha=alpha)
        if len(mean) != 3 or not all(0 <= value <= 1 for value in mean):
            raise SoritesError(f"AugMix: mean must be three values from 0 to 1, got {mean!r}")
        self.mean = np.asarray(mean, np.float32)

    def sums(self, step: int, steps: int) -> bool:
        return True

    def weighted(self, image: ImageU8, share: float) -> NDArray[np.float32]:
        return np.float32(share) * (image * np.float32(1 / 255) - self.mean)

    def chains(self, images: Tensor) -> Tensor:
        mean = torch.from_numpy(self.mean).to(images.device, images.dtype)
        return super().chains(images) + mean[:, None, None]


def jsd_loss(logits: Tensor | Sequence[Tensor], labels: Tensor, weight: float = 12.0) -> Tensor:
    """Return the cross-entropy of the clean view plus the weighted Jensen-Shannon divergence of three views.

    Args:
        logits: Logits of the views of ``AugMix.views``: three tensors N x C, or one 3N x C.
        labels: The labels, N.
        weight: Weight of the divergence.
    """
    views = tuple(logits.chunk(3)) if isinstance(logits, Tensor) else tuple(logits)
    if len(views) != 3 or any(view.shape != views[0].shape or len(view) != len(labels) for view in views):
        raise SoritesError(
            f"jsd_loss: expected logits of three views of {len(labels)} images, got "
            f"{[len(view) for view in views]}"
        )
    probabilities = torch.stack([functional.softmax(view, dim=1) for view in views])
    mixture = probabilities.mean(0).clamp(1e-7, 1).log()
    divergence = torch.stack(
        [functional.kl_div(mixture, probability, reduction="batchmean") for probability in probabilities]
    ).mean()
    return functional.cross_entropy(views[0], labels) + weight * divergence
