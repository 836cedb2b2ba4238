"""Digital and geometric shifts: JPEG, pixelation, elastic deformation.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations", ICLR 2019.
"""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sorites.core import Box, ImageF32, to_float, to_uint8
from sorites.scenes.fields import Field, smooth
from sorites.scenes.moved_boxes import boxes_where
from sorites.shifts.base import add_continuous_shift, clip

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

# The quantisation steps of ITU-T T.81, table K.1.
LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)

# The quantisation steps of ITU-T T.81, table K.2.
CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8,) * 4,
)


@functools.lru_cache(maxsize=64)
def quantisation(quality: float) -> list[list[int]]:
    """Return libjpeg's tables for a quality in (0, 100], which may be fractional."""
    percent = math.floor(5000 / quality if quality < 50 else 200 - 2 * quality)
    tables = (np.array(LUMINANCE) * percent + 50) // 100, (np.array(CHROMINANCE) * percent + 50) // 100
    return [np.clip(table, 1, 255).ravel().tolist() for table in tables]


def _pillow(image: ImageF32, rng: np.random.Generator) -> PillowImage:
    from PIL import Image as pil

    return pil.fromarray(to_uint8(image))


@add_continuous_shift(
    _pillow, family="digital", unit="100 - quality", levels=(75, 82, 85, 90, 93), limit=99, stage="codec"
)
def jpeg(image: ImageF32, severity: float, image_u8: PillowImage) -> ImageF32:
    """Compress as JPEG with Pillow at quality 100 - ``severity`` (4:2:0); the levels are the published
    qualities 25, 18, 15, 10, 7.

    Below severity 1, the image of quality 99 is mixed with the original in proportion to the severity.
    """
    compressed = _compress(image_u8, 100 - max(severity, 1.0))
    return compressed if severity >= 1 else image + (compressed - image) * np.float32(severity)


def _compress(image: PillowImage, quality: float) -> ImageF32:
    from PIL import Image as pil

    file = io.BytesIO()
    image.save(file, "JPEG", qtables=quantisation(quality))
    return to_float(np.asarray(pil.frombytes("RGB", image.size, file.getvalue(), "jpeg", "RGB", "")))


# The published relative resolution of each level.
SHARES = (0.6, 0.5, 0.4, 0.3, 0.25)


@add_continuous_shift(
    _pillow, family="digital", unit="1 - c", levels=tuple(1 - share for share in SHARES), limit=1, stage="isp"
)
def pixelate(image: ImageF32, severity: float, image_u8: PillowImage) -> ImageF32:
    """Reduce the resolution to c = 1 - ``severity`` per side by box averaging, drawn as square pixels.

    The number of pixels per side is an integer at the published levels and interpolated linearly in between;
    the grid starts at the top left and is cut at the right and bottom.
    """
    from PIL import Image as pil

    height, width = image.shape[:2]
    rows, cols = _blocks(height, severity), _blocks(width, severity)
    high, wide = math.ceil(rows), math.ceil(cols)
    right, bottom = wide * width / cols, high * height / rows
    if right > width or bottom > height:
        margin = (0, math.ceil(bottom) - height), (0, math.ceil(right) - width), (0, 0)
        image_u8 = pil.fromarray(np.pad(np.asarray(image_u8), margin, mode="edge"))
    small = image_u8.resize((wide, high), pil.Resampling.BOX, box=(0, 0, right, bottom))
    return to_float(np.asarray(small.resize((width, height), pil.Resampling.NEAREST, box=(0, 0, cols, rows))))


def _blocks(side: int, severity: float) -> float:
    settings = [0.0, *(1 - share for share in SHARES), 1.0]
    counts = [side, *(max(1, int(side * share)) for share in SHARES), 1]
    return round(float(np.interp(severity, settings, counts)), 9)


# Geometric shifts.


def _displacement(image: ImageF32, rng: np.random.Generator) -> tuple[Field, Field]:
    """Draw vertical and horizontal displacements in px at severity 1: uniform noise of 0.5 % of the height,
    smoothed over 1 % of each side.
    """
    height, width = image.shape[:2]
    amplitude = np.float32(0.005 * height)
    noise = (rng.random((2, height, width), dtype=np.float32) * 2 - 1) * amplitude
    down, across = (
        smooth(field, (0.01 * height, 0.01 * width), truncate=3, mode="symmetric") for field in noise
    )
    return down, across


@add_continuous_shift(_displacement, family="geometry", unit="gain", levels=(12.5, 16.25, 21.25, 25, 30))
def elastic_transform(image: ImageF32, severity: float, field: tuple[Field, Field]) -> ImageF32:
    """Displace each pixel by a smooth random field, scaled by ``severity``; mirrored at the border."""
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


@elastic_transform.box_mover
def _stretched_boxes(
    boxes: Sequence[Box], severity: float, rng: np.random.Generator, size: tuple[int, int]
) -> Sequence[Box]:
    """Return the bounding boxes of the pixels that show a point inside each box, to whole pixels."""
    height, width = size
    down, across = _displacement(np.empty((height, width, 3), np.float32), rng)
    y = np.arange(height, dtype=np.float64)[:, None] + 0.5 + down * severity
    x = np.arange(width, dtype=np.float64) + 0.5 + across * severity
    return boxes_where(boxes, np.stack([x, y], axis=-1), size)


def _lookup(position: Field, length: int) -> tuple[NDArray[np.intp], Field]:
    """Return the pixel before each position and the distance from it; positions beyond the border are
    mirrored about its outer edge.
    """
    edge = np.float32(length - 0.5)
    folded = np.abs(position + np.float32(0.5)) - np.float32(0.5)
    folded = edge - np.abs(edge - folded)
    np.clip(folded, 0, length - 1, out=folded)
    before = folded.astype(np.intp)
    return before, folded - before.astype(np.float32)


def _mix(a: Field, b: Field, fraction: Field) -> Field:
    b -= a
    b *= fraction
    b += a
    return b
