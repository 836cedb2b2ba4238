"""Maps of points between an image and its geometrically changed copy, in both directions.

Coordinates are x (right) and y (down) in px from the top left corner of the image, so that pixel (0, 0)
covers 0..1 in both directions and the centre of an image of width w is at w / 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

# N x 2 (or H x W x 2) points.
Points = NDArray[np.float64]
# Height and width of an image in px.
Size = tuple[int, int]
Corners = tuple[float, float, float, float]

# Steps of Newton's method for a cubic equation, far more than double precision needs.
NEWTON_STEPS = 60


class PointMap(Protocol):
    """Moves points of the original image to where the changed image shows them, and back."""

    def forward(self, points: Points) -> Points:
        """Return where points of the original image are in the changed image."""

    def inverse(self, points: Points) -> Points:
        """Return which points of the original image the changed image shows at ``points``."""

    def outline(self, corners: Corners) -> Points:
        """Return points on the outline of a box (x0, y0, x1, y1), in order around it.

        The moved points have the same bounding box as the whole moved outline.
        """


def rectangle(corners: Corners) -> Points:
    """Return the four corners of a box in order around it."""
    x0, y0, x1, y1 = corners
    return np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], np.float64)


@dataclass(frozen=True, eq=False)
class Homography:
    """A projective map: affine maps, and the view of a tilted plane.

    Attributes:
        matrix: 3 x 3, from original to changed homogeneous coordinates.
    """

    matrix: NDArray[np.float64]

    def forward(self, points: Points) -> Points:
        return _project(self.matrix, points)

    def inverse(self, points: Points) -> Points:
        return _project(np.asarray(np.linalg.inv(self.matrix), np.float64), points)

    def outline(self, corners: Corners) -> Points:
        return rectangle(corners)

    @classmethod
    def about_centre(cls, matrix: NDArray[np.float64], size: Size) -> Homography:
        """Return a map whose 2 x 2 or 3 x 3 matrix is relative to the centre of an image."""
        whole = np.eye(3)
        whole[: matrix.shape[0], : matrix.shape[1]] = matrix
        to_centre = _translation(-size[1] / 2, -size[0] / 2)
        return cls(_translation(size[1] / 2, size[0] / 2) @ whole @ to_centre)


def _translation(x: float, y: float) -> NDArray[np.float64]:
    return np.array([[1.0, 0, x], [0, 1, y], [0, 0, 1]])


def _project(matrix: NDArray[np.float64], points: Points) -> Points:
    x, y = points[..., 0], points[..., 1]
    rows = [row[0] * x + row[1] * y + row[2] for row in matrix.tolist()]
    return np.stack([rows[0] / rows[2], rows[1] / rows[2]], axis=-1)


def rotation(degrees: float, size: Size) -> Homography:
    """Return a rotation about the centre; positive angles turn clockwise on the screen."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return Homography.about_centre(np.array([[cos, -sin], [sin, cos]]), size)


def scaling(factor: float, size: Size) -> Homography:
    """Return a scaling about the centre."""
    return Homography.about_centre(np.diag([factor, factor]), size)


def translation(right: float, down: float) -> Homography:
    """Return a translation in px."""
    return Homography(_translation(right, down))


def shearing(degrees: float, size: Size) -> Homography:
    """Return a horizontal shear: upright lines through the centre lean by an angle."""
    return Homography.about_centre(np.array([[1.0, math.tan(math.radians(degrees))], [0, 1]]), size)


def tilting(degrees: float, direction: float, size: Size) -> Homography:
    """Return the view of the image as a plane that is turned out of the image plane about its centre.

    Args:
        degrees: The angle between the planes.
        direction: The direction in the image, in radians, in which the plane recedes.
        size: The size of the image. The focal length is the longer side, a field of view of 53 degrees.
    """
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    x, y = math.cos(direction), math.sin(direction)
    along = np.array([[x, y], [-y, x]])
    turned = along.T @ np.diag([cos, 1.0]) @ along
    matrix = np.eye(3)
    matrix[:2, :2] = turned
    matrix[2, :2] = np.array([x, y]) * sin / max(size)
    return Homography.about_centre(matrix, size)


def cropping(left: float, top: float, share: float, size: Size) -> Homography:
    """Return the enlargement of a window to the whole image.

    Args:
        left: The left side of the window as a share of the free width.
        top: The upper side of the window as a share of the free height.
        share: The width and height of the window relative to those of the image.
        size: The size of the image.
    """
    free = 1 - share
    corner = _translation(-left * free * size[1], -top * free * size[0])
    return Homography(np.diag([1 / share, 1 / share, 1.0]) @ corner)


