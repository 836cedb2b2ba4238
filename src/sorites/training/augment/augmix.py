"""AugMix: images mixed with chains of simple operations on themselves, and the loss that holds
their answers together.

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

# The nine operations of AugMix on 8-bit images, with the original's magnitudes and Pillow's results to
# the bit.


# An image, a level that was drawn from 0.1 to the severity (at most 10), and a sign that was
# drawn, to an image.
Operation = Callable[[ImageU8, float, int], ImageU8]

# Levels count tenths of the largest magnitude.
STEPS = 10


def autocontrast(image: ImageU8, level: float, sign: int) -> ImageU8:
    """Stretch each colour to the whole range (``ImageOps.autocontrast``)."""
    tables = np.tile(np.arange(256), (3, 1))
    for colour, table in enumerate(tables):
        values = image[..., colour]
        low, high = int(values.min()), int(values.max())
        if high > low:
            scale = 255.0 / (high - low)
            table[:] = np.clip((np.arange(256) * scale - low * scale).astype(np.int64), 0, 255)
    return _looked_up(image, tables)


def equalize(image: ImageU8, level: float, sign: int) -> ImageU8:
    """Make the histogram of each colour flat (``ImageOps.equalize``)."""
    tables = np.tile(np.arange(256), (3, 1))
    for colour, table in enumerate(tables):
        counts = np.bincount(image[..., colour].ravel(), minlength=256)
        step = (counts.sum() - counts[np.flatnonzero(counts)[-1]]) // 255
        if step:
            table[:] = np.minimum((step // 2 + np.cumsum(counts) - counts) // step, 255)
    return _looked_up(image, tables)


def posterize(image: ImageU8, level: float, sign: int) -> ImageU8:
    """Keep four bits per colour, or fewer down to one (``ImageOps.posterize``)."""
    dropped = 8 - (4 - int(level * 4 / STEPS))
    return image & np.uint8(256 - 2**dropped)


def rotate(image: ImageU8, level: float, sign: int) -> ImageU8:
    """Turn by whole degrees, up to 30; what comes in from beyond the border is black, here and below."""
    turned = Image.fromarray(image).rotate(sign * int(level * 30 / STEPS), resample=Image.Resampling.BILINEAR)
    return np.asarray(turned)


def solarize(image: ImageU8, level: float, sign: int) -> ImageU8:
    """Invert the values from a threshold upwards, almost all of them near level 10
    (``ImageOps.solarize``).
    """
    return np.where(image < 256 - int(level * 256 / STEPS), image, ~image)


def shear_x(image: ImageU8, level: float, sign: int) -> ImageU8:
    """Shear along the rows, by up to 0.3."""
    return _affine(image, (1, sign * level * 0.3 / STEPS, 0, 0, 1, 0))


def shear_y(image: ImageU8, level: float, sign: int) -> ImageU8:
    """Shear along the columns, by up to 0.3."""
    return _affine(image, (1, 0, 0, sign * level * 0.3 / STEPS, 1, 0))


def translate_x(image: ImageU8, level: float, sign: int) -> ImageU8:
    """Move sideways by whole pixels, up to a third of the width."""
    return _moved(image.transpose(1, 0, 2), sign * int(level * image.shape[1] / 3 / STEPS)).transpose(1, 0, 2)


def translate_y(image: ImageU8, level: float, sign: int) -> ImageU8:
    """Move up or down by whole pixels, up to a third of the height."""
    return _moved(image, sign * int(level * image.shape[0] / 3 / STEPS))


def _moved(image: ImageU8, by: int) -> ImageU8:
    """Return the image with row ``by`` where row 0 was."""
    moved = np.zeros_like(image)
    rows = len(image) - abs(by)
    moved[max(-by, 0) : max(-by, 0) + rows] = image[max(by, 0) : max(by, 0) + rows]
    return moved


def _affine(image: ImageU8, matrix: tuple[float, ...]) -> ImageU8:
    given = Image.fromarray(image)
    return np.asarray(
        given.transform(given.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR)
    )


def _looked_up(image: ImageU8, tables: NDArray[np.int64]) -> ImageU8:
    found = np.empty_like(image)
    for colour, table in enumerate(tables.astype(np.uint8)):
        found[..., colour] = table[image[..., colour]]
    return found


# All nine, in the original's order.
OPERATIONS: tuple[Operation, ...] = (
    autocontrast, equalize, posterize, rotate, solarize, shear_x, shear_y, translate_x, translate_y
)  # fmt: skip


LEAST_LEVEL = 0.1
RANDOM_DEPTH = 3


class AugMix(Mixing):
    """Mixes ``width`` chains of operations by Dirichlet(alpha, ...), and the result with the
    image by Beta(alpha, alpha).

    Each chain has ``depth`` operations, or 1 to 3 drawn uniformly where that is -1; each operation
    is one of the original nine, at a level drawn from 0.1 to ``severity`` (the original has 3 for
    CIFAR and 1 for ImageNet). They give what Pillow gives, on images rounded to 8 bits, so a
    batch on a GPU travels to the CPU and back: there, use a ``ImageTransform`` in the workers of
    a data loader instead.
    """

    def __init__(
        self,
        size: int | None = None,
        *,
        severity: float = 3.0,
        width: int = 3,
        depth: int = -1,
        alpha: float = 1.0,
    ) -> None:
        super().__init__(size, alpha)
        if (
            isinstance(severity, bool)
            or not isinstance(severity, int | float)
            or not LEAST_LEVEL <= severity <= STEPS
        ):
            raise SoritesError(f"AugMix: wanted a severity from {LEAST_LEVEL} to {STEPS}, got {severity!r}")
        if isinstance(width, bool) or not isinstance(width, int) or width < 1:
            raise SoritesError(f"AugMix: wanted at least one chain as width, got {width!r}")
        if isinstance(depth, bool) or not isinstance(depth, int) or (depth < 1 and depth != -1):
            raise SoritesError(
                f"AugMix: wanted the operations per chain as depth, or -1 for 1 to 3 at random, got {depth!r}"
            )
        self.severity, self.width, self.depth = float(severity), width, depth

    def views(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the images as they are and two mixtures of them, for ``jsd_loss``."""
        return images, self(images), self(images)

    def mix(self, images: Tensor, weights: Tensor) -> Tensor:
        moved = self.chains(images)
        return torch.lerp(images, moved, weights.to(images.device, images.dtype)[:, None, None, None])

    def chains(self, images: Tensor) -> Tensor:
        """Return the mixture of the chains alone, before any of the images themselves is mixed in."""
        number, longest = len(images), max(self.depth, RANDOM_DEPTH)
        shape = (number, self.width, longest)
        shares = self.dirichlet(number, self.width, self.alpha).tolist()
        lengths = (self.whole(number, self.width, below=RANDOM_DEPTH) + 1).tolist()
        kinds = self.whole(*shape, below=len(OPERATIONS)).tolist()
        levels = self.uniform(*shape, low=LEAST_LEVEL, high=self.severity).tolist()
        signs = (self.whole(*shape, below=2) * 2 - 1).tolist()
        mixed = np.zeros((number, *images.shape[2:], 3), np.float32)
        for place, start in enumerate(as_uint8(images)):
            for chain in range(self.width):
                image = start
                for step in range(lengths[place][chain] if self.depth == -1 else self.depth):
                    operation = OPERATIONS[kinds[place][chain][step]]
                    image = operation(image, levels[place][chain][step], signs[place][chain][step])
                mixed[place] += np.float32(shares[place][chain] / 255) * image
        return torch.from_numpy(mixed).permute(0, 3, 1, 2).contiguous().to(images.device, images.dtype)


def jsd_loss(logits: Tensor | Sequence[Tensor], labels: Tensor, weight: float = 12.0) -> Tensor:
    """Return the cross-entropy of the clean view plus ``weight`` times the Jensen-Shannon
    divergence of the three views.

    ``logits`` are those of the views of ``AugMix.views`` in their order: three tensors of N x C, or
    one of 3N x C.
    """
    three = tuple(logits.chunk(3)) if isinstance(logits, Tensor) else tuple(logits)
    if len(three) != 3 or any(view.shape != three[0].shape or len(view) != len(labels) for view in three):
        raise SoritesError(
            f"jsd_loss: wanted the logits of three views of {len(labels)} images, got"
            f" {[len(view) for view in three]}"
        )
    shares = torch.stack([functional.softmax(view, dim=1) for view in three])
    mixture = shares.mean(0).clamp(1e-7, 1).log()
    divergence = torch.stack(
        [functional.kl_div(mixture, share, reduction="batchmean") for share in shares]
    ).mean()
    return functional.cross_entropy(three[0], labels) + weight * divergence
