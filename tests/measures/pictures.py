"""A scene, and the same scene blurred."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter

from sorites.core import Picture


def scene(seed: int = 0, side: int = 64) -> Picture:
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side] / side
    made = [128 + 90 * np.sin(rng.uniform(4, 40) * x + rng.uniform(4, 40) * y) for _ in range(3)]
    return np.clip(np.stack(made, 2) + rng.normal(0, 8, (side, side, 3)), 0, 255).astype(np.uint8)


def blurred(picture: Picture, sigma: float) -> Picture:
    return np.asarray(gaussian_filter(picture.astype(float), (sigma, sigma, 0)).clip(0, 255), np.uint8)
