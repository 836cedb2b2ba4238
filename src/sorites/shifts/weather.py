"""Snow and fog.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", ICLR 2019.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sorites.core import Image
from sorites.scenes.fields import Field, half_gaussian, plasma, plasma_noise, streak, stretch
from sorites.shifts._dial import LEVELS, add_dial, between, clip

SNOW = (
    (0.1, 0.3, 3, 0.5, 10, 4, 1, 0),
    (0.1, 0.3, 3, 0.5, 10, 4, 0.8, 1),
    (0.2, 0.3, 2, 0.5, 12, 4, 0.7, 1),
    (0.55, 0.3, 4, 0.9, 12, 8, 0.7, 1),
    (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65, 1),
    (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55, 1),
)
"""Per level: mean and deviation of the flakes, their size, the least value that shows, reach and sigma of their streaks in px,
the share of the picture that is not whitened, and how much of the snow falls."""


@dataclass(frozen=True)
class _Snow:
    flakes: Field
    angle: float
    white: Image


def _snow(image: Image, rng: np.random.Generator) -> _Snow:
    angle = math.radians(rng.uniform(-135, -45))
    flakes = rng.standard_normal(image.shape[:2], dtype=np.float32)
    gray = image @ np.array([0.299, 0.587, 0.114], np.float32)
    return _Snow(flakes, angle, np.maximum(image, (gray * np.float32(1.5) + np.float32(0.5))[..., None]))


@add_dial(_snow, family="weather", unit="level", levels=LEVELS, limit=5)
def snow(image: Image, severity: float, drawn: _Snow) -> Image:
    """Add streaks of snow, all in one direction, over a whitened picture; the same flakes grow denser along the dial."""
    mean, deviation, size, least, reach, sigma, kept, falls = between(SNOW, severity)
    flakes = stretch(drawn.flakes, size) * np.float32(deviation) + np.float32(mean)
    flakes *= flakes >= np.float32(least)
    layer = streak(np.minimum(flakes, np.float32(1)), half_gaussian(reach, sigma), drawn.angle)
    layer = (layer + layer[::-1, ::-1]) * np.float32(falls)
    out = image * np.float32(kept)
    out += drawn.white * np.float32(1 - kept)
    for channel in range(3):
        out[..., channel] += layer
    return clip(out)


FOG = ((0, 2), (1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4))
"""The strength and the decay per octave, per level."""


def _fog(image: Image, rng: np.random.Generator) -> tuple[list[Field], float]:
    return plasma_noise(max(image.shape[:2]), rng), float(image.max())


@add_dial(_fog, family="weather", unit="level", levels=LEVELS, limit=5)
def fog(image: Image, severity: float, drawn: tuple[list[Field], float]) -> Image:
    """Add clouds of one fractal, and bring the whole back to the brightest value of the picture."""
    noise, brightest = drawn
    strength, decay = between(FOG, severity)
    gain = np.float32(brightest / (brightest + strength))
    cloud = plasma(noise, decay)[: image.shape[0], : image.shape[1]] * (np.float32(strength) * gain)
    out = image * gain
    for channel in range(3):
        out[..., channel] += cloud
    return clip(out)
