"""Drops on the lens: water at low severities, mud at high ones.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations", ICLR 2019.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from sorites.core import ImageF32
from sorites.scenes.fields import Field, across, front_mask, mean_3x3, smooth
from sorites.shifts.base import LEVELS, add_continuous_shift, between, clip

# Per level: mean and deviation of the liquid, its smoothness in px, the threshold of wetness, and the
# brightness of drops.
WATER = (
    (0.65, 0.3, 4, 0.69, 0),
    (0.65, 0.3, 4, 0.69, 0.6),
    (0.65, 0.3, 3, 0.68, 0.6),
    (0.65, 0.3, 2, 0.68, 0.5),
)

# Per level from 4: the first four as for water, then the softness of edges in px.
MUD = ((0.65, 0.3, 1, 0.65, 1.5), (0.67, 0.4, 1, 0.65, 1.5))

TURQUOISE = (175 / 255, 238 / 255, 238 / 255)
BROWN = (63 / 255, 42 / 255, 20 / 255)


def _liquid(image: ImageF32, rng: np.random.Generator) -> tuple[Field, Field]:
    """Draw the liquid, and the direction of the transition from water to mud between levels 3 and 4."""
    height, width = image.shape[:2]
    along = across(height, width, rng.uniform(0, 2 * np.pi))
    return rng.standard_normal((height, width), dtype=np.float32), along


@add_continuous_shift(_liquid, family="weather", unit="level", levels=LEVELS, limit=5, stage="optics")
def spatter(image: ImageF32, severity: float, liquid: tuple[Field, Field]) -> ImageF32:
    """Put drops on the lens: bright water up to level 3, brown mud from level 4; in between, mud slides over
    the image.
    """
    noise, along = liquid
    if severity <= 3:
        return _wet(image, _drops(noise, severity))
    muddy = _muddy(image, noise, max(severity, 4.0))
    if severity >= 4:
        return muddy
    wet = _wet(image, _drops(noise, 3.0))
    return clip(wet + (muddy - wet) * front_mask(along, severity - 3)[..., None])


def _wet(image: ImageF32, drops: Field) -> ImageF32:
    out = image.copy()
    for channel in range(3):
        out[..., channel] += drops * np.float32(TURQUOISE[channel])
    return clip(out)


def _muddy(image: ImageF32, noise: Field, severity: float) -> ImageF32:
    mean, deviation, smoothness, least, softness = between(MUD, severity - 4)
    wet = smooth(noise, smoothness) * np.float32(deviation) + np.float32(mean) > np.float32(least)
    mud = smooth(wet.astype(np.float32), softness)
    mud[mud < np.float32(0.8)] = 0
    out = np.empty_like(image)
    for channel in range(3):
        out[..., channel] = image[..., channel] + mud * (np.float32(BROWN[channel]) - image[..., channel])
    return clip(out)


def _drops(noise: Field, severity: float) -> Field:
    """Return the brightness of the water, 0 where dry, embossed by the distance to the edge of the drop."""
    mean, deviation, smoothness, least, bright = between(WATER, severity)
    liquid = smooth(noise, smoothness) * np.float32(deviation) + np.float32(mean)
    liquid *= liquid >= np.float32(least)
    relief = _emboss(_equalise(_from_shore(liquid)))
    drops: Field = liquid * relief
    drops *= np.float32(bright / max(float(drops.max()), 1e-6))
    return drops


def _from_shore(liquid: Field) -> NDArray[np.uint8]:
    """Return the distance in px to the nearest edge of the water, up to 20, averaged over 3 x 3 px."""
    shore = _edges(liquid)
    if not shore.any():
        return np.full(shore.shape, 20, np.uint8)
    away = ndimage.distance_transform_cdt(~shore, metric="taxicab")
    return mean_3x3(np.minimum(away, 20).astype(np.float32)).astype(np.uint8)


def _around(field: Field, mode: Literal["edge", "constant"]) -> Callable[[int, int], Field]:
    """Return ``neighbour(down, right)``, which shifts the field by that offset."""
    wide = np.pad(field, 1, mode=mode)
    height, width = field.shape
    return lambda down, right: wide[1 + down : 1 + down + height, 1 + right : 1 + right + width]


def _edges(liquid: Field) -> NDArray[np.bool_]:
    """Find Canny edges, one pixel wide: steep Sobel gradients that are maximal across the edge."""
    liquid_at = _around(liquid, "edge")
    rise, fall = liquid_at(1, 1) - liquid_at(-1, -1), liquid_at(1, -1) - liquid_at(-1, 1)
    across_x = rise - fall + 2 * (liquid_at(0, 1) - liquid_at(0, -1))
    across_y = rise + fall + 2 * (liquid_at(1, 0) - liquid_at(-1, 0))
    x, y = np.abs(across_x), np.abs(across_y)
    slope = x + y
    slope_at, tangent = _around(slope, "constant"), np.float32(np.tan(np.pi / 8))
    level = (slope > slope_at(0, -1)) & (slope >= slope_at(0, 1))
    upright = (slope > slope_at(-1, 0)) & (slope >= slope_at(1, 0))
    falling = (slope > slope_at(-1, -1)) & (slope > slope_at(1, 1))
    rising = (slope > slope_at(-1, 1)) & (slope > slope_at(1, -1))
    slanted = np.where(across_x * across_y < 0, rising, falling)
    peaks: NDArray[np.bool_] = np.where(y < x * tangent, level, np.where(x < y * tangent, upright, slanted))
    peaks &= slope > np.float32(150 / 255)
    return peaks


def _equalise(values: NDArray[np.uint8]) -> Field:
    """Equalise the histogram: return the rank of each value, as an integer 0..255."""
    counts = np.cumsum(np.bincount(values.ravel(), minlength=256))
    first = counts[counts > 0][0]
    ranks: Field = np.rint((counts - first) * (255 / max(int(counts[-1] - first), 1))).astype(np.float32)
    return ranks[values]


def _emboss(heights: Field) -> Field:
    """Light the heights from the lower right; the result is clipped to 0..255, averaged over 3 x 3 px and
    rounded.
    """
    height_at, lit = _around(heights, "edge"), heights.copy()
    lit += (
        2 * (height_at(1, 1) - height_at(-1, -1))
        + height_at(0, 1)
        - height_at(0, -1)
        + height_at(1, 0)
        - height_at(-1, 0)
    )
    return np.rint(mean_3x3(np.clip(lit, 0, 255, out=lit)))
