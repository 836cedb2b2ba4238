"""A picture on a screen in a dark room, and a camera in front of it: the studio of ImageNet-ES as numbers.

The screen turns pixel values into light by its gamma and a lamp adds a veil; the camera takes it at an ISO, shutter and
aperture, or sets itself; the part that shows the picture is cut out, scaled down and kept as a JPEG.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sorites import es_grid
from sorites.core import Image
from sorites.errors import SoritesError
from sorites.optics import convolve
from sorites.optics.camera import Body, Exposure, Light, blur, blur_size
from sorites.optics.develop import develop, jpeg
from sorites.optics.metering import program
from sorites.optics.mosaic import through_mosaic
from sorites.optics.sensor import Draw, raw

SMALLEST = 16
"""Pixels a side below which a picture has nothing to photograph."""
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])


@dataclass(frozen=True)
class Studio:
    """The room, and how the picture stands in the frame; luminances in cd/m2, by lamp ("on", "off")."""

    white: Mapping[str, float]
    """The screen's white."""
    veil: Mapping[str, tuple[float, float, float]]
    """Light on the screen that is not the picture's: red, green, blue."""
    gamma: float
    span_px: int
    """Sensor pixels across the shorter side of the picture."""
    confusion_um: float
    """Circle of confusion of the focus error at f/5, on the sensor; it shrinks as the aperture closes."""
    weight: float
    """The picture's share in the meter's reading of the frame."""
    surround: Mapping[str, float]
    """Luminance of the rest of the frame."""
    wander: float
    """Shot-to-shot spread of the meter, rms stops."""
    widest: float
    """The lens's largest aperture at the focal length used."""
    quality: int
    """JPEG quality of the kept picture."""


ES_STUDIO = Studio(
    white={"on": 375.0, "off": 330.0},
    veil={"on": (1.5, 1.25, 0.9), "off": (0.38, 0.35, 0.32)},
    gamma=2.4,
    span_px=550,
    confusion_um=0.0,
    weight=0.026,
    surround={"on": 0.62, "off": 0.03},
    wander=0.1,
    widest=5.0,
    quality=92,
)
"""The studio of ImageNet-ES as ``docs/camera.md`` says it was fitted."""


@dataclass(frozen=True)
class Scene:
    """One picture in front of the camera: what all its shots share."""

    studio: Studio
    body: Body
    mosaic: bool
    light: Light
    """What the screen shows, white = 1."""
    wander: tuple[float, ...]
    rng: np.random.Generator

    @functools.cached_property
    def draw(self) -> Draw:
        height, width = self.light.shape[:2]
        return Draw.of((2 * height, 2 * width, 3) if self.mosaic else (height, width, 3), self.rng)

    @functools.cached_property
    def area(self) -> float:
        """Sensor pixels behind one pixel of the picture; a picture larger than its patch of the sensor has one each."""
        return max(1.0, float(self.studio.span_px / min(self.light.shape[:2])) ** 2)

    def metered(self, lamp: str, shot: int) -> Exposure:
        """Evaluative metering: the picture, and the dark rest of the frame."""
        studio = self.studio
        picture = self.light.reshape(-1, 3).mean(0, dtype=np.float64) * studio.white[lamp] + studio.veil[lamp]
        frame = studio.weight * float(picture @ LUMINANCE) + (1 - studio.weight) * studio.surround[lamp]
        return program(frame * 2 ** self.wander[shot - 1], self.body, studio.widest)

    def exposure(self, params: Mapping[str, Any]) -> Exposure:
        if params["mode"] == "auto":
            return self.metered(params["light"], params["shot"])
        return self.body.check(Exposure(params["iso"], params["shutter"], params["aperture"]))

    def through(self, apertures: Sequence[float]) -> dict[float, Light]:
        """The light as the lens blurs it at each aperture: one forward transform, and kernels of one size whatever is asked."""
        pitch = self.body.pixel_um * math.sqrt(self.area)
        blurs = {f_number: self.studio.confusion_um * 5 / f_number for f_number in (*apertures, *self.body.aperture)}
        size = max(blur_size(f_number, pitch, blurs[f_number]) for f_number in self.body.aperture)
        kernels = [blur(f_number, pitch, blurs[f_number], size) for f_number in apertures]
        blurred = convolve.sweep(self.light, kernels, "reflect")
        return {f_number: np.maximum(light, 0) for f_number, light in zip(apertures, blurred, strict=True)}

    def shoot(self, lamp: str, exposure: Exposure, light: Light, shot: int = 0) -> Image:
        """One picture, 0..1; ``light`` is what ``through`` gave for the aperture."""
        collected = self.body.electrons(exposure) / np.array(self.body.balance)
        row = light.shape[1]  # whole rows at a time: a loop over three channels costs more than the sums
        electrons = light.reshape(len(light), -1) * np.tile(self.studio.white[lamp] * collected, row).astype(np.float32)
        electrons += np.tile(np.array(self.studio.veil[lamp]) * collected, row).astype(np.float32)
        area = self.area * self.body.averaged(exposure.iso)
        take = through_mosaic if self.mosaic else raw
        numbers = take(electrons.reshape(light.shape), exposure.iso, self.draw.again(shot), self.body, area)
        return jpeg(develop(numbers, self.body, exposure.iso, area), self.studio.quality)


def scene(image: Image, rng: np.random.Generator, studio: Studio, body: Body, mosaic: bool = False) -> Scene:
    """Put a picture on the screen."""
    height, width = image.shape[:2]
    if min(height, width) < SMALLEST:
        raise SoritesError(f"a picture of {width}x{height} px is too small for the camera: wanted {SMALLEST} px a side or more")
    wander = tuple((rng.standard_normal(es_grid.SHOTS) * studio.wander).tolist())
    return Scene(studio, body, mosaic, image ** np.float32(studio.gamma), wander, rng)
