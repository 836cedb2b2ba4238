"""Batches to pictures of 8 bits, which is what Pillow and files hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sorites.errors import SoritesError

SLACK = 1e-3
"""The distance that values may lie beyond 0..1 because of rounding."""


def as_images(pictures: Tensor, wanted_by: str) -> NDArray[np.float32]:
    """Return the batch as N x H x W x 3 floats on the CPU; values that are not in 0..1 are refused."""
    images: NDArray[np.float32] = np.ascontiguousarray(pictures.detach().permute(0, 2, 3, 1).cpu().float().numpy())
    least, most = float(images.min()), float(images.max())
    if not (least >= -SLACK and most <= 1 + SLACK):
        raise SoritesError(
            f"{wanted_by}: wanted pictures in 0..1, got values from {least:.3g} to {most:.3g}. "
            "Augment first, normalise afterwards."
        )
    return np.clip(images, 0, 1, out=np.empty_like(images))


def as_pictures(pictures: Tensor, wanted_by: str) -> NDArray[np.uint8]:
    """Return the batch as N x H x W x 3 values of 8 bits on the CPU, rounded to the nearest."""
    return (as_images(pictures, wanted_by) * np.float32(255) + np.float32(0.5)).astype(np.uint8)
