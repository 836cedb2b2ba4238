"""Resize a picture by plain linear interpolation between its four nearest pixels, as OpenCV does by default.

Unlike Pillow's bilinear filter it does not average over the pixels in between: a picture made smaller than half keeps detail that
a filter would have smoothed, which changes what LPIPS sees.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sorites.core import Picture

Places = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]


def resized(picture: Picture, height: int, width: int) -> Picture:
    """Return the picture at a size, rounded to 8 bits.

    Pixel centres lie at halves, and beyond the border the border's pixel goes on. OpenCV computes the same in fixed point: its
    values differ by at most one.
    """
    if picture.shape[:2] == (height, width):
        return picture
    top, bottom, down = _places(picture.shape[0], height)
    left, right, across = _places(picture.shape[1], width)
    pixels, across, down = picture.astype(np.float32), across[None, :, None], down[:, None, None]
    rows = pixels[:, left] * (1 - across) + pixels[:, right] * across
    return np.rint(rows[top] * (1 - down) + rows[bottom] * down).astype(np.uint8)


def _places(size: int, wanted: int) -> Places:
    """Return the two neighbours of each wanted pixel along one axis, and how far it lies from the first to the second."""
    at = np.clip((np.arange(wanted) + 0.5) * (size / wanted) - 0.5, 0, size - 1)
    low = np.floor(at).astype(np.intp)
    return low, np.minimum(low + 1, size - 1), (at - low).astype(np.float32)
