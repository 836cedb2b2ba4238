"""Resize images with Pillow, and compute only the part that is kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from PIL import Image as Pillow

from sorites.core.errors import BadImage

if TYPE_CHECKING:
    from sorites.core.samples import ImageU8

Mode = Literal["center", "squash"]
Filter = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]

# Reach of each filter in pixels of the smaller image, to each side.
REACH = {"box": 0.5, "bilinear": 1.0, "hamming": 1.0, "bicubic": 2.0, "lanczos": 3.0}
# Pillow from 13.0 resizes the columns first, which rounds differently, if the height loses more than twice as
# many pixels as the width. Up to this multiple it does not.
MAX_HEIGHT_LOSS = 1.5
# The part is computed alone if it has at most this share of the resized width; two calls cost more than one.
MAX_SHARE = 0.95
# The maximum number of pixels of an image that a frame resizes.
MAX_FRAMED_PIXELS = 1 << 28
# The maximum number of pixels of a resized image. Of a thinner image, only the crop is resized.
MAX_RESIZED_PIXELS = 1 << 24


def resized_part(
    image: ImageU8, size: tuple[int, int], part: tuple[int, int, int, int], filter: Filter
) -> ImageU8:
    """Resize an image and crop it; every pixel equals that of Pillow's ``resize`` and ``crop``.

    Pillow resizes the rows first, then the columns, and rounds to 8 bits in between. Each of the two is asked
    for what the part needs: the first for the rows that the kept rows are computed from, the second for the
    kept columns.

    Args:
        image: H x W x 3, 8 bits.
        size: Width and height of the resized image.
        part: Left, top, right and bottom of the part of the resized image.
        filter: The filter of Pillow.
    """
    resample = Pillow.Resampling[filter.upper()]
    if not _pays(image, size, part, filter):
        return np.asarray(Pillow.fromarray(image).resize(size, resample).crop(part))
    height = image.shape[0]
    left, top, right, bottom = part
    first, last = _needed_rows(height, size[1], top, bottom, REACH[filter])
    rows = Pillow.fromarray(image[first:last]).resize((size[0], last - first), resample)
    # The rows are put back to where they were, because the weights depend on the height of the whole image.
    columns = rows.crop((left, -first, right, height - first))
    return np.asarray(columns.resize((right - left, size[1]), resample).crop((0, top, right - left, bottom)))


def _pays(image: ImageU8, size: tuple[int, int], part: tuple[int, int, int, int], filter: Filter) -> bool:
    """Return whether the part is computed alone: it must be small enough, and Pillow must begin with rows."""
    height, width = image.shape[:2]
    left, top, right, bottom = part
    inside = 0 <= left < right <= size[0] and 0 <= top < bottom <= size[1]
    rows_first = height <= size[1] or height - size[1] <= MAX_HEIGHT_LOSS * (width - size[0])
    return filter in REACH and inside and rows_first and right - left <= MAX_SHARE * size[0]


def _needed_rows(height: int, resized: int, top: int, bottom: int, reach: float) -> tuple[int, int]:
    """Return the range of rows of an image that the rows ``top`` to ``bottom`` - 1 are computed from."""
    scale = height / resized
    support = reach * max(scale, 1.0) + 1
    first = math.floor((top + 0.5) * scale - support)
    last = math.ceil((bottom - 0.5) * scale + support)
    return max(0, first), min(height, last)


def fit(
    image: ImageU8,
    framed: bool,
    size: tuple[int, int],
    crop_pct: float = 0.875,
    filter: Filter = "bicubic",
    mode: Mode = "center",
) -> ImageU8:
    """Return the image at ``size`` (height, width), 8 bits.

    A framed image is only resized. Otherwise the image is resized until its shorter side is ``size /
    crop_pct`` (with ``squash`` both sides, ignoring the aspect ratio) and the centre is cropped; the
    result is bit-identical to torchvision's Resize and CenterCrop on a Pillow image. An image that
    already has ``size`` is returned unchanged.
    """
    if image.shape[:2] == tuple(size):
        return image
    tall, wide = size if framed else _resized_shape(image.shape[0], image.shape[1], size, crop_pct, mode)
    top, left = round((tall - size[0]) / 2), round((wide - size[1]) / 2)
    crop = (left, top, left + size[1], top + size[0])
    if tall * wide > MAX_RESIZED_PIXELS:
        pillow_image, resampling = Pillow.fromarray(image), Pillow.Resampling[filter.upper()]
        down, across = pillow_image.height / tall, pillow_image.width / wide
        part = (crop[0] * across, crop[1] * down, crop[2] * across, crop[3] * down)
        return np.asarray(pillow_image.resize((size[1], size[0]), resampling, box=part))
    return resized_part(image, (wide, tall), crop, filter)


def _resized_shape(
    height: int, width: int, size: tuple[int, int], crop_pct: float, mode: Mode
) -> tuple[int, int]:
    """Return the height and width of the resized image before cropping."""
    tall, wide = (math.floor(side / crop_pct) for side in size)
    if mode == "squash":
        return tall, wide
    return max(tall, wide * height // width), max(wide, tall * width // height)


@dataclass(frozen=True)
class Fit:
    """``fit`` with its options; two with the same options are equal, so that models can share an input."""

    size: tuple[int, int]
    crop_pct: float = 0.875
    filter: Filter = "bicubic"
    mode: Mode = "center"

    def __call__(self, image: ImageU8, framed: bool) -> ImageU8:
        return fit(image, framed, self.size, self.crop_pct, self.filter, self.mode)


def frame_size(height: int, width: int, resize: int) -> tuple[int, int]:
    """Return width and height of an image after its shorter side was resized to ``resize``."""
    short = min(height, width)
    return resize * width // short, resize * height // short


def frame(image: ImageU8, resize: int, crop: int | None, filter: Filter) -> ImageU8:
    """Resize the shorter side of an image, then crop the centre square, rounded as in torchvision.

    Args:
        image: H x W x 3, 8 bits.
        resize: The shorter side in px.
        crop: The side of the centre square in px; None keeps all.
        filter: The filter of Pillow.

    Raises:
        BadImage: The image is too long and thin.
    """
    height, width = image.shape[:2]
    size = frame_size(height, width, resize)
    if size[0] * size[1] > MAX_FRAMED_PIXELS:
        raise BadImage(f"an image of {width} x {height} px is too long and thin for a frame of {resize}")
    if size != (width, height):
        wide, high = size if crop is None else (crop, crop)
        left, top = round((size[0] - wide) / 2), round((size[1] - high) / 2)
        return resized_part(image, size, (left, top, left + wide, top + high), filter)
    if crop is None:
        return image
    left, top = (round((side - crop) / 2) for side in size)
    return np.ascontiguousarray(image[top : top + crop, left : left + crop])
