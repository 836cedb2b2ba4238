"""Light and colour, one number a picture: no chance in any of them.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", ICLR 2019.
"""

from __future__ import annotations

import numpy as np

from sorites.core import Image
from sorites.shifts.dial import add_dial, clip


def _value(image: Image, rng: np.random.Generator) -> Image:
    """V of HSV: the largest channel."""
    return np.maximum(np.maximum(image[..., 0], image[..., 1]), image[..., 2])


@add_dial(_value, family="light", unit="V of HSV", levels=(0.1, 0.2, 0.3, 0.4, 0.5))
def brightness(image: Image, severity: float, value: Image) -> Image:
    """V of HSV raised by ``severity`` and clipped at 1; hue and saturation kept, black turns gray."""
    raised = np.minimum(value + np.float32(severity), np.float32(1))
    black = value == 0
    ratio = raised / np.where(black, np.float32(1), value)
    brighter = np.empty_like(image)
    for channel in range(3):
        np.multiply(image[..., channel], ratio, out=brighter[..., channel])
    if black.any():
        brighter[black] = raised[black, None]
    return np.minimum(brighter, np.float32(1), out=brighter)


def _mean(image: Image, rng: np.random.Generator) -> Image:
    """One mean a channel, laid out as one row of the picture."""
    means = [image[..., channel].mean(dtype=np.float64) for channel in range(3)]
    return np.tile(np.array(means, np.float32), (1, image.shape[1], 1))


@add_dial(_mean, family="light", unit="1 - c", levels=(0.6, 0.7, 0.8, 0.9, 0.95), limit=1)
def contrast(image: Image, severity: float, mean: Image) -> Image:
    """Each channel drawn towards its mean over the picture by c = 1 - ``severity``; 1 leaves one flat colour."""
    flatter = image * np.float32(1 - severity)
    flatter += mean * np.float32(severity)
    return clip(flatter)
