"""The physics that the weather shifts share: a guess at how far away things are, and the veil of air in between.

A picture has no depth, so it is guessed as for a thing photographed on the ground: the lower part and the middle are near, the
upper part is far, and the air drifts in banks. Koschmieder, "Theorie der horizontalen Sichtweite", 1924: light that crosses an
optical depth arrives weakened to exp(-depth), and the air adds its own light, airlight x (1 - exp(-depth)).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from sorites.core import Image
from sorites.scenes.fields import Field, plasma, plasma_noise
from sorites.scenes.light import GREY, to_light

TOP = 2.5
"""The largest severity of every weather dial, as in CNS-Bench."""

STOPS = (0.5, 1.0, 1.5, 2.0, 2.5)


@dataclass(frozen=True)
class AirScene:
    """A picture in linear light, with the air in front of it."""

    light: Image
    bright: float
    """The brightness of the light in the picture, 0..1."""
    depth: Field
    """The amount of air in front of each pixel, 1 on average."""


def air_scene(image: Image, rng: np.random.Generator, banks: float = 0.25, drift: int = 1) -> AirScene:
    """Put air in front of a picture; ``banks`` is how uneven it is, ``drift`` how many times its banks are drawn out by wind."""
    height, width = image.shape[:2]
    light = to_light(image)
    grey = light[::4, ::4] @ GREY
    bright = float(np.clip(np.quantile(grey, 0.9), 0.6, 0.9))
    return AirScene(light, bright, depth(height, width) * air(height, width, rng, banks, drift))


@cache
def depth(height: int, width: int) -> Field:
    """Guess the distance per pixel: far at the top, near at the bottom and in the middle where the thing stands; 1 on average.

    The array is shared and read-only.
    """
    y = np.linspace(-1, 1, height, dtype=np.float32)[:, None] if height > 1 else np.zeros((1, 1), np.float32)
    x = np.linspace(-1, 1, width, dtype=np.float32) if width > 1 else np.zeros(1, np.float32)
    far = np.float32(1.1) - np.float32(0.35) * y - np.float32(0.35) * np.exp(-2 * (x**2 + y**2))
    distance: Field = far / far.mean()
    distance.flags.writeable = False
    return distance


def air(height: int, width: int, rng: np.random.Generator, banks: float, drift: int) -> Field:
    """Return how dense the air is towards each pixel: 1 on average, in smooth clouds between 1 - banks and 1 + banks."""
    from PIL import Image as pil

    small = plasma(plasma_noise(max(8, max(height, width) // 4), rng), 1.7)
    side = len(small)  # a power of two, which may lie just below a quarter of an odd side
    box = (0, 0, min(side, max(1, width / (4 * drift))), min(side, max(1, height / 4)))
    wide = np.asarray(pil.fromarray(small).resize((width, height), pil.Resampling.BICUBIC, box=box))
    density: Field = 1 + np.float32(2 * banks) * (wide - wide.mean())
    return np.maximum(density, np.float32(0.1))


def veil(
    scene: AirScene, severity: float, airlight: tuple[float, float, float], weaken: tuple[float, float, float] = (1.0, 1.0, 1.0)
) -> Image:
    """Return the scene, in linear light, through air of optical depth ``severity`` on average, times ``weaken`` per channel."""
    out = np.empty_like(scene.light)
    for channel in range(3):
        through = np.exp(scene.depth * np.float32(-severity * weaken[channel]))
        glow = np.float32(airlight[channel] * scene.bright)
        out[..., channel] = (scene.light[..., channel] - glow) * through + glow
    return out
