"""Bring a picture whole to a detector's input, and its boxes back to the picture: letterbox, pad at the corner, or squash."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pil

from sorites.core import Picture

Fit = Literal["letterbox", "corner", "squash"]
Filter = Literal["nearest", "bilinear", "bicubic"]
Size = tuple[int, int]

CUBIC = -0.75
"""The free parameter of OpenCV's cubic interpolation."""


@dataclass(frozen=True)
class Placement:
    """The place of a picture in a detector's input: pixels of input per pixel of picture, and what lies left of and above it."""

    picture: Size
    """Height and width."""
    across: float
    down: float
    left: int = 0
    top: int = 0

    def back(self, boxes: NDArray[Any]) -> NDArray[np.float64]:
        """Return boxes in pixels of the input as boxes in pixels of the picture."""
        moved = np.asarray(boxes, np.float64) - (self.left, self.top, self.left, self.top)
        return moved / (self.across, self.down, self.across, self.down)


def placed(picture: Picture, size: Size, fit: Fit, fill: int, filter: Filter, antialias: bool) -> tuple[Picture, Placement]:
    """Return the whole picture inside an input of ``size`` (height, width), and its place there.

    ``letterbox`` keeps its shape and fills both sides (or top and bottom) alike, ``corner`` keeps its shape and fills right and
    below, ``squash`` scales both sides to the input. Geometry and rounding are those of Ultralytics, YOLOX and Paddle.
    """
    height, width = picture.shape[:2]
    if fit == "squash":
        return scaled(picture, size, filter, antialias), Placement((height, width), size[1] / width, size[0] / height)
    ratio = min(size[0] / height, size[1] / width)
    whole = round if fit == "letterbox" else int
    inner = (max(whole(height * ratio), 1), max(whole(width * ratio), 1))
    top, left = (round((size[i] - inner[i]) / 2 - 0.1) if fit == "letterbox" else 0 for i in (0, 1))
    ground = np.full((*size, 3), fill, np.uint8)
    ground[top : top + inner[0], left : left + inner[1]] = scaled(picture, inner, filter, antialias)
    return ground, Placement((height, width), inner[1] / width, inner[0] / height, left, top)


def scaled(picture: Picture, size: Size, filter: Filter, antialias: bool) -> Picture:
    """Return the picture at ``size`` (height, width): antialiased as Pillow does it, or as OpenCV does it, within one level."""
    if picture.shape[:2] == tuple(size):
        return picture
    if antialias or filter == "nearest":
        how = Pil.Resampling[filter.upper()]
        return np.asarray(Pil.fromarray(picture).resize((size[1], size[0]), how))
    height, width = picture.shape[:2]
    rows = _weights(height, size[0], filter) @ picture.reshape(height, -1).astype(np.float32)
    turned = np.ascontiguousarray(rows.reshape(size[0], width, 3).transpose(1, 0, 2)).reshape(width, -1)
    both = _weights(width, size[1], filter) @ turned
    np.clip(np.rint(both, out=both), 0, 255, out=both)
    return np.ascontiguousarray(both.astype(np.uint8).reshape(size[1], size[0], 3).transpose(1, 0, 2))


@functools.lru_cache(maxsize=256)
def _weights(given: int, wanted: int, filter: Filter) -> Any:
    """Return the sparse matrix (wanted x given) that interpolates a line of pixels; pixels beyond an end repeat the last one."""
    from scipy.sparse import csr_array

    centre = (np.arange(wanted) + 0.5) * (given / wanted) - 0.5
    base = np.floor(centre)
    taps = (-1, 0, 1, 2) if filter == "bicubic" else (0, 1)
    weights = np.stack([(_cubic if filter == "bicubic" else _linear)(centre - base - tap) for tap in taps], axis=1)
    columns = np.clip(base[:, None] + np.array(taps), 0, given - 1).astype(np.int64)
    rows = np.repeat(np.arange(wanted), len(taps))
    return csr_array((weights.ravel().astype(np.float32), (rows, columns.ravel())), shape=(wanted, given))


def _linear(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 - np.abs(distance)


def _cubic(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    d = np.abs(distance)
    near = ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1
    far = CUBIC * (((d - 5) * d + 8) * d - 4)
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
