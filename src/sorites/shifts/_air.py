"""What weather has in common: linear light, a guess at how far away things are, and the veil of air between.

A picture has no depth, so it is guessed as one would guess for a thing photographed on the ground: the lower part and the middle
near, the upper part far, drifting in banks. Koschmieder, "Theorie der horizontalen Sichtweite", 1924: light from a distance d
arrives weakened to exp(-depth) and the air adds its own, airlight x (1 - exp(-depth)).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from sorites.core import Image
from sorites.optics.srgb import encoded, light_of_bytes
from sorites.shifts._fields import Field, plasma, plasma_noise

TOP = 2.5
"""The end of every weather dial, as in CNS-Bench."""

STOPS = (0.5, 1.0, 1.5, 2.0, 2.5)
GREY = np.array([0.2126, 0.7152, 0.0722], np.float32)


@cache
def _tables() -> tuple[Field, Field]:
    """sRGB to linear light by 8-bit value, and back by 2^14 steps of light: both finer than a pixel's rounding."""
    steps = np.arange((1 << 14) + 1) / (1 << 14)
    return light_of_bytes().astype(np.float32), encoded(steps).astype(np.float32)


def to_light(image: Image) -> Image:
    """Linear light, straight lines between the 8-bit values."""
    table = _tables()[0]
    scaled = image * np.float32(255)
    low = np.minimum(scaled.astype(np.uint8), 254)
    part = scaled - low
    made = np.take(table, low)
    made += part * (np.take(table, low + 1) - made)
    return made


def to_shown(light: Image) -> Image:
    """sRGB again; what is brighter than white is white."""
    steps = np.clip(light, 0, 1)
    steps *= np.float32(1 << 14)
    steps += np.float32(0.5)
    return np.take(_tables()[1], steps.astype(np.int16))


@dataclass(frozen=True)
class Scene:
    """A picture in linear light, how bright its light is (0..1), and how far each pixel is: 1 on average."""

    light: Image
    bright: float
    depth: Field


def scene(image: Image, rng: np.random.Generator, banks: float = 0.25, drift: int = 1) -> Scene:
    """``banks`` is how uneven the air is; ``drift`` stretches its banks along the wind, in times."""
    height, width = image.shape[:2]
    light = to_light(image)
    grey = light[::4, ::4] @ GREY
    bright = float(np.clip(np.quantile(grey, 0.9), 0.6, 0.9))
    return Scene(light, bright, depth(height, width) * air(height, width, rng, banks, drift))


@cache
def depth(height: int, width: int) -> Field:
    """Far at the top, near at the bottom and in the middle where the thing stands; 1 on average. Read-only."""
    y = np.linspace(-1, 1, height, dtype=np.float32)[:, None] if height > 1 else np.zeros((1, 1), np.float32)
    x = np.linspace(-1, 1, width, dtype=np.float32) if width > 1 else np.zeros(1, np.float32)
    far = np.float32(1.1) - np.float32(0.35) * y - np.float32(0.35) * np.exp(-2 * (x**2 + y**2))
    made: Field = far / far.mean()
    made.flags.writeable = False
    return made


def air(height: int, width: int, rng: np.random.Generator, banks: float, drift: int) -> Field:
    """How dense the air is towards each pixel: 1 on average, smooth clouds between 1 - banks and 1 + banks."""
    from PIL import Image as pil

    small = plasma(plasma_noise(max(8, max(height, width) // 4), rng), 1.7)
    box = (0, 0, max(1, width / (4 * drift)), max(1, height / 4))
    wide = np.asarray(pil.fromarray(small).resize((width, height), pil.Resampling.BICUBIC, box=box))
    made: Field = 1 + np.float32(2 * banks) * (wide - wide.mean())
    return np.maximum(made, np.float32(0.1))


def veil(
    shown: Scene, severity: float, airlight: tuple[float, float, float], weaken: tuple[float, float, float] = (1.0, 1.0, 1.0)
) -> Image:
    """The scene through air of optical depth ``severity`` on average, in linear light; ``weaken`` times that in each channel."""
    out = np.empty_like(shown.light)
    for channel in range(3):
        through = np.exp(shown.depth * np.float32(-severity * weaken[channel]))
        glow = np.float32(airlight[channel] * shown.bright)
        out[..., channel] = (shown.light[..., channel] - glow) * through + glow
    return out
