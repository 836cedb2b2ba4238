"""Weather shifts: haze, smog, dust, sandstorm, rain and snowfall by a simple model of air and depth, and the
snow, fog and frost of ImageNet-C.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations", ICLR 2019.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from sorites.core import ImageF32
from sorites.scenes.fields import (
    GREY,
    Field,
    half_gaussian,
    plasma,
    plasma_noise,
    smooth,
    streak,
    stretch,
    to_linear,
    to_srgb,
)
from sorites.shifts.base import LEVELS, add_continuous_shift, between, clip

# The scene model of the physical weather shifts: estimated depth, and scattering air.

# Their maximum severity, as in CNS-Bench.
MAX_SEVERITY = 2.5

SEVERITIES = (0.5, 1.0, 1.5, 2.0, 2.5)


@dataclass(frozen=True)
class AirScene:
    """An image in linear light, and the air in front of it."""

    light: ImageF32
    bright: float
    """The brightness of the scene, 0..1."""
    depth: Field
    """The amount of air in front of each pixel, 1 on average."""


def air_scene(image: ImageF32, rng: np.random.Generator, banks: float = 0.25, drift: int = 1) -> AirScene:
    """Put air in front of an image; ``banks`` is its unevenness, ``drift`` the factor by which wind stretches
    it.
    """
    height, width = image.shape[:2]
    light = to_linear(image)
    grey = light[::4, ::4] @ GREY
    bright = float(np.clip(np.quantile(grey, 0.9), 0.6, 0.9))
    return AirScene(light, bright, depth(height, width) * air(height, width, rng, banks, drift))


@cache
def depth(height: int, width: int) -> Field:
    """Estimate the relative depth per pixel: far at the top, near at the bottom and at the object in the
    centre; 1 on average.

    The array is shared and read-only.
    """
    y = np.linspace(-1, 1, height, dtype=np.float32)[:, None] if height > 1 else np.zeros((1, 1), np.float32)
    x = np.linspace(-1, 1, width, dtype=np.float32) if width > 1 else np.zeros(1, np.float32)
    far = np.float32(1.1) - np.float32(0.35) * y - np.float32(0.35) * np.exp(-2 * (x**2 + y**2))
    distance: Field = far / far.mean()
    distance.flags.writeable = False
    return distance


def air(height: int, width: int, rng: np.random.Generator, banks: float, drift: int) -> Field:
    """Return the relative density of the air per pixel: 1 on average, in smooth clouds of 1 - banks to
    1 + banks.
    """
    from PIL import Image as pil

    small = plasma(plasma_noise(max(8, max(height, width) // 4), rng), 1.7)
    side = len(small)  # a power of two, which may be just below a quarter of an odd side
    box = (0, 0, min(side, max(1, width / (4 * drift))), min(side, max(1, height / 4)))
    wide = np.asarray(pil.fromarray(small).resize((width, height), pil.Resampling.BICUBIC, box=box))
    density: Field = 1 + np.float32(2 * banks) * (wide - wide.mean())
    return np.maximum(density, np.float32(0.1))


def veil(
    scene: AirScene,
    severity: float,
    airlight: tuple[float, float, float],
    weaken: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> ImageF32:
    """Return the scene in linear light through air of mean optical depth ``severity``, scaled by ``weaken``
    per channel.
    """
    out = np.empty_like(scene.light)
    for channel in range(3):
        transmission = np.exp(scene.depth * np.float32(-severity * weaken[channel]))
        scattered = np.float32(airlight[channel] * scene.bright)
        out[..., channel] = (scene.light[..., channel] - scattered) * transmission + scattered
    return out


# Haze, smog, dust and sandstorm: scattering over the estimated depth, each in its own colour.


def _calm(image: ImageF32, rng: np.random.Generator) -> AirScene:
    return air_scene(image, rng)


def _windy(image: ImageF32, rng: np.random.Generator) -> AirScene:
    return air_scene(image, rng, banks=0.6, drift=3)


@add_continuous_shift(_calm, family="weather", unit="optical depth", levels=SEVERITIES, limit=MAX_SEVERITY)
def haze(image: ImageF32, severity: float, scene: AirScene) -> ImageF32:
    """Put fog in front of the scene: white air, thicker with distance, neutral in colour."""
    return to_srgb(veil(scene, severity, (0.92, 0.94, 0.96)))


@add_continuous_shift(_calm, family="weather", unit="optical depth", levels=SEVERITIES, limit=MAX_SEVERITY)
def smog(image: ImageF32, severity: float, scene: AirScene) -> ImageF32:
    """Put smog in front of the scene: grey-brown air that absorbs blue light."""
    return to_srgb(veil(scene, severity, (0.55, 0.49, 0.38), (0.95, 1.0, 1.15)))


@add_continuous_shift(_calm, family="weather", unit="optical depth", levels=SEVERITIES, limit=MAX_SEVERITY)
def dust(image: ImageF32, severity: float, scene: AirScene) -> ImageF32:
    """Put dust into the air: tan, and warmer with increasing thickness."""
    return to_srgb(veil(scene, severity, (0.74, 0.55, 0.32), (0.9, 1.0, 1.25)))


@add_continuous_shift(_windy, family="weather", unit="optical depth", levels=SEVERITIES, limit=MAX_SEVERITY)
def sandstorm(image: ImageF32, severity: float, scene: AirScene) -> ImageF32:
    """Put a sandstorm in front of the scene: orange air in banks stretched by the wind."""
    return to_srgb(veil(scene, severity, (0.82, 0.46, 0.15), (0.85, 1.05, 1.4)))


# Rain: streaks at several distances, haze behind them, and a darker sky.

# The rain rate at severity 1, in mm per hour.
RATE = 20.0

# The exposure in seconds, and the focal length in image widths.
EXPOSURE, FOCAL = 1 / 60, 1.2

# Per layer: its distance from the camera in metres, and the typical diameter of its drops in mm.
LAYERS = ((1.0, 2.2), (2.0, 1.8), (4.0, 1.5))

# Per unit of severity: the relative loss of light, and the optical depth added to the air.
OVERCAST, VEIL = 0.08, 0.35

# The number of streaks of a layer at severity 1 and 1 m in an image of 224 px; it grows with the square of
# the distance.
FALL = 45.0


@dataclass(frozen=True)
class _Rain:
    scene: AirScene
    drops: tuple[Field, ...]
    """Per layer, a uniform draw per pixel; streaks start where it is below a threshold."""
    angle: float


def speed(diameter: float) -> float:
    """Return the terminal speed in m/s of a drop of ``diameter`` mm."""
    return 9.65 - 10.3 * math.exp(-0.6 * diameter)


def density(severity: float) -> float:
    """Return the number of drops larger than 1 mm relative to severity 1, from the integral of the
    Marshall-Palmer distribution.
    """
    slope, reference = (4.1 * (RATE * max(s, 1e-6)) ** -0.21 for s in (severity, 1.0))
    return (math.exp(-slope) / slope) / (math.exp(-reference) / reference) if severity > 0 else 0.0


def _rain(image: ImageF32, rng: np.random.Generator) -> _Rain:
    height, width = image.shape[:2]
    angle = math.radians(90 + rng.uniform(-18, 18))
    drops = tuple(rng.random((height, width), dtype=np.float32) for _ in LAYERS)
    return _Rain(air_scene(image, rng), drops, angle)


@add_continuous_shift(_rain, family="weather", unit="20 mm/h", levels=SEVERITIES, limit=MAX_SEVERITY)
def rain(image: ImageF32, severity: float, drawn: _Rain) -> ImageF32:
    """Let it rain: streaks in one wind direction, near ones long and few, with haze and a darker sky."""
    light = veil(drawn.scene, VEIL * severity, (0.75, 0.78, 0.82)) * np.float32(1 - OVERCAST * severity)
    sky = np.float32(1.15 * drawn.scene.bright)
    scale = min(image.shape[:2]) / 224
    for field, (metres, diameter) in zip(drawn.drops, LAYERS, strict=True):
        cover = _streaks(field, severity, metres, diameter, drawn.angle, scale)[..., None]
        light += (sky - light) * cover
    return to_srgb(light)


def _streaks(
    field: Field, severity: float, metres: float, diameter: float, angle: float, scale: float
) -> Field:
    """Return the share of each pixel covered by the streaks of a layer, 0..1."""
    count = FALL * metres**2 * density(severity) * scale**2
    begins = (field < np.float32(count / field.size)).astype(np.float32)
    pixels = FOCAL * 224 * scale / metres
    length = max(2, round(pixels * speed(diameter) * EXPOSURE * 0.35))
    streaks = streak(begins, [1.0] * length, angle)
    width = pixels * diameter / 1000
    cover: Field = smooth(np.minimum(streaks, np.float32(1)), 0.45, truncate=3) * np.float32(
        min(0.75, 2.5 * width)
    )
    np.minimum(cover, np.float32(0.75), out=cover)
    return cover


# Snowfall: flakes at several distances, haze behind them, and settling snow.

# Per layer, in an image of 224 px: the radius of the flakes (Gaussian sigma, px), their number at severity 1,
# and their motion during the exposure (px).
SNOWFALL_LAYERS = ((3.0, 10, 5.0), (1.4, 70, 2.5), (0.75, 280, 1.0))

# The optical depth of the air per unit of severity.
SNOWFALL_VEIL = 0.28

WHITE = (0.86, 0.90, 0.96)


@dataclass(frozen=True)
class _Snowfall:
    scene: AirScene
    places: tuple[Field, ...]
    """Per layer, the relative positions of the flakes, in the order in which they appear with severity."""
    angle: float
    settles: Field
    """The severity at which snow starts to settle on each pixel."""


def _snowfall(image: ImageF32, rng: np.random.Generator) -> _Snowfall:
    height, width = image.shape[:2]
    angle = math.radians(90 + rng.uniform(-40, 40))
    area = height * width / 224**2
    places = tuple(
        rng.random((math.ceil(MAX_SEVERITY * count * area), 2), dtype=np.float32)
        for _, count, _ in SNOWFALL_LAYERS
    )
    scene = air_scene(image, rng)
    return _Snowfall(scene, places, angle, _settles(scene.light, air(height, width, rng, 0.9, 1)))


def _settles(light: ImageF32, patches: Field) -> Field:
    """Return the severity at which snow settles per pixel: low on the ground and on top of objects, high on
    walls; 0.4 to 4 and more.
    """
    height = light.shape[0]
    reach = max(1, height // 28)
    grey = smooth(np.sqrt(light @ GREY), max(0.6, height / 112), truncate=2.5)
    above = np.pad(grey, ((reach, 0), (0, 0)), mode="edge")[:height]
    top = np.clip((above - grey) * np.float32(4), 0, 1)
    ground = np.clip(np.linspace(-1.2, 1, height, dtype=np.float32), 0, 1)[:, None]
    late: Field = np.float32(4.2) - np.float32(2.2) * ground - np.float32(1.8) * top
    return late * patches


@add_continuous_shift(_snowfall, family="weather", unit="cm/h", levels=SEVERITIES, limit=MAX_SEVERITY)
def snowfall(image: ImageF32, severity: float, drawn: _Snowfall) -> ImageF32:
    """Let it snow: near flakes are soft and far ones fine, with white haze; snow settles on the ground and on
    top of objects.
    """
    light = veil(drawn.scene, SNOWFALL_VEIL * severity, (0.90, 0.92, 0.95))
    white = np.array(WHITE, np.float32) * np.float32(1.1 * drawn.scene.bright)
    settled = np.clip(
        (np.float32(severity) - drawn.settles) * np.float32(1.6),
        0,
        np.float32(min(1.0, severity)) * np.float32(0.9),
    )
    light += (white - light) * settled[..., None]
    scale = math.sqrt(image.shape[0] * image.shape[1]) / 224
    for places, (sigma, count, moves) in zip(drawn.places, SNOWFALL_LAYERS, strict=True):
        flake = _flake(max(0.4, sigma * scale), moves * scale, drawn.angle)
        cover = _cover(places[: round(count * severity * scale**2)], flake, light.shape[:2])
        light += (white - light) * cover[..., None]
    return to_srgb(light)


def _flake(sigma: float, moves: float, angle: float) -> Field:
    """Return the share of each pixel that a flake covers: a Gaussian spot stretched along its path."""
    reach = math.ceil(2.5 * sigma + moves / 2)
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1].astype(np.float32)
    along, aside = (x * math.cos(angle) + y * math.sin(angle)), (y * math.cos(angle) - x * math.sin(angle))
    past = np.maximum(np.abs(along) - moves / 2, 0)
    spot: Field = (0.95 * np.exp(-0.5 * (past**2 + aside**2) / sigma**2)).astype(np.float32)
    return spot


def _cover(places: Field, flake: Field, shape: tuple[int, ...]) -> Field:
    """Return the share of each pixel covered by flakes, at most 0.95; they are clipped at the border."""
    height, width = shape[0], shape[1]
    reach = flake.shape[0] // 2
    padded_width = width + 2 * reach
    corners = (places * np.array([height, width], np.float32)).astype(np.intp) @ np.array([padded_width, 1])
    around = (np.arange(len(flake))[:, None] * padded_width + np.arange(len(flake))).ravel()
    at = (corners[:, None] + around).ravel()
    sums = np.bincount(
        at,
        np.broadcast_to(flake.ravel(), (len(places), flake.size)).ravel(),
        (height + 2 * reach) * padded_width,
    )
    inside = sums.reshape(-1, padded_width)[reach : reach + height, reach : reach + width].astype(np.float32)
    return np.minimum(inside, np.float32(0.95), out=inside)


# Per level: mean and deviation of the flakes, their size, the visibility threshold, length and sigma of their
# streaks in px, the weight of the original image against the whitened one, and the amount of snow.
SNOW = (
    (0.1, 0.3, 3, 0.5, 10, 4, 1, 0),
    (0.1, 0.3, 3, 0.5, 10, 4, 0.8, 1),
    (0.2, 0.3, 2, 0.5, 12, 4, 0.7, 1),
    (0.55, 0.3, 4, 0.9, 12, 8, 0.7, 1),
    (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65, 1),
    (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55, 1),
)


@dataclass(frozen=True)
class _Snow:
    flakes: Field
    angle: float
    white: ImageF32


def _snow(image: ImageF32, rng: np.random.Generator) -> _Snow:
    angle = math.radians(rng.uniform(-135, -45))
    flakes = rng.standard_normal(image.shape[:2], dtype=np.float32)
    gray = image @ np.array([0.299, 0.587, 0.114], np.float32)
    return _Snow(flakes, angle, np.maximum(image, (gray * np.float32(1.5) + np.float32(0.5))[..., None]))


@add_continuous_shift(_snow, family="weather", unit="level", levels=LEVELS, limit=5)
def snow(image: ImageF32, severity: float, drawn: _Snow) -> ImageF32:
    """Add streaks of snow in one direction over a whitened image; flakes become denser with severity."""
    mean, deviation, size, least, reach, sigma, original, amount = between(SNOW, severity)
    flakes = stretch(drawn.flakes, size) * np.float32(deviation) + np.float32(mean)
    flakes *= flakes >= np.float32(least)
    layer = streak(np.minimum(flakes, np.float32(1)), half_gaussian(reach, sigma), drawn.angle)
    layer = (layer + layer[::-1, ::-1]) * np.float32(amount)
    out = image * np.float32(original)
    out += drawn.white * np.float32(1 - original)
    for channel in range(3):
        out[..., channel] += layer
    return clip(out)


# Per level: the strength and the decay per octave.
FOG = ((0, 2), (1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4))


def _fog(image: ImageF32, rng: np.random.Generator) -> tuple[list[Field], float]:
    return plasma_noise(max(image.shape[:2]), rng), float(image.max())


@add_continuous_shift(_fog, family="weather", unit="level", levels=LEVELS, limit=5)
def fog(image: ImageF32, severity: float, drawn: tuple[list[Field], float]) -> ImageF32:
    """Add fractal clouds, and rescale to the original maximum of the image."""
    noise, brightest = drawn
    strength, decay = between(FOG, severity)
    gain = np.float32(brightest / (brightest + strength))
    cloud = plasma(noise, decay)[: image.shape[0], : image.shape[1]] * (np.float32(strength) * gain)
    out = image * gain
    for channel in range(3):
        out[..., channel] += cloud
    return clip(out)


# Frost on a pane, generated from noise, because no photographs of frost are included.

# Per level: the weights of the image and of the pane.
FROST = ((1, 0), (1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))

# The mean colour and standard deviation of each pane; a sample draws one. Two of the published photographs
# are the same.
PANES = (
    ((0.305, 0.585, 0.650), 0.08),
    ((0.787, 0.805, 0.841), 0.08),
    ((0.787, 0.805, 0.841), 0.08),
    ((0.540, 0.599, 0.648), 0.11),
    ((0.441, 0.484, 0.528), 0.14),
)


def _pane(image: ImageF32, rng: np.random.Generator) -> ImageF32:
    colour, deviation = PANES[rng.integers(len(PANES))]
    ice = _ice(image.shape[0], image.shape[1], rng) * np.float32(deviation)
    return clip(ice[..., None] + np.array(colour, np.float32))


def _ice(height: int, width: int, rng: np.random.Generator) -> Field:
    """Grow needles in three directions, 60 degrees apart, with varying thickness; mean 0, deviation 1."""
    turn = rng.uniform(0, np.pi / 3)
    thick = plasma(plasma_noise(max(height, width), rng), 1.4)[:height, :width]
    seeds = rng.standard_normal((height, width), dtype=np.float32)
    weights = half_gaussian(8, 6)
    needles = np.maximum.reduce([streak(seeds, weights, turn + k * np.pi / 3) for k in range(3)])
    ice: Field = (
        needles / max(float(needles.std()), 1e-6)
        + thick / max(float(thick.std()), 1e-6)
        + np.float32(0.4) * seeds
    )
    ice -= ice.mean()
    ice /= np.float32(max(float(ice.std()), 1e-6))
    return ice


@add_continuous_shift(_pane, family="weather", unit="level", levels=LEVELS, limit=5, stage="optics")
def frost(image: ImageF32, severity: float, pane: ImageF32) -> ImageF32:
    """Show the image through a frozen pane: a weighted sum of the two, with one pane per sample."""
    image_weight, pane_weight = between(FROST, severity)
    out = image * np.float32(image_weight)
    out += pane * np.float32(pane_weight)
    return clip(out)
