"""Linear light from sRGB and back, by tables that are finer than a pixel's rounding."""

from __future__ import annotations

from functools import cache

import numpy as np

from sorites.optics.srgb import encoded, light_of_bytes
from sorites.scenes.fields import Field
from sorites.types import Image

GREY = np.array([0.2126, 0.7152, 0.0722], np.float32)
"""The weights of linear red, green and blue in luminance (ITU-R BT.709)."""


@cache
def _tables() -> tuple[Field, Field]:
    """Return sRGB to linear light per 8-bit value, and back per 2^14 steps of light; both are finer than a pixel's rounding."""
    steps = np.arange((1 << 14) + 1) / (1 << 14)
    return light_of_bytes().astype(np.float32), encoded(steps).astype(np.float32)


def to_light(image: Image) -> Image:
    """Return linear light, interpolated on straight lines between the 8-bit values."""
    table = _tables()[0]
    scaled = image * np.float32(255)
    low = np.minimum(scaled.astype(np.uint8), 254)
    part = scaled - low
    light = np.take(table, low)
    light += part * (np.take(table, low + 1) - light)
    return light


def to_shown(light: Image) -> Image:
    """Return light as sRGB again; what is brighter than white becomes white."""
    steps = np.clip(light, 0, 1)
    steps *= np.float32(1 << 14)
    steps += np.float32(0.5)
    return np.take(_tables()[1], steps.astype(np.int16))
