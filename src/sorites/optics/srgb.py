"""The sRGB curve between light and display values, both 0..1 (IEC 61966-2-1): in single precision for pictures, in double for
tables. The two are kept apart on purpose: their last bits differ, and pixels and measures follow from each."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

Light = NDArray[np.float32]


def linear(display: Light) -> Light:
    """Turn display values into light, in single precision."""
    low = display * np.float32(1 / 12.92)
    return np.where(display <= 0.04045, low, ((display + np.float32(0.055)) * np.float32(1 / 1.055)) ** np.float32(2.4))


def to_display(light: Light) -> Light:
    """Turn light, clipped to 0..1, into display values, in single precision."""
    clipped = np.clip(light, 0, 1)
    high = np.float32(1.055) * clipped ** np.float32(1 / 2.4) - np.float32(0.055)
    return np.where(clipped <= 0.0031308, clipped * np.float32(12.92), high)


def encoded(light: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn light into display values, in double precision."""
    return np.where(light <= 0.0031308, 12.92 * light, 1.055 * np.maximum(light, 0) ** (1 / 2.4) - 0.055)


@functools.cache
def light_of_bytes() -> NDArray[np.float64]:
    """Return the light of each of the 256 values of an 8-bit picture, in double precision; not to be written to."""
    values = np.arange(256) / 255
    light = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    light.setflags(write=False)
    return light
