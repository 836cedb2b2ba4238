"""Batches to pictures of 8 bits, which is what Pillow and files hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


def as_images(pictures: Tensor) -> NDArray[np.float32]:
    """Return the batch as N x H x W x 3 floats in 0..1 on the CPU."""
    images: NDArray[np.float32] = np.ascontiguousarray(pictures.detach().permute(0, 2, 3, 1).cpu().float().numpy())
    return np.clip(images, 0, 1, out=np.empty_like(images))


def as_pictures(pictures: Tensor) -> NDArray[np.uint8]:
    """Return the batch as N x H x W x 3 values of 8 bits on the CPU, rounded to the nearest."""
    return (as_images(pictures) * np.float32(255) + np.float32(0.5)).astype(np.uint8)
