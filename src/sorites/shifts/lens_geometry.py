"""Distortion, lateral colour and relative illumination of a traced lens, before its blur.

The parts are options of the shift ``lens_whole``. Ground-truth boxes follow green light.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sorites.core import ImageF32
from sorites.core.errors import SoritesError
from sorites.optics.develop import linear_from_srgb, to_display
from sorites.optics.projection import Places
from sorites.scenes.point_maps import RadialTable, Size
from sorites.scenes.resample import warped

# Increment when a pixel or a box changes.
VERSION = 1


@dataclass(frozen=True)
class Geometry:
    """The parts of a lens that are applied apart from its blur.

    Attributes:
        rectified: Whether the camera corrects the distortion.
        lateral_colour: Whether red and blue land beside green.
        illumination: Whether the light falls off towards the corners.
    """

    rectified: bool = True
    lateral_colour: bool = False
    illumination: bool = False

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, bool):
                raise SoritesError(f"lens_whole: expected {name} true or false, got {value!r}")

    @property
    def changes(self) -> bool:
        """Whether anything but the blur is applied."""
        return not self.rectified or self.lateral_colour or self.illumination

    def version(self, of_blur: str) -> str:
        """Return the version of a shift with these parts."""
        parts = [
            *(["distortion"] if not self.rectified else []),
            *(["lateral"] if self.lateral_colour else []),
            *(["illumination"] if self.illumination else []),
        ]
        return " ".join([of_blur, *(["geometry", str(VERSION), *parts] if parts else [])])

    def before_blur(self, image: ImageF32, places: Places, pitch_um: float) -> ImageF32:
        """Return the image with these parts, as display values; a pixel is ``pitch_um`` wide."""
        size = image.shape[:2]
        if self.lateral_colour:
            maps = [colour_map(places, colour, size, pitch_um) for colour in range(3)]
            margin = math.ceil(1000 * float(np.abs(places.lateral).max()) / pitch_um) + 2
            planes = [_warped(image[..., c : c + 1], map_, margin) for c, map_ in enumerate(maps)]
            image = np.concatenate(planes, axis=-1)
        elif not self.rectified:
            image = warped(image, green_map(places, size))
        return self._darkened(image, places) if self.illumination else image

    def _darkened(self, image: ImageF32, places: Places) -> ImageF32:
        """Return the image with the illumination of its places, in linear light."""
        height, width = image.shape[:2]
        y, x = np.mgrid[:height, :width] + 0.5
        radius = np.hypot(x - width / 2, y - height / 2) / (math.hypot(height, width) / 2)
        light = linear_from_srgb(image)
        for colour, part in enumerate(places.light):
            light[..., colour] *= np.interp(radius, places.seen, part).astype(np.float32)
        return to_display(light)


def _warped(plane: ImageF32, map_: RadialTable, margin: int) -> ImageF32:
    """Return a plane after a change, mirrored at its border by a margin, so that colours that are moved
    apart leave no coloured border.
    """
    height, width = plane.shape[:2]
    down, across = min(margin, height - 1), min(margin, width - 1)
    wide = np.pad(plane, ((down, down), (across, across), (0, 0)), mode="reflect")
    part = math.hypot(height, width) / math.hypot(*wide.shape[:2])
    wider = RadialTable(part * map_.original, part * map_.changed, (wide.shape[0], wide.shape[1]))
    return warped(wide, wider)[down : down + height, across : across + width]


def green_map(places: Places, size: Size) -> RadialTable:
    """Return the map of points from the original image to the image of green light."""
    return RadialTable(places.original, places.seen, size)


def colour_map(places: Places, colour: int, size: Size, pitch_um: float) -> RadialTable:
    """Return the map of points from the original image to that of a colour (0 red, 1 green, 2 blue).

    Lateral colour is a displacement of the kernel on the sensor. Like the kernels, it is counted in pixels
    of the width that the lens was matched to, whatever the size of the image.
    """
    half_diagonal_mm = math.hypot(*size) / 2 * pitch_um / 1000
    moved = np.maximum.accumulate(places.seen + places.lateral[colour] / half_diagonal_mm)
    return RadialTable(places.original, moved, size)
