"""A scene, and the same scene blurred."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter

from sorites.core import ImageU8


def scene(seed: int = 0, side: int = 64) -> ImageU8:
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side] / side
    made = [128 + 90 * np.sin(rng.uniform(4, 40) * x + rng.uniform(4, 40) * y) for _ in range(3)]
    return np.clip(np.stack(made, 2) + rng.normal(0, 8, (side, side, 3)), 0, 255).astype(np.uint8)


def blurred(image: ImageU8, sigma: float) -> ImageU8:
    return np.asarray(gaussian_filter(image.astype(float), (sigma, sigma, 0)).clip(0, 255), np.uint8)
