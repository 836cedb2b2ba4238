"""Ground-truth boxes after a geometric change or an occlusion.

The rule, for both: a box stays as long as at least a quarter of it is visible, that is, inside the image and
not covered. A box of which less is visible becomes a crowd region: metrics neither count it as missed nor
count a detection of it as wrong. A box that has left the image has no area. No box is removed, so that an
object keeps its index at every severity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sorites.core.samples import Box
from sorites.scenes.point_maps import Corners, PointMap, Points, Size

# The share of a box that must be visible for its object to count.
LEAST_VISIBLE = 0.25


def boxes_after_map(boxes: Sequence[Box], map_: PointMap, size: Size) -> tuple[Box, ...]:
    """Return the boxes of an image after a geometric change.

    A box becomes the bounding box of its moved outline, clipped to the image. The area of its segmentation
    changes with that of the visible part of the outline.

    Args:
        boxes: The boxes of the original image.
        map_: The change.
        size: Height and width of the image.
    """
    return tuple(_after_map(box, map_, size) for box in boxes)


def _after_map(box: Box, map_: PointMap, size: Size) -> Box:
    moved = map_.forward(map_.outline(box.xyxy))
    whole, before = polygon_area(moved), _rectangle_area(box.xyxy)
    visible = polygon_area(clipped_polygon(moved, size))
    corners = clipped((*moved.min(axis=0).tolist(), *moved.max(axis=0).tolist()), size)
    area = None if box.area is None else box.area * (visible / before if before > 0 else 0.0)
    share = visible / whole if whole > 0 else float(_rectangle_area(corners) > 0)
    return replace(box, xyxy=corners, area=area, crowd=box.crowd or share < LEAST_VISIBLE)


def boxes_behind(boxes: Sequence[Box], hidden: NDArray[np.floating]) -> tuple[Box, ...]:
    """Return the boxes of an image after an occlusion; they stay in place.

    Args:
        boxes: The boxes.
        hidden: H x W, how much of each pixel is covered, from 0 to 1.
    """
    sums = np.pad(np.cumsum(np.cumsum(hidden, axis=0, dtype=np.float64), axis=1), ((1, 0), (1, 0)))
    return tuple(_behind(box, sums) for box in boxes)


def _behind(box: Box, sums: NDArray[np.float64]) -> Box:
    corners = clipped(box.xyxy, (sums.shape[0] - 1, sums.shape[1] - 1))
    area = _rectangle_area(corners)
    visible = 1 - _sum_inside(sums, corners) / area if area > 0 else 0.0
    kept = None if box.area is None else box.area * visible
    return replace(box, area=kept, crowd=box.crowd or visible < LEAST_VISIBLE)


def _sum_inside(sums: NDArray[np.float64], corners: Corners) -> float:
    """Return the integral over a rectangle; pixels that are partly inside count in part."""
    x0, y0, x1, y1 = corners

    def up_to(x: float, y: float) -> float:
        col, row = min(int(x), sums.shape[1] - 2), min(int(y), sums.shape[0] - 2)
        dx, dy = x - col, y - row
        upper = sums[row, col] * (1 - dx) + sums[row, col + 1] * dx
        lower = sums[row + 1, col] * (1 - dx) + sums[row + 1, col + 1] * dx
        return float(upper * (1 - dy) + lower * dy)

    return up_to(x1, y1) - up_to(x0, y1) - up_to(x1, y0) + up_to(x0, y0)


def boxes_where(boxes: Sequence[Box], origin: Points, size: Size) -> tuple[Box, ...]:
    """Return the boxes after a deformation that is known from changed to original pixels only.

    A box becomes the bounding box of the pixels that show a point inside it, to whole pixels.

    Args:
        boxes: The boxes of the original image.
        origin: H x W x 2, the original point that each pixel of the changed image shows.
        size: Height and width of the image.
    """
    return tuple(_where(box, origin, size) for box in boxes)


def _where(box: Box, origin: Points, size: Size) -> Box:
    x0, y0, x1, y1 = box.xyxy
    inside = np.logical_and.reduce(
        [origin[..., 0] >= x0, origin[..., 0] < x1, origin[..., 1] >= y0, origin[..., 1] < y1]
    )
    rows, cols = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    if not len(rows):
        x, y = (
            min(max((low + high) / 2, 0.0), float(end))
            for low, high, end in ((x0, x1, size[1]), (y0, y1, size[0]))
        )
        return replace(box, xyxy=(x, y, x, y), area=None if box.area is None else 0.0, crowd=True)
    corners = (float(cols[0]), float(rows[0]), float(cols[-1] + 1), float(rows[-1] + 1))
    before = _rectangle_area(clipped(box.xyxy, size))
    share = float(inside.sum()) / before if before > 0 else 1.0
    area = None if box.area is None else box.area * share
    return replace(box, xyxy=corners, area=area, crowd=box.crowd or share < LEAST_VISIBLE)


def clipped(corners: Corners, size: Size) -> Corners:
    """Return a box clipped to an image."""
    x0, y0, x1, y1 = corners
    height, width = map(float, size)
    return (
        min(max(x0, 0.0), width),
        min(max(y0, 0.0), height),
        min(max(x1, 0.0), width),
        min(max(y1, 0.0), height),
    )


def _rectangle_area(corners: Corners) -> float:
    return max(corners[2] - corners[0], 0.0) * max(corners[3] - corners[1], 0.0)


def polygon_area(points: Points) -> float:
    """Return the area of a polygon, whatever its orientation."""
    if len(points) < 3:
        return 0.0
    x, y = points[:, 0] - points[0, 0], points[:, 1] - points[0, 1]
    return abs(float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)))) / 2


def clipped_polygon(points: Points, size: Size) -> Points:
    """Return the part of a polygon inside an image (Sutherland and Hodgman 1974)."""
    for axis, bound, sign in ((0, 0.0, 1), (0, size[1], -1), (1, 0.0, 1), (1, size[0], -1)):
        if not len(points):
            break
        depth = sign * (points[:, axis] - bound)
        points = _clipped_at(points, depth)
    return points


def _clipped_at(points: Points, depth: NDArray[np.float64]) -> Points:
    """Return the part of a polygon where ``depth``, given at its corners, is not negative."""
    kept = []
    for i in range(len(points)):
        here, last = depth[i], depth[i - 1]
        if (here >= 0) != (last >= 0):
            kept.append(points[i - 1] + (points[i] - points[i - 1]) * (last / (last - here)))
        if here >= 0:
            kept.append(points[i])
    return np.array(kept, np.float64).reshape(-1, 2)
