"""Twelve styles of an image that a caption can name.

They are settings without a severity: how far each one moves an image is measured. Sizes are relative to the
shorter side, so that a style looks the same at 32 px and at 224 px.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import ndimage

from sorites.core import ImageF32, add_shift
from sorites.core.errors import UnknownName

# The luma weights of red, green and blue (ITU-R BT.601).
LUMA = np.array([0.299, 0.587, 0.114], np.float32)

Draw = Callable[[ImageF32, np.random.Generator], ImageF32]


def _luma(image: ImageF32) -> ImageF32:
    return image @ LUMA


def _spread(plane: ImageF32) -> ImageF32:
    return np.repeat(plane[..., None], 3, axis=2)


def _tinted(*factors: float) -> Draw:
    return lambda image, rng: image * np.array(factors, np.float32)


def _sepia(image: ImageF32, rng: np.random.Generator) -> ImageF32:
    return _spread(_luma(image)) * np.array([1.07, 0.87, 0.64], np.float32)


def _blurred(image: ImageF32, rng: np.random.Generator) -> ImageF32:
    sigma = min(image.shape[:2]) / 28
    return np.asarray(ndimage.gaussian_filter(image, (sigma, sigma, 0), mode="nearest"))


def _pixelated(image: ImageF32, rng: np.random.Generator) -> ImageF32:
    """Return a mosaic of about 11 uniform blocks across the shorter side."""
    side = max(min(image.shape[:2]) // 11, 2)
    rows, columns = (np.arange(0, length, side) for length in image.shape[:2])
    sums = np.add.reduceat(np.add.reduceat(image, rows, axis=0), columns, axis=1)
    heights, widths = np.diff(rows, append=image.shape[0]), np.diff(columns, append=image.shape[1])
    means = sums / (heights[:, None, None] * widths[None, :, None])
    return np.asarray(np.repeat(np.repeat(means, heights, axis=0), widths, axis=1))


def _embossed(image: ImageF32, rng: np.random.Generator) -> ImageF32:
    plane = _luma(image)
    return _spread(0.5 + 0.5 * (plane - np.roll(np.pad(plane, 1, mode="edge"), (1, 1), (0, 1))[1:-1, 1:-1]))


def _sketch(image: ImageF32, rng: np.random.Generator) -> ImageF32:
    """Draw Sobel edges as dark lines on white; the 95th percentile of their strength is black."""
    plane = _luma(image)
    strength = np.hypot(*(ndimage.sobel(plane, axis, mode="nearest") for axis in (0, 1)))
    return _spread(1 - strength / max(float(np.percentile(strength, 95)), 0.05))


STYLES: Mapping[str, Draw] = {
    "gray": lambda image, rng: _spread(_luma(image)),
    "sepia": _sepia,
    "sunset": _tinted(1.1, 0.65, 0.4),
    "night": _tinted(0.15, 0.2, 0.35),
    "foggy": lambda image, rng: image * 0.3 + 0.6,
    "inverted": lambda image, rng: 1 - image,
    "posterised": lambda image, rng: np.asarray(np.round(image * 3) / 3, np.float32),
    "blurred": _blurred,
    "pixelated": _pixelated,
    "noisy": lambda image, rng: image + rng.standard_normal(image.shape, np.float32) * np.float32(0.1),
    "embossed": _embossed,
    "sketch": _sketch,
}


@add_shift(family="style", unit="name", settings=[{"style": name} for name in STYLES])
def style(image: ImageF32, params: Mapping[str, Any], rng: np.random.Generator) -> ImageF32:
    """Change the appearance of the image: gray, sketch, night, inverted, ..."""
    if params.get("style") not in STYLES:
        raise UnknownName("style", str(params.get("style")), STYLES, f"There are {', '.join(STYLES)}.")
    styled = STYLES[params["style"]](image, rng)
    return np.ascontiguousarray(np.clip(styled, 0, 1), np.float32)
