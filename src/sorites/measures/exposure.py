"""The measure of exposure: how many stops lighter or darker a picture became."""

from __future__ import annotations

import math

import numpy as np

from sorites.core import Picture, add_measure
from sorites.optics.srgb import light_of_bytes


@add_measure(nearer="lower", unit="stops")
def exposure_error(reference: Picture, moved: Picture) -> float:
    """Change of the mean luminance in stops: above 0 where the picture became lighter, below 0 where darker.

    The nearer to 0, the nearer to the reference. A black picture counts as half the least 8-bit step.
    """
    return math.log2(_luminance(moved) / _luminance(reference))


def _luminance(picture: Picture) -> float:
    means = [light_of_bytes()[picture[..., channel]].mean() for channel in range(3)]
    return max(float(np.dot(means, (0.2126, 0.7152, 0.0722))), float(light_of_bytes()[1]) / 2)
