"""Shifts of where things stand in the picture.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", ICLR 2019.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sorites.core import Image
from sorites.scenes.fields import Field, smooth
from sorites.shifts._dial import add_dial, clip


def _displacement(image: Image, rng: np.random.Generator) -> tuple[Field, Field]:
    """Draw the px to move down and across at severity 1: uniform noise of 0.5 % of the height, smoothed over 1 % of each side."""
    height, width = image.shape[:2]
    most = np.float32(0.005 * height)
    noise = (rng.random((2, height, width), dtype=np.float32) * 2 - 1) * most
    down, across = (smooth(field, (0.01 * height, 0.01 * width), truncate=3, mode="symmetric") for field in noise)
    return down, across


@add_dial(_displacement, family="geometry", unit="gain", levels=(12.5, 16.25, 21.25, 25, 30))
def elastic_transform(image: Image, severity: float, field: tuple[Field, Field]) -> Image:
    """Move each pixel by a smooth random field, ``severity`` times as large; the picture is mirrored at the border."""
    height, width = image.shape[:2]
    y, dy = _lookup(np.arange(height, dtype=np.float32)[:, None] + field[0] * np.float32(severity), height)
    x, dx = _lookup(np.arange(width, dtype=np.float32) + field[1] * np.float32(severity), width)
    y *= width
    corners = [y + x, y + np.minimum(x + 1, width - 1)]
    y += width * (y < width * (height - 1))
    corners += [y + x, y + np.minimum(x + 1, width - 1)]
    out = np.empty_like(image)
    for channel in range(3):
        plane = np.ascontiguousarray(image[..., channel]).ravel()
        a, b, c, d = (np.take(plane, corner, mode="clip") for corner in corners)
        out[..., channel] = _mix(_mix(a, b, dx), _mix(c, d, dx), dy)
    return clip(out)


elastic_transform.moves_things = True


def _lookup(place: Field, length: int) -> tuple[NDArray[np.intp], Field]:
    """Return the pixel before each place and the distance past it; places beyond the border are mirrored about its outer edge."""
    edge = np.float32(length - 0.5)
    folded = np.abs(place + np.float32(0.5)) - np.float32(0.5)
    folded = edge - np.abs(edge - folded)
    np.clip(folded, 0, length - 1, out=folded)
    before = folded.astype(np.intp)
    return before, folded - before.astype(np.float32)


def _mix(a: Field, b: Field, part: Field) -> Field:
    b -= a
    b *= part
    b += a
    return b
