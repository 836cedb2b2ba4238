"""Resize images with Pillow, and compute only the part that is kept."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from PIL import Image as Pillow

from sorites.core.samples import ImageU8

Filter = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]

# Reach of each filter in pixels of the smaller image, to each side.
REACH = {"box": 0.5, "bilinear": 1.0, "hamming": 1.0, "bicubic": 2.0, "lanczos": 3.0}
# Pillow from 13.0 resizes the columns first, which rounds differently, if the height loses more than twice as
# many pixels as the width. Up to this multiple it does not.
MAX_HEIGHT_LOSS = 1.5
# The part is computed alone if it has at most this share of the resized width; two calls cost more than one.
MAX_SHARE = 0.95


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
