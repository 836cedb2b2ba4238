"""Snow on a continuous dial: flakes at several distances, the veil behind them, and snow that settles.

Flakes are drawn with the blur of their distance: the near ones large, soft and few, the far ones small and many. Snow settles
first on the ground and on what looks like the top of something (darker than what is above it), in patches that belong to the
sample and only grow along the dial.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sorites.core import Image
from sorites.scenes.fields import Field, smooth
from sorites.scenes.light import GREY, to_shown
from sorites.shifts._air import STOPS, TOP, AirScene, air, air_scene, veil
from sorites.shifts._dial import add_dial

LAYERS = ((3.0, 10, 5.0), (1.4, 70, 2.5), (0.75, 280, 1.0))
"""Per layer, in a picture of 224 px: the radius of the flakes (Gaussian sigma, px), their number at severity 1, and how far they
move during the exposure (px)."""

VEIL = 0.28
"""The optical depth that one unit of severity adds to the air."""

WHITE = (0.86, 0.90, 0.96)


@dataclass(frozen=True)
class _Snowfall:
    scene: AirScene
    places: tuple[Field, ...]
    """Per layer, where the flakes are, as shares of height and width, in the order in which they join along the dial."""
    angle: float
    settles: Field
    """The severity at which snow begins to settle on each pixel."""


def _snowfall(image: Image, rng: np.random.Generator) -> _Snowfall:
    height, width = image.shape[:2]
    angle = math.radians(90 + rng.uniform(-40, 40))
    area = height * width / 224**2
    places = tuple(rng.random((math.ceil(TOP * count * area), 2), dtype=np.float32) for _, count, _ in LAYERS)
    scene = air_scene(image, rng)
    return _Snowfall(scene, places, angle, _settles(scene.light, air(height, width, rng, 0.9, 1)))


def _settles(light: Image, patches: Field) -> Field:
    """Return the severity at which snow settles per pixel: early on the ground and on tops, late on walls; 0.4 to 4 and more."""
    height = light.shape[0]
    reach = max(1, height // 28)
    grey = smooth(np.sqrt(light @ GREY), max(0.6, height / 112), truncate=2.5)
    above = np.pad(grey, ((reach, 0), (0, 0)), mode="edge")[:height]
    top = np.clip((above - grey) * np.float32(4), 0, 1)
    ground = np.clip(np.linspace(-1.2, 1, height, dtype=np.float32), 0, 1)[:, None]
    late: Field = np.float32(4.2) - np.float32(2.2) * ground - np.float32(1.8) * top
    return late * patches


@add_dial(_snowfall, family="weather", unit="cm/h", levels=STOPS, limit=TOP)
def snowfall(image: Image, severity: float, drawn: _Snowfall) -> Image:
    """Let it snow: near flakes soft and far ones fine, over a white veil; snow settles on the ground and on tops of things."""
    light = veil(drawn.scene, VEIL * severity, (0.90, 0.92, 0.95))
    white = np.array(WHITE, np.float32) * np.float32(1.1 * drawn.scene.bright)
    lying = np.clip((np.float32(severity) - drawn.settles) * np.float32(1.6), 0, np.float32(min(1.0, severity)) * np.float32(0.9))
    light += (white - light) * lying[..., None]
    scale = math.sqrt(image.shape[0] * image.shape[1]) / 224
    for places, (sigma, count, moves) in zip(drawn.places, LAYERS, strict=True):
        flake = _flake(max(0.4, sigma * scale), moves * scale, drawn.angle)
        cover = _laid(places[: round(count * severity * scale**2)], flake, light.shape[:2])
        light += (white - light) * cover[..., None]
    return to_shown(light)


def _flake(sigma: float, moves: float, angle: float) -> Field:
    """Return the share of each pixel around it that one flake covers: a Gaussian spot drawn out along its path."""
    reach = math.ceil(2.5 * sigma + moves / 2)
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1].astype(np.float32)
    along, aside = (x * math.cos(angle) + y * math.sin(angle)), (y * math.cos(angle) - x * math.sin(angle))
    past = np.maximum(np.abs(along) - moves / 2, 0)
    spot: Field = (0.95 * np.exp(-0.5 * (past**2 + aside**2) / sigma**2)).astype(np.float32)
    return spot


def _laid(places: Field, flake: Field, shape: tuple[int, ...]) -> Field:
    """Return the share of each pixel that all flakes cover together, at most 0.95; flakes are cut at the border."""
    height, width = shape[0], shape[1]
    reach = flake.shape[0] // 2
    wide = width + 2 * reach
    corners = (places * np.array([height, width], np.float32)).astype(np.intp) @ np.array([wide, 1])
    around = (np.arange(len(flake))[:, None] * wide + np.arange(len(flake))).ravel()
    at = (corners[:, None] + around).ravel()
    sums = np.bincount(at, np.broadcast_to(flake.ravel(), (len(places), flake.size)).ravel(), (height + 2 * reach) * wide)
    inside = sums.reshape(-1, wide)[reach : reach + height, reach : reach + width].astype(np.float32)
    return np.minimum(inside, np.float32(0.95), out=inside)
