"""Frosted glass: pixels are replaced by near ones between two blurs.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", ICLR 2019.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sorites.core import Image
from sorites.scenes.fields import Field, smooth
from sorites.shifts._dial import LEVELS, add_dial, between, clip

GLASS = ((0, 0, 0, 0), (0.7, 1, 1, 0), (0.9, 2, 0, 0), (1, 2, 2, 2), (1.1, 3, 3, 0), (1.5, 4, 4, 0))
"""Per level: the sigma of the blur in px, then how far away pixels are fetched from, in px, in each of up to three rounds."""


def _rounds(image: Image, rng: np.random.Generator) -> Field:
    """Draw three uniform fields per round: where from, down and across, and which pixels are the first to reach further."""
    return rng.random((3, 3, *image.shape[:2]), dtype=np.float32)


@add_dial(_rounds, family="blur", unit="level", levels=LEVELS, limit=5)
def glass_blur(image: Image, severity: float, rounds: Field) -> Image:
    """Show the picture through frosted glass: blur by a Gaussian, replace each pixel by a near one, and blur again."""
    sigma, *reaches = between(GLASS, severity)
    height, width = image.shape[:2]
    source = np.arange(height * width)
    for draw, reach in zip(rounds, reaches, strict=True):
        if reach > 0:
            source = source[_fetch(draw, reach)]
    blurred = smooth(image, sigma).reshape(-1, 3)
    return clip(smooth(np.take(blurred, source, axis=0).reshape(image.shape), sigma))


def _fetch(draw: Field, reach: float) -> NDArray[np.intp]:
    """Return where each pixel's value comes from after one round, as flat indices.

    The published loop walks from the last pixel to the first and copies a near pixel over each, so that a value
    fetched from further on has itself been replaced already. Chains of such copies are followed to their ends, all
    at once. Between two whole reaches, a share of the pixels has the larger one.
    """
    height, width = draw.shape[1:]
    inner = _walked(height, width, int(np.ceil(reach)))
    here = np.arange(height * width).reshape(height, width)
    visited = np.zeros(height * width, bool)
    visited[here[inner]] = True
    near = here.copy()
    near[inner] += _offsets(draw[:, *inner], reach, width)
    follow = np.where((near > here) & visited[near], near, near + here.size).ravel()
    chained = np.flatnonzero(follow < here.size)
    while chained.size:
        follow[chained] = follow[follow[chained]]
        chained = chained[follow[chained] < here.size]
    return follow - here.size


def _walked(height: int, width: int, margin: int) -> tuple[slice, slice]:
    """Return the rows and columns that the published loop visits: all but a border, which is one px wider at the top and left."""
    return slice(margin + 1, max(height - margin, margin) + 1), slice(margin + 1, max(width - margin, margin) + 1)


def _offsets(draw: Field, reach: float, width: int) -> NDArray[np.intp]:
    """Return uniform whole offsets from -reach to reach - 1 px down and across, as steps of the flat index."""
    whole = np.floor(np.float32(reach))
    each = whole + (draw[2] < np.float32(reach) - whole)
    down, across = (np.floor(draw[:2] * (2 * each)) - each).astype(np.intp)
    steps: NDArray[np.intp] = down * width + across
    return steps