@dataclass(frozen=True)
class Radial:
    """Distortion that grows with the third power of the distance from the centre.

    With r relative to the half diagonal, pincushion distortion moves a point from r to r (1 + strength r²);
    barrel distortion is its inverse.

    Attributes:
        strength: The displacement of the corners relative to the half diagonal.
        barrel: Whether points move inwards.
        size: The size of the image.
    """

    strength: float
    barrel: bool
    size: Size

    def forward(self, points: Points) -> Points:
        return self._moved(points, outwards=not self.barrel)

    def inverse(self, points: Points) -> Points:
        return self._moved(points, outwards=self.barrel)

    def _moved(self, points: Points, outwards: bool) -> Points:
        centre = np.array([self.size[1], self.size[0]], np.float64) / 2
        offset = (points - centre) / math.hypot(*centre)
        square = np.sum(offset * offset, axis=-1, keepdims=True)
        factor = 1 + self.strength * square if outwards else self._inwards(square)
        return np.asarray(centre + offset * factor * math.hypot(*centre))

    def _inwards(self, square: Points) -> Points:
        """Return the factor f with f (1 + strength f² r²) = 1, by Newton's method from above."""
        product = self.strength * square
        factor = np.ones_like(square)
        for _ in range(NEWTON_STEPS):
            step = (factor + product * factor**3 - 1) / (1 + 3 * product * factor**2)
            factor -= step
            if np.abs(step).max(initial=0.0) < 1e-15:
                break
        return factor

    def outline(self, corners: Corners) -> Points:
        """Return the corners and the points of the sides that are nearest to the centre.

        Along a side, the coordinate across it depends on the distance from the centre only and is extreme
        there or at a corner; the coordinate along it grows steadily. Further points make the area exact to
        one part in a thousand.
        """
        return _radial_outline(corners, self.size, ())


def _radial_outline(corners: Corners, size: Size, radii: Sequence[float]) -> Points:
    """Return the corners of a box, points along its sides, those nearest to the centre of the image, and
    those at ``radii`` from it.
    """
    x0, y0, x1, y1 = corners
    x, y = size[1] / 2, size[0] / 2

    def along(low: float, high: float, centre: float, offsets: Sequence[float]) -> NDArray[np.float64]:
        at = [math.sqrt(r * r - d * d) for r in radii for d in offsets if r > abs(d)]
        places = [*np.linspace(low, high, 17), centre, *(centre + a for a in at), *(centre - a for a in at)]
        return np.unique(np.clip(places, low, high))

    across = along(x0, x1, x, (y0 - y, y1 - y))
    down = along(y0, y1, y, (x0 - x, x1 - x))
    sides = [
        np.column_stack([across, np.full_like(across, y0)])[:-1],
        np.column_stack([np.full_like(down, x1), down])[:-1],
        np.column_stack([across, np.full_like(across, y1)])[:0:-1],
        np.column_stack([np.full_like(down, x0), down])[:0:-1],
    ]
    outline = np.concatenate(sides)
    return outline if len(outline) else rectangle(corners)  # a box without extent is a point


@dataclass(frozen=True, eq=False)
class RadialTable:
    """A change of distances from the centre that is known at many of them, such as that of a traced lens.

    Between two of them it is a straight line, and beyond the last one distances stay in proportion, so that
    both directions are exact inverses.

    Attributes:
        original: Distances in the original image relative to the half diagonal, rising from 0.
        changed: The same distances in the changed image, rising from 0.
        size: The size of the image.
    """

    original: NDArray[np.float64]
    changed: NDArray[np.float64]
    size: Size

    def forward(self, points: Points) -> Points:
        return self._moved(points, self.original, self.changed)

    def inverse(self, points: Points) -> Points:
        return self._moved(points, self.changed, self.original)

    def _moved(self, points: Points, before: NDArray[np.float64], after: NDArray[np.float64]) -> Points:
        centre = np.array([self.size[1], self.size[0]], np.float64) / 2
        offset = (points - centre) / math.hypot(*centre)
        radius = np.hypot(offset[..., 0], offset[..., 1])
        beyond = radius * (after[-1] / before[-1])
        moved = np.where(radius > before[-1], beyond, np.interp(radius, before, after))
        middle = after[1] / before[1]
        factor = np.where(radius > 0, moved / np.where(radius > 0, radius, 1), middle)
        return np.asarray(centre + offset * factor[..., None] * math.hypot(*centre))

    def outline(self, corners: Corners) -> Points:
        """Return the points of ``Radial.outline``, and those at which the change of scale turns around."""
        ratio = self.changed[1:] / self.original[1:]
        turns = np.flatnonzero(np.diff(np.sign(np.diff(ratio))) != 0) + 2
        half = math.hypot(*self.size) / 2
        return _radial_outline(corners, self.size, (self.original[turns] * half).tolist())
