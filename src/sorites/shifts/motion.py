"""Blur by motion of the camera: sideways and forward.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", ICLR 2019.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from sorites.core import Image, Picture, to_picture
from sorites.scenes.fields import half_gaussian, streak
from sorites.shifts._dial import LEVELS, add_dial, between, clip

Box = tuple[float, float, float, float]
"""The left, top, right and bottom of a part of the picture, in px."""

STREAK = ((0, 0), (10, 3), (15, 5), (15, 8), (15, 12), (20, 15))
"""The reach and sigma of the streak in px, per level."""


def _angle(image: Image, rng: np.random.Generator) -> float:
    return math.radians(rng.uniform(-45, 45))


@add_dial(_angle, family="blur", unit="level", levels=LEVELS, limit=5)
def motion_blur(image: Image, severity: float, angle: float) -> Image:
    """Move the camera along a line within 45 degrees of level, fading as half a Gaussian; one angle per sample."""
    reach, sigma = between(STREAK, severity)
    return clip(streak(image, half_gaussian(reach, sigma), angle))


ZOOMS = ((0.01, 12), (0.01, 16), (0.02, 11), (0.02, 13), (0.03, 11))
"""Per level: how much nearer each exposure is than the one before, and how many there are; the first is not nearer."""


@dataclass
class _Exposures:
    """The exposures of a forward move; each is made once and kept for the other severities of the sweep."""

    picture: Picture
    by_box: dict[Box, Picture] = field(default_factory=dict)

    def enlarged(self, box: Box) -> Picture:
        """Return the part of the picture in ``box``, enlarged to the whole."""
        from PIL import Image as pil

        if box not in self.by_box:
            height, width = self.picture.shape[:2]
            nearer = pil.fromarray(self.picture).resize((width, height), pil.Resampling.BILINEAR, box=box)
            self.by_box[box] = np.asarray(nearer)
        return self.by_box[box]


def _exposures(image: Image, rng: np.random.Generator) -> _Exposures:
    return _Exposures(to_picture(image))


@add_dial(_exposures, family="blur", unit="level", levels=LEVELS, limit=5)
def zoom_blur(image: Image, severity: float, exposures: _Exposures) -> Image:
    """Move the camera forward: take the mean of the picture and of ever nearer exposures of it, each at 8 bits.

    Between levels the two neighbours are mixed; level 0 is the picture itself.
    """
    weights = _weights(image.shape[0], image.shape[1], severity)
    out = image * np.float32(1 - sum(weights.values()))
    layer = np.empty_like(image)
    for box, weight in weights.items():
        np.multiply(exposures.enlarged(box), np.float32(weight / 255), out=layer)
        out += layer
    return clip(out)


def _weights(height: int, width: int, severity: float) -> dict[Box, float]:
    """Return the weight of each nearer exposure in the mean at a severity; the rest, up to 1, is the picture itself."""
    weights: dict[Box, float] = {}
    for level, (step, count) in enumerate(ZOOMS, 1):
        share = max(0.0, 1 - abs(severity - level)) / (count + 1)
        for exposure in range(1, count if share else 0):
            zoom = 1 + exposure * ((1 + step) - 1)  # as numpy.arange rounds it
            (top, bottom), (left, right) = _window(height, zoom), _window(width, zoom)
            box = (left, top, right, bottom)
            weights[box] = weights.get(box, 0.0) + share
    return weights


def _window(length: int, zoom: float) -> tuple[float, float]:
    """Return the part of a side that fills it when enlarged ``zoom`` times as published: whole pixels are cut, ends kept."""
    kept = math.ceil(length / zoom)
    scale = (kept - 1) / max(round(kept * zoom) - 1, 1) or 1 / length
    start = (length - kept) // 2 + 0.5 - 0.5 * scale
    return start, min(start + length * scale, length)
