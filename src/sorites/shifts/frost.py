"""Frost on the pane, grown from noise: no photograph of frost is shipped.

The weights are those of Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations", ICLR 2019; the colour and contrast of the panes were measured on the five photographs used there.
"""

from __future__ import annotations

import numpy as np

from sorites.core import Image
from sorites.scenes.fields import Field, half_gaussian, plasma, plasma_noise, streak
from sorites.shifts._dial import LEVELS, add_dial, between, clip

FROST = ((1, 0), (1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))
"""The weights of the picture and of the pane at each level."""

PANES = (
    ((0.305, 0.585, 0.650), 0.08),
    ((0.787, 0.805, 0.841), 0.08),
    ((0.787, 0.805, 0.841), 0.08),
    ((0.540, 0.599, 0.648), 0.11),
    ((0.441, 0.484, 0.528), 0.14),
)
"""The mean colour and standard deviation of each pane; a sample draws one. Two of the photographs are the same."""


def _pane(image: Image, rng: np.random.Generator) -> Image:
    colour, deviation = PANES[rng.integers(len(PANES))]
    ice = _ice(image.shape[0], image.shape[1], rng) * np.float32(deviation)
    return clip(ice[..., None] + np.array(colour, np.float32))


def _ice(height: int, width: int, rng: np.random.Generator) -> Field:
    """Grow needles in three directions, 60 degrees apart, thicker in some places than in others; mean 0, deviation 1."""
    turn = rng.uniform(0, np.pi / 3)
    thick = plasma(plasma_noise(max(height, width), rng), 1.4)[:height, :width]
    seeds = rng.standard_normal((height, width), dtype=np.float32)
    weights = half_gaussian(8, 6)
    needles = np.maximum.reduce([streak(seeds, weights, turn + k * np.pi / 3) for k in range(3)])
    ice: Field = needles / max(float(needles.std()), 1e-6) + thick / max(float(thick.std()), 1e-6) + np.float32(0.4) * seeds
    ice -= ice.mean()
    ice /= np.float32(max(float(ice.std()), 1e-6))
    return ice


@add_dial(_pane, family="weather", unit="level", levels=LEVELS, limit=5)
def frost(image: Image, severity: float, pane: Image) -> Image:
    """Show the picture through a frozen pane: a weighted sum of the two, with one pane per sample."""
    seen, frozen = between(FROST, severity)
    out = image * np.float32(seen)
    out += pane * np.float32(frozen)
    return clip(out)
