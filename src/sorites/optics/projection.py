"""Where a lens puts the points of a scene, by colour, and how much light it sends there.

The original image is taken as rectilinear: a point that is seen at an angle A off the axis is at a distance
from the centre that is proportional to tan A. A lens puts it at its own image height instead (distortion), at
another one for each colour (lateral colour), and with less light towards the corners (relative illumination).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from sorites.core.errors import SoritesError

Array = NDArray[np.float64]
# The colour whose image heights are the reference: green, at the line d.
GREEN = 1
# Points of a table from the axis to beyond the corner.
POINTS = 4001
# How far a table goes beyond the corner.
BEYOND = 1.05
# Scenes wider than this half field have no rectilinear image.
MAX_DEG = 89.0


@dataclass(frozen=True, eq=False)
class Places:
    """Distances from the centre of an image, in half diagonals, from the axis outward.

    Attributes:
        fields: Fractions of the half field of view of the lens.
        original: Distances in the original image.
        seen: Distances of green light in the image behind the lens.
        lateral: How much further out than green each colour lands on the sensor, in mm (3 x N).
        light: The illumination of the three colours relative to the axis (3 x N).
        distortion: The displacement of the corner by the lens, relative to its distance from the centre.
    """

    fields: Array
    original: Array
    seen: Array
    lateral: Array
    light: Array
    distortion: float


@dataclass(frozen=True, eq=False)
class Projection:
    """The traced image heights and illumination of a lens.

    Attributes:
        angles: Angles off the axis in degrees, rising from 0 (K).
        heights: The distance of red, green and blue light from the axis, in mm (3 x K).
        illumination: The illumination of the sensor at these angles relative to the axis (3 x K).
    """

    angles: Array
    heights: Array
    illumination: Array

    def places(self, half_field_deg: float, corner: float, rectified: bool) -> Places:
        """Return where an image shows each angle.

        Behind the lens, green light at the corner comes from ``corner`` of the half field. The scale is kept
        in the middle of the image, as lens distortion is defined. In a rectified image the distortion is
        corrected: green light is where it was.

        Args:
            half_field_deg: The half field of view of the lens.
            corner: The position of the corner relative to the half field.
            rectified: Whether the distortion is corrected.

        Raises:
            SoritesError: The corner is 89 degrees or more off the axis.
        """
        edge = corner * half_field_deg
        if not 0 < edge < MAX_DEG:
            raise SoritesError(
                f"expected corners less than {MAX_DEG:g} degrees off the axis, got {edge:.1f}; use a smaller"
                f" corner than {corner:g}"
            )
        splines = [_odd_spline(np.radians(self.angles), row) for row in self.heights]
        height = _extended(splines[GREEN], np.radians([self.angles[-1], edge]))[1]
        scale = float(splines[GREEN](0.0, 1))
        at_corner = scale * math.tan(math.radians(edge))
        widest = BEYOND * (at_corner if rectified else max(height, at_corner))
        angles = np.linspace(0.0, min(math.atan(widest / scale), math.radians(MAX_DEG + 0.5)), POINTS)
        last = math.radians(float(self.angles[-1]))
        heights = np.stack([_extended(spline, np.append(last, angles))[1:] for spline in splines])
        flat = scale * np.tan(angles)
        if not (np.diff(heights[GREEN]) > 0).all():
            raise SoritesError("expected image heights of a lens that rise with the angle")
        light = [np.interp(np.degrees(angles), self.angles, row) for row in self.illumination]
        return Places(
            np.degrees(angles) / half_field_deg,
            flat / (at_corner if rectified else height),
            flat / at_corner if rectified else heights[GREEN] / height,
            heights - heights[GREEN],
            np.stack(light),
            height / at_corner - 1,
        )


def _odd_spline(angles: Array, heights: Array) -> CubicSpline:
    """Return a cubic spline through the points and their mirror images."""
    return CubicSpline(
        np.concatenate([-angles[:0:-1], angles]), np.concatenate([-heights[:0:-1], heights]), axis=0
    )


def _extended(spline: CubicSpline, angles: Array) -> Array:
    """Return the values of a spline at angles; beyond the first of them, which is its last traced one, it
    continues as a straight line.
    """
    last = angles[0]
    inside = np.minimum(angles, last)
    return np.asarray(spline(inside) + (angles - inside) * spline(last, 1), np.float64)


def relative_illumination(angles: Array, heights: Array, beams: Array) -> Array:
    """Return the illumination of the sensor relative to the axis, for a scene of even radiance.

    A plane wave brings as much light as its cross-section that passes the lens. The light of a solid angle
    sin A dA dphi lands on the area h dh dphi of the sensor.

    Args:
        angles: Angles off the axis in degrees, rising from 0.
        heights: Distances from the axis in mm.
        beams: The cross-sections of the beams that reach the sensor.
    """
    radians = np.radians(angles)
    spline = _odd_spline(radians, heights)
    slope = np.asarray(spline(radians, 1), np.float64)
    density = np.full(len(angles), 1 / slope[0] ** 2)
    density[1:] = np.sin(radians[1:]) / (heights[1:] * slope[1:])
    return np.asarray(beams / beams[0] * density / density[0], np.float64)
