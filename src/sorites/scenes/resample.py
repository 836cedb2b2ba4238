"""Resample images: warps by any map of points, and enlarging or reducing along the axes.

Beyond its border an image is mid-grey, which adds no object. Warps interpolate with a cubic kernel (a =
-0.75, as in OpenCV and torch) and read from smaller copies of the image where it is reduced, so that fine
texture does not alias. Enlarging and reducing uses the cubic kernel of Pillow (a = -0.5), widened where the
image is reduced. All sums have a fixed order, so results do not depend on threads.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sorites.core.samples import ImageF32
from sorites.scenes.point_maps import PointMap

# What is beyond the border of an image.
GREY = np.float32(0.5)
# Pixels of grey around an image, so that the four taps of the kernel never leave the array.
MARGIN = 4
# The free parameter of the interpolation kernel.
SHARPNESS = -0.75
# Below this logarithm of the reduction, smaller copies of the image are not needed.
LEAST_REDUCTION = 1e-6
# Smaller copies of an image: at most one sixteen-thousandth of its sides.
MOST_HALVINGS = 14

Grid = NDArray[np.float64]


def warped(image: ImageF32, map_: PointMap) -> ImageF32:
    """Return the image after a geometric change, clipped to 0..1.

    Args:
        image: H x W x C.
        map_: The change.
    """
    height, width = image.shape[:2]
    y, x = np.mgrid[:height, :width].astype(np.float64)
    places = map_.inverse(np.stack([x + 0.5, y + 0.5], axis=-1))
    places = np.nan_to_num(places, nan=-1e9, posinf=1e9, neginf=-1e9)
    reduction = _reduction(places)
    if float(reduction.max(initial=0.0)) < LEAST_REDUCTION:
        return _clip(interpolated(image, places[..., 0], places[..., 1]))
    return _clip(_from_pyramid(image, places, reduction))


def _clip(image: ImageF32) -> ImageF32:
    return np.clip(image, 0, 1, out=image)


def _reduction(places: Grid) -> Grid:
    """Return the logarithm (base 2) of how much each pixel is reduced: the root of the area that it covers in
    the original image. It is 0 where the image is enlarged.
    """
    height, width = places.shape[:2]
    if min(height, width) < 2:
        return np.zeros((height, width))
    (xy, xx), (yy, yx) = (np.gradient(places[..., i]) for i in (0, 1))
    return np.asarray(np.clip(0.5 * np.log2(np.maximum(np.abs(xx * yy - xy * yx), 1.0)), 0, MOST_HALVINGS))


def _from_pyramid(image: ImageF32, places: Grid, reduction: Grid) -> ImageF32:
    """Mix two copies of the image, each half as large as the one before, so that the mix has the reduction of
    each pixel.
    """
    out = np.zeros((*places.shape[:2], image.shape[2]), np.float32)
    level = image
    for halvings in range(int(np.ceil(reduction.max())) + 1):
        weight = np.clip(1 - np.abs(reduction - halvings), 0, 1).astype(np.float32)
        used = weight > 0
        if used.any():
            scale = 0.5**halvings
            values = interpolated(level, places[used][:, 0] * scale, places[used][:, 1] * scale)
            out[used] += values * weight[used][:, None]
        level = halved(level)
    return out


def interpolated(image: ImageF32, x: Grid, y: Grid) -> ImageF32:
    """Return the image at points, in px from its top left corner, by cubic interpolation."""
    height, width, channels = image.shape
    padded = np.pad(image, ((MARGIN, MARGIN), (MARGIN, MARGIN), (0, 0)), constant_values=GREY)
    flat, stride = padded.reshape(-1, channels), width + 2 * MARGIN
    col, across = _split(x, width)
    row, down = _split(y, height)
    first = (row - 1 + MARGIN) * stride + (col - 1 + MARGIN)
    out = np.zeros((*x.shape, channels), np.float32)
    for i in range(4):
        line = np.zeros_like(out)
        for j in range(4):
            line += np.take(flat, first + (i * stride + j), axis=0) * across[j][..., None]
        out += line * down[i][..., None]
    return out


def _split(position: Grid, length: int) -> tuple[NDArray[np.int64], list[NDArray[np.float32]]]:
    """Return the pixel before each position, and the weights of the four pixels around it."""
    index = np.clip(position - 0.5, -2.0, length + 1.0)
    before = np.floor(index)
    t = index - before
    a = SHARPNESS
    near = [1 - (a + 3) * t**2 + (a + 2) * t**3, 1 - (a + 3) * (1 - t) ** 2 + (a + 2) * (1 - t) ** 3]
    far = [a * (t - 2 * t**2 + t**3), a * ((1 - t) - 2 * (1 - t) ** 2 + (1 - t) ** 3)]
    return before.astype(np.int64), [w.astype(np.float32) for w in (far[0], near[0], near[1], far[1])]


def halved(image: ImageF32) -> ImageF32:
    """Return the image at half its size; an odd last row or column is completed with grey."""
    height, width = image.shape[:2]
    return resized(image, (-(-height // 2), -(-width // 2)), (2.0, 2.0), (0.0, 0.0))


def resized(
    image: ImageF32,
    size: tuple[int, int],
    step: tuple[float, float],
    start: tuple[float, float],
    border: bool = True,
) -> ImageF32:
    """Return an image whose pixels are ``step`` px of the original apart, anti-aliased.

    Args:
        image: H x W x 3.
        size: Height and width of the result.
        step: The height and width of a pixel of the result, in px of the original.
        start: Top and left of the result in the original.
        border: Whether the original is surrounded by grey; without it, the kernel is cut at the border.
    """
    out = image
    for axis in (0, 1):
        weights, beyond = _weights(image.shape[axis], size[axis], step[axis], start[axis], border)
        lines = np.ascontiguousarray(np.moveaxis(out, axis, 0))
        product = weights @ lines.reshape(lines.shape[0], -1)
        product += (beyond * GREY)[:, None]
        out = np.moveaxis(product.reshape(size[axis], *lines.shape[1:]), 0, axis)
    return np.ascontiguousarray(out, np.float32)


def _weights(
    length: int, count: int, step: float, start: float, border: bool
) -> tuple[csr_array, NDArray[np.float32]]:
    """Return the weights of the pixels of a line for each result as a sparse matrix, and that of grey."""
    wide = max(step, 1.0)
    middle = start + (np.arange(count) + 0.5) * step
    reach = int(np.ceil(2 * wide)) + 1
    first = np.floor(middle).astype(np.int64) - reach
    pixel = first[:, None] + np.arange(2 * reach + 1)
    taps = _cubic((pixel + 0.5 - middle[:, None]) / wide)
    inside = (pixel >= 0) & (pixel < length)
    total = taps.sum(axis=1) if border else np.where(inside, taps, 0).sum(axis=1)
    taps /= np.where(total == 0, 1, total)[:, None]
    kept = np.where(inside, taps, 0)
    rows = np.broadcast_to(np.arange(count)[:, None], pixel.shape)[inside]
    matrix = csr_array((kept[inside].astype(np.float32), (rows, pixel[inside])), shape=(count, length))
    return matrix, (1 - kept.sum(axis=1)).astype(np.float32) if border else np.zeros(count, np.float32)


def _cubic(x: Grid) -> Grid:
    """Return the cubic kernel with a = -0.5 (Keys 1981)."""
    x = np.abs(x)
    near = 1 - 2.5 * x**2 + 1.5 * x**3
    far = 2 - 4 * x + 2.5 * x**2 - 0.5 * x**3
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))
