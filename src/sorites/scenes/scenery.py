"""Places to put an object in: a square crop of a photograph, or ground and sky drawn in perspective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from PIL import Image as Pillow

from sorites.core import ImageF32, ImageU8, to_float
from sorites.scenes.fields import Field, plasma, plasma_noise, smooth

# Share of a drawn place above the horizon.
HORIZON = 0.45

Colour = tuple[float, float, float]
Place = Callable[[int, np.random.Generator], ImageF32]


class Photograph(Protocol):
    """A photograph of a location, with the share of its height above the ground."""

    @property
    def location(self) -> str: ...
    @property
    def horizon(self) -> float: ...
    def load(self) -> ImageU8: ...


def place(
    location: str, size: int, rng: np.random.Generator, photographs: Sequence[Photograph] = ()
) -> ImageF32:
    """Return a square of ``size`` px that shows a location: a crop of one of its photographs, or a
    drawing.
    """
    fitting = [photograph for photograph in photographs if photograph.location == location]
    if fitting:
        chosen = fitting[int(rng.integers(len(fitting)))]
        return crop(chosen.load(), chosen.horizon, size, rng)
    return DRAWN[location](size, rng)


def crop(image_u8: ImageU8, horizon: float, size: int, rng: np.random.Generator) -> ImageF32:
    """Return a random square of the image, mostly ground, mirrored half of the time."""
    height, width = image_u8.shape[:2]
    side = min(width, height, round(height * min(1.0, 1.7 * (1 - horizon) + 0.15)))
    left = int(rng.integers(width - side + 1))
    part = Pillow.fromarray(image_u8[height - side :, left : left + side]).resize(
        (size, size), Pillow.Resampling.LANCZOS
    )
    image = to_float(np.asarray(part))
    return np.ascontiguousarray(image[:, ::-1]) if rng.random() < 0.5 else image


def _texture(rng: np.random.Generator, decay: float = 1.5) -> Field:
    """Return a periodic fractal texture, 256 x 256, with mean 0 and standard deviation 1."""
    raw = plasma(plasma_noise(256, rng), decay)
    centred: Field = (raw - raw.mean()) / np.float32(max(float(raw.std()), 1e-6))
    return centred


def _ground(size: int) -> tuple[Field, Field, int]:
    """Return lateral position and distance of the ground at each pixel below the horizon, in camera
    heights, and the row of the horizon.
    """
    top = round(size * HORIZON)
    down = (np.arange(size - top, dtype=np.float32) + 0.7) / size
    away: Field = np.repeat(np.float32(0.55) / down[:, None], size, axis=1).astype(np.float32)
    across = ((np.arange(size) / size - 0.5) / 0.55 * away).astype(np.float32)
    return across, away, top


def _project(texture: Field, across: Field, away: Field, grain: float) -> Field:
    """Project the texture onto the ground with ``grain`` repeats per unit; it fades where it is finer than
    a pixel.
    """
    side = len(texture)
    rows, cols = ((np.mod(v * (grain * side), side)).astype(np.intp) % side for v in (away, across))
    projected: Field = texture[rows, cols] * np.clip(1.6 / (1 + away * grain), 0, 1)
    return projected


def _sky(size: int, low: Colour, high: Colour, rng: np.random.Generator) -> ImageF32:
    """Return a cloudy sky that fades from ``low`` at the bottom to ``high`` at the top."""
    part = np.linspace(1, 0, size, dtype=np.float32)[:, None, None]
    image = np.array(low, np.float32) * (1 - part) + np.array(high, np.float32) * part
    clouds = np.asarray(Pillow.fromarray(_texture(rng, 1.9)).resize((size, size), Pillow.Resampling.BICUBIC))
    image = image + np.clip(clouds - 0.6, 0, 2)[..., None] * np.float32(0.08)
    filled: ImageF32 = np.clip(np.broadcast_to(image, (size, size, 3)), 0, 1).astype(np.float32)
    return filled


def _open(
    size: int, rng: np.random.Generator, colour: Colour, rough: float, grain: float, low: Colour, high: Colour
) -> ImageF32:
    """Return open ground under a sky, with a dim strip of distant hills."""
    image = _sky(size, low, high, rng)
    across, away, top = _ground(size)
    relief = _project(_texture(rng), across, away, grain) + 0.6 * _project(
        _texture(rng, 1.25), across, away, 4 * grain
    )
    tone = 1 + np.float32(rough) * relief[..., None]
    image[top:] = np.clip(np.array(colour, np.float32) * tone, 0, 1)
    strip = max(2, size // 40)
    hills = smooth(np.abs(_texture(rng)[:1, :]).repeat(2, 0), 6.0)[0]
    for x in range(size):
        rise = strip + int(strip * hills[x % 256])
        image[top - rise : top, x] *= np.float32(0.72)
    return image


def _street(size: int, rng: np.random.Generator) -> ImageF32:
    """Return a street: asphalt with a dashed line, kerbs, and house fronts with windows."""
    image = _open(size, rng, (0.36, 0.36, 0.38), 0.10, 1.5, (0.80, 0.84, 0.90), (0.45, 0.62, 0.85))
    across, away, top = _ground(size)
    lane = (np.abs(across - 0.9) < 0.05) & (np.mod(away, 2.0) < 1.1)
    image[top:][lane] = (0.85, 0.85, 0.80)
    image[top:][np.abs(across) > 2.2] *= np.float32(1.35)
    left = 0
    while left < size:
        wide, tall = int(rng.integers(size // 8, size // 4)), int(rng.integers(size // 5, top))
        wall = rng.uniform(0.35, 0.75) * np.array([1.0, rng.uniform(0.8, 1.0), rng.uniform(0.65, 0.95)])
        image[top - tall : top, left : left + wide] = wall
        for y in range(top - tall + 4, top - 8, max(8, size // 16)):
            for x in range(left + 4, min(left + wide, size) - 4, max(7, size // 20)):
                image[y : y + size // 28, x : x + size // 40] = wall * 0.35 + 0.08
        left += wide
    return np.clip(image, 0, 1)


def _indoors(size: int, rng: np.random.Generator) -> ImageF32:
    """Return a room: a plain wall with a skirting board above a plank floor."""
    across, away, top = _ground(size)
    wall = np.array([0.82, 0.78, 0.70]) * rng.uniform(0.85, 1.05)
    image = np.empty((size, size, 3), np.float32)
    fall = 1 - 0.18 * np.abs(np.linspace(-0.4, 1, size, dtype=np.float32))
    image[:] = np.clip(wall, 0, 1) * fall[None, :, None]
    planks = np.floor(across / 0.28)
    shade = 1 + 0.10 * np.sin(planks * 12.9898) + 0.05 * _project(_texture(rng), across * 6, away, 1.0)
    gap = np.mod(across / 0.28, 1) < 0.03
    image[top:] = np.clip(np.array([0.55, 0.38, 0.24]) * (shade * np.where(gap, 0.6, 1.0))[..., None], 0, 1)
    image[top - size // 32 : top] = np.clip(wall * 1.12, 0, 1)
    return image


def _water(size: int, rng: np.random.Generator) -> ImageF32:
    """Return open water whose waves get shorter with distance."""
    image = _open(size, rng, (0.16, 0.33, 0.42), 0.16, 1.2, (0.82, 0.88, 0.94), (0.42, 0.62, 0.86))
    across, away, top = _ground(size)
    waves = np.sin(away * 9 + 0.8 * np.sin(across * 3 + rng.uniform(0, 6)) + rng.uniform(0, 6)) * np.clip(
        1.5 / away, 0, 1
    )
    image[top:] += (np.maximum(waves, 0) ** 3 * 0.22)[..., None].astype(np.float32)
    return np.clip(image, 0, 1)


_BLUE: tuple[Colour, Colour] = ((0.80, 0.87, 0.93), (0.38, 0.60, 0.88))
# The function that draws each location.
DRAWN: dict[str, Place] = {
    "grass": partial(_open, colour=(0.30, 0.46, 0.16), rough=0.22, grain=2.5, low=_BLUE[0], high=_BLUE[1]),
    "forest": partial(
        _open,
        colour=(0.23, 0.27, 0.13),
        rough=0.30,
        grain=2.0,
        low=(0.16, 0.24, 0.12),
        high=(0.10, 0.17, 0.08),
    ),
    "sand": partial(_open, colour=(0.80, 0.67, 0.46), rough=0.08, grain=1.5, low=_BLUE[0], high=_BLUE[1]),
    "snow": partial(
        _open,
        colour=(0.90, 0.93, 0.97),
        rough=0.04,
        grain=0.8,
        low=(0.84, 0.87, 0.90),
        high=(0.66, 0.73, 0.82),
    ),
    "rocks": partial(_open, colour=(0.45, 0.43, 0.41), rough=0.38, grain=1.8, low=_BLUE[0], high=_BLUE[1]),
    "water": _water,
    "street": _street,
    "indoors": _indoors,
}
