"""The measure of exposure: how many stops lighter or darker a picture became."""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from sorites.core import Picture, add_measure


@add_measure(nearer="lower", unit="stops")
def exposure_error(reference: Picture, moved: Picture) -> float:
    """Change of the mean luminance in stops: above 0 where the picture became lighter, below 0 where darker.

    The nearer to 0, the nearer to the reference. A black picture counts as half the least 8-bit step.
    """
    return math.log2(_luminance(moved) / _luminance(reference))


@functools.cache
def _linear() -> NDArray[np.float64]:
    values = np.arange(256) / 255
    return np.asarray(np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4))


def _luminance(picture: Picture) -> float:
    means = [_linear()[picture[..., channel]].mean() for channel in range(3)]
    return max(float(np.dot(means, (0.2126, 0.7152, 0.0722))), float(_linear()[1]) / 2)
