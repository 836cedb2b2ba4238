"""The nine operations of AugMix on Pillow's pictures, with the original's magnitudes.

Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty", ICLR 2020. The four operations
that overlap with the common corruptions (colour, contrast, brightness, sharpness) are left out, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable

from PIL import Image, ImageOps

Pillow = Image.Image
Operation = Callable[[Pillow, float, int], Pillow]
"""A picture, a level that was drawn from 0.1 to the severity (at most 10), and a sign that was drawn, to a picture."""

STEPS = 10
"""Levels count tenths of the largest magnitude."""


def autocontrast(picture: Pillow, level: float, sign: int) -> Pillow:
    """Stretch each colour to the whole range."""
    return ImageOps.autocontrast(picture)


def equalize(picture: Pillow, level: float, sign: int) -> Pillow:
    """Make the histogram of each colour flat."""
    return ImageOps.equalize(picture)


def posterize(picture: Pillow, level: float, sign: int) -> Pillow:
    """Keep four bits per colour or fewer, none at level 10."""
    return ImageOps.posterize(picture, 4 - int(level * 4 / STEPS))


def rotate(picture: Pillow, level: float, sign: int) -> Pillow:
    """Turn by whole degrees, up to 30; what comes in from beyond the border is black, here and below."""
    return picture.rotate(sign * int(level * 30 / STEPS), resample=Image.Resampling.BILINEAR)


def solarize(picture: Pillow, level: float, sign: int) -> Pillow:
    """Invert the values from a threshold upwards, all of them at level 10."""
    return ImageOps.solarize(picture, 256 - int(level * 256 / STEPS))


def shear_x(picture: Pillow, level: float, sign: int) -> Pillow:
    """Shear along the rows, by up to 0.3."""
    return _affine(picture, (1, sign * level * 0.3 / STEPS, 0, 0, 1, 0))


def shear_y(picture: Pillow, level: float, sign: int) -> Pillow:
    """Shear along the columns, by up to 0.3."""
    return _affine(picture, (1, 0, 0, sign * level * 0.3 / STEPS, 1, 0))


def translate_x(picture: Pillow, level: float, sign: int) -> Pillow:
    """Move sideways by whole pixels, up to a third of the width."""
    return _affine(picture, (1, 0, sign * int(level * picture.width / 3 / STEPS), 0, 1, 0))


def translate_y(picture: Pillow, level: float, sign: int) -> Pillow:
    """Move up or down by whole pixels, up to a third of the height."""
    return _affine(picture, (1, 0, 0, 0, 1, sign * int(level * picture.height / 3 / STEPS)))


def _affine(picture: Pillow, matrix: tuple[float, ...]) -> Pillow:
    return picture.transform(picture.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR)


OPERATIONS: tuple[Operation, ...] = (
    autocontrast, equalize, posterize, rotate, solarize, shear_x, shear_y, translate_x, translate_y
)  # fmt: skip
"""All nine, in the original's order."""
