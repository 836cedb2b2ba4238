"""A picture on a screen in a dark room, and a camera in front of it: the studio of ImageNet-ES as numbers.

The screen turns pixel values into light by its gamma, and a lamp adds a veil of light. The camera photographs the screen at a
given ISO, shutter and aperture, or chooses them itself. The part that shows the picture is cut out, scaled down and kept as a
JPEG.
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
"""The fewest pixels per side that a picture must have to be photographed."""
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
"""The weights of linear red, green and blue in luminance (ITU-R BT.709)."""


@dataclass(frozen=True)
class Studio:
    """The room, and how the picture stands in the frame. Luminances are in cd/m2, per state of the lamp ("on", "off")."""

    white: Mapping[str, float]
    """The luminance of the screen's white."""
    veil: Mapping[str, tuple[float, float, float]]
    """The light on the screen that is not the picture's: red, green, blue."""
    gamma: float
    span_px: int
    """The sensor pixels across the shorter side of the picture."""
    confusion_um: float
    """The circle of confusion of the focus error at f/5, on the sensor; it shrinks as the aperture closes."""
    weight: float
    """The picture's share in the meter's reading of the frame."""
    surround: Mapping[str, float]
    """The luminance of the rest of the frame."""
    wander: float
    """The spread of the meter from shot to shot, in stops (rms)."""
    widest: float
    """The lens's largest aperture at the focal length used."""
    quality: int
    """The JPEG quality of the kept picture."""


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
"""The studio of ImageNet-ES; ``docs/camera.md`` says how its numbers were fitted."""


@dataclass(frozen=True)
class StudioScene:
    """One picture in front of the camera, with all that its shots share."""

    studio: Studio
    body: Body
    mosaic: bool
    light: Light
    """The light that the screen shows, white = 1."""
    wander: tuple[float, ...]
    """The error of the meter at each automatic shot, in stops."""
    rng: np.random.Generator

    @functools.cached_property
    def draw(self) -> Draw:
        """The sensor's random draw, shared by all shots."""
        height, width = self.light.shape[:2]
        return Draw.of((2 * height, 2 * width, 3) if self.mosaic else (height, width, 3), self.rng)

    @functools.cached_property
    def area(self) -> float:
        """The sensor pixels behind one pixel of the picture; at least one, however large the picture."""
        return max(1.0, float(self.studio.span_px / min(self.light.shape[:2])) ** 2)

    def metered(self, lamp: str, shot: int) -> Exposure:
        """Return the exposure that evaluative metering chooses, from the picture and the dark rest of the frame."""
        studio = self.studio
        picture = self.light.reshape(-1, 3).mean(0, dtype=np.float64) * studio.white[lamp] + studio.veil[lamp]
        frame = studio.weight * float(picture @ LUMINANCE) + (1 - studio.weight) * studio.surround[lamp]
        return program(frame * 2 ** self.wander[shot - 1], self.body, studio.widest)

    def exposure(self, params: Mapping[str, Any]) -> Exposure:
        """Return the exposure of a setting: the one it names, or the metered one in the mode "auto"."""
        if params["mode"] == "auto":
            return self.metered(params["light"], params["shot"])
        return self.body.check(Exposure(params["iso"], params["shutter"], params["aperture"]))

    def blurred(self, apertures: Sequence[float]) -> dict[float, Light]:
        """Return the light as the lens blurs it at each aperture.

        There is one forward transform for all, and the kernels have one size whichever apertures are asked for.
        """
        pitch = self.body.pixel_um * math.sqrt(self.area)
        confusion_um = {f_number: self.studio.confusion_um * 5 / f_number for f_number in (*apertures, *self.body.aperture)}
        size = max(blur_size(f_number, pitch, confusion_um[f_number]) for f_number in self.body.aperture)
        kernels = [blur(f_number, pitch, confusion_um[f_number], size) for f_number in apertures]
        lights = convolve.sweep(self.light, kernels, "reflect")
        return {f_number: np.maximum(light, 0) for f_number, light in zip(apertures, lights, strict=True)}

    def shoot(self, lamp: str, exposure: Exposure, light: Light, shot: int = 0) -> Image:
        """Take one picture, 0..1; ``light`` is what ``blurred`` gave for the aperture."""
        collected = self.body.electrons(exposure) / np.array(self.body.balance)
        row = light.shape[1]  # whole rows at a time: a loop over three channels costs more than the sums
        electrons = light.reshape(len(light), -1) * np.tile(self.studio.white[lamp] * collected, row).astype(np.float32)
        electrons += np.tile(np.array(self.studio.veil[lamp]) * collected, row).astype(np.float32)
        area = self.area * self.body.averaged(exposure.iso)
        take = through_mosaic if self.mosaic else raw
        numbers = take(electrons.reshape(light.shape), exposure.iso, self.draw.again(shot), self.body, area)
        return jpeg(develop(numbers, self.body, exposure.iso, area), self.studio.quality)


def put_on_screen(image: Image, rng: np.random.Generator, studio: Studio, body: Body, mosaic: bool = False) -> StudioScene:
    """Put a picture on the screen and the camera in front of it."""
    height, width = image.shape[:2]
    if min(height, width) < SMALLEST:
        raise SoritesError(f"a picture of {width}x{height} px is too small for the camera: wanted {SMALLEST} px per side or more")
    wander = tuple((rng.standard_normal(es_grid.SHOTS) * studio.wander).tolist())
    return StudioScene(studio, body, mosaic, image ** np.float32(studio.gamma), wander, rng)
