"""Rain on a continuous dial: streaks at several distances, the veil behind them, and a darker sky.

Drops fall at their terminal speed (Atlas, Srivastava & Sekhon 1973) during an exposure of 1/60 s and are drawn out along the
wind; their number follows Marshall & Palmer (1948). Garg & Nayar, "Vision and Rain", 2007: a drop has a wide field of view past
what is behind it, and shows about the brightness of the sky for as long as it covers a pixel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sorites.core import Image
from sorites.scenes.fields import Field, smooth, streak
from sorites.scenes.light import to_shown
from sorites.shifts._air import STOPS, TOP, AirScene, air_scene, veil
from sorites.shifts._dial import add_dial

RATE = 20.0
"""The rain at severity 1, in mm per hour."""

EXPOSURE, FOCAL = 1 / 60, 1.2
"""The exposure in seconds, and the focal length in widths of the picture."""

LAYERS = ((1.0, 2.2), (2.0, 1.8), (4.0, 1.5))
"""Per layer: its distance from the camera in metres, and the diameter in mm of the drops one sees there."""

OVERCAST, VEIL = 0.08, 0.35
"""The share that one unit of severity takes from the light, and the optical depth that it adds to the air."""

FALL = 45.0
"""The streaks of a layer at severity 1 and 1 m in a picture of 224 px; their number grows as the square of the distance."""


@dataclass(frozen=True)
class _Rain:
    scene: AirScene
    drops: tuple[Field, ...]
    """Per layer, a uniform draw per pixel; a streak starts where it lies below the share of pixels that the severity asks for."""
    angle: float


def speed(diameter: float) -> float:
    """Return the terminal speed in m/s of a drop of a diameter in mm."""
    return 9.65 - 10.3 * math.exp(-0.6 * diameter)


def density(severity: float) -> float:
    """Return the number of drops larger than 1 mm relative to severity 1: the integral of Marshall and Palmer's exponential."""
    slope, one = (4.1 * (RATE * max(s, 1e-6)) ** -0.21 for s in (severity, 1.0))
    return (math.exp(-slope) / slope) / (math.exp(-one) / one) if severity > 0 else 0.0


def _rain(image: Image, rng: np.random.Generator) -> _Rain:
    height, width = image.shape[:2]
    angle = math.radians(90 + rng.uniform(-18, 18))
    drops = tuple(rng.random((height, width), dtype=np.float32) for _ in LAYERS)
    return _Rain(air_scene(image, rng), drops, angle)


@add_dial(_rain, family="weather", unit="20 mm/h", levels=STOPS, limit=TOP)
def rain(image: Image, severity: float, drawn: _Rain) -> Image:
    """Let it rain: streaks in one wind, near ones long and few, over a veil and under a darker sky; more fall along the dial."""
    light = veil(drawn.scene, VEIL * severity, (0.75, 0.78, 0.82)) * np.float32(1 - OVERCAST * severity)
    sky = np.float32(1.15 * drawn.scene.bright)
    scale = min(image.shape[:2]) / 224
    for field, (metres, diameter) in zip(drawn.drops, LAYERS, strict=True):
        cover = _streaks(field, severity, metres, diameter, drawn.angle, scale)[..., None]
        light += (sky - light) * cover
    return to_shown(light)


def _streaks(field: Field, severity: float, metres: float, diameter: float, angle: float, scale: float) -> Field:
    """Return the share of each pixel that the streaks of a layer cover, 0..1."""
    count = FALL * metres**2 * density(severity) * scale**2
    begins = (field < np.float32(count / field.size)).astype(np.float32)
    pixels = FOCAL * 224 * scale / metres
    length = max(2, round(pixels * speed(diameter) * EXPOSURE * 0.35))
    drawn = streak(begins, [1.0] * length, angle)
    width = pixels * diameter / 1000
    cover: Field = smooth(np.minimum(drawn, np.float32(1)), 0.45, truncate=3) * np.float32(min(0.75, 2.5 * width))
    np.minimum(cover, np.float32(0.75), out=cover)
    return cover
