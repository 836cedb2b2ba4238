"""The nine operations of AugMix on 8-bit pictures, with the original's magnitudes and Pillow's results to the bit.

Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty", ICLR 2020. The four operations
that overlap with the common corruptions (colour, contrast, brightness, sharpness) are left out, as in the paper. What Pillow
does through tables made in Python is done by NumPy here: on 32 px that is three times faster.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sorites.core import Picture

Operation = Callable[[Picture, float, int], Picture]
"""A picture, a level that was drawn from 0.1 to the severity (at most 10), and a sign that was drawn, to a picture."""

STEPS = 10
"""Levels count tenths of the largest magnitude."""


def autocontrast(picture: Picture, level: float, sign: int) -> Picture:
    """Stretch each colour to the whole range (``ImageOps.autocontrast``)."""
    tables = np.tile(np.arange(256), (3, 1))
    for colour, table in enumerate(tables):
        values = picture[..., colour]
        low, high = int(values.min()), int(values.max())
        if high > low:
            scale = 255.0 / (high - low)
            table[:] = np.clip((np.arange(256) * scale - low * scale).astype(np.int64), 0, 255)
    return _looked_up(picture, tables)


def equalize(picture: Picture, level: float, sign: int) -> Picture:
    """Make the histogram of each colour flat (``ImageOps.equalize``)."""
    tables = np.tile(np.arange(256), (3, 1))
    for colour, table in enumerate(tables):
        counts = np.bincount(picture[..., colour].ravel(), minlength=256)
        step = (counts.sum() - counts[np.flatnonzero(counts)[-1]]) // 255
        if step:
            table[:] = np.minimum((step // 2 + np.cumsum(counts) - counts) // step, 255)
    return _looked_up(picture, tables)


def posterize(picture: Picture, level: float, sign: int) -> Picture:
    """Keep four bits per colour, or fewer down to one (``ImageOps.posterize``)."""
    dropped = 8 - (4 - int(level * 4 / STEPS))
    return picture & np.uint8(256 - 2**dropped)


def rotate(picture: Picture, level: float, sign: int) -> Picture:
    """Turn by whole degrees, up to 30; what comes in from beyond the border is black, here and below."""
    turned = Image.fromarray(picture).rotate(sign * int(level * 30 / STEPS), resample=Image.Resampling.BILINEAR)
    return np.asarray(turned)


def solarize(picture: Picture, level: float, sign: int) -> Picture:
    """Invert the values from a threshold upwards, almost all of them near level 10 (``ImageOps.solarize``)."""
    return np.where(picture < 256 - int(level * 256 / STEPS), picture, ~picture)


def shear_x(picture: Picture, level: float, sign: int) -> Picture:
    """Shear along the rows, by up to 0.3."""
    return _affine(picture, (1, sign * level * 0.3 / STEPS, 0, 0, 1, 0))


def shear_y(picture: Picture, level: float, sign: int) -> Picture:
    """Shear along the columns, by up to 0.3."""
    return _affine(picture, (1, 0, 0, sign * level * 0.3 / STEPS, 1, 0))


def translate_x(picture: Picture, level: float, sign: int) -> Picture:
    """Move sideways by whole pixels, up to a third of the width."""
    return _moved(picture.transpose(1, 0, 2), sign * int(level * picture.shape[1] / 3 / STEPS)).transpose(1, 0, 2)


def translate_y(picture: Picture, level: float, sign: int) -> Picture:
    """Move up or down by whole pixels, up to a third of the height."""
    return _moved(picture, sign * int(level * picture.shape[0] / 3 / STEPS))


def _moved(picture: Picture, by: int) -> Picture:
    """Return the picture with row ``by`` where row 0 was."""
    moved = np.zeros_like(picture)
    rows = len(picture) - abs(by)
    moved[max(-by, 0) : max(-by, 0) + rows] = picture[max(by, 0) : max(by, 0) + rows]
    return moved


def _affine(picture: Picture, matrix: tuple[float, ...]) -> Picture:
    given = Image.fromarray(picture)
    return np.asarray(given.transform(given.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR))


def _looked_up(picture: Picture, tables: NDArray[np.int64]) -> Picture:
    found = np.empty_like(picture)
    for colour, table in enumerate(tables.astype(np.uint8)):
        found[..., colour] = table[picture[..., colour]]
    return found


OPERATIONS: tuple[Operation, ...] = (
    autocontrast, equalize, posterize, rotate, solarize, shear_x, shear_y, translate_x, translate_y
)  # fmt: skip
"""All nine, in the original's order."""
