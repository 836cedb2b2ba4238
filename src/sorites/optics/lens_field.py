"""A whole large picture through a lens: every part of it gets the blur of its own place on the sensor.

The picture is cut into square patches that overlap by half under a window that sums to one (Nagy and O'Leary 1998); each patch
is convolved with the kernel of its middle, mixed from the traced fields and azimuths on either side of it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError
from sorites.optics.convolve import sweep
from sorites.optics.lens_blur import FIELDS

Array = NDArray[np.float64]
Image = NDArray[np.float32]


def kernel_at(kernels: Array, field: float, azimuth: float) -> Array:
    """The kernel (colour, y, x) at a part of the half field and an azimuth in degrees, mixed from the nearest traced ones.

    ``kernels`` are a lens's thirteen, in the order of ``POSITIONS``. The lens is symmetric, so an azimuth beyond 90 degrees is a
    mirrored one within; beyond the last field, that field goes on.
    """
    turn = math.radians(azimuth)
    folded = math.degrees(math.atan2(abs(math.sin(turn)), abs(math.cos(turn))))
    place = float(np.interp(field, FIELDS, range(len(FIELDS))))
    low = min(int(place), len(FIELDS) - 2)
    mixed = (low + 1 - place) * _turned(kernels, low, folded) + (place - low) * _turned(kernels, low + 1, folded)
    mixed = mixed[:, ::-1] if math.sin(turn) < 0 else mixed
    return np.asarray(mixed[:, :, ::-1] if math.cos(turn) < 0 else mixed)


def _turned(kernels: Array, at: int, azimuth: float) -> Array:
    if at == 0:
        return np.asarray(kernels[0])
    place = azimuth / 45
    low = min(int(place), 1)
    first = 1 + 3 * (at - 1) + low
    return np.asarray((low + 1 - place) * kernels[first] + (place - low) * kernels[first + 1])


def field_blur(image: Image, kernels: Array, patch: int = 128, corner: float = 1.0) -> Image:
    """``image`` (H x W x 3) as the lens shows it, its middle on the axis and its corners at ``corner`` of the half field."""
    height, width, _ = image.shape
    if patch < 4 or patch % 2 or not 0 < corner <= 1:
        raise SoritesError(f"field blur: wanted an even patch from 4 px and a corner in 0..1, got {patch} px and {corner}")
    step, reach = patch // 2, kernels.shape[-1] // 2
    margin = step + reach
    padded = np.pad(image, ((margin, margin + patch), (margin, margin + patch), (0, 0)), mode="symmetric")
    half = math.hypot(height, width) / 2
    total = np.zeros((height + 2 * patch, width + 2 * patch, 3), np.float32)
    window = _window(patch)
    for top in range(-step, height, step):
        for left in range(-step, width, step):
            down, right = top + step - height / 2, left + step - width / 2
            field, azimuth = corner * math.hypot(down, right) / half, math.degrees(math.atan2(down, right))
            taps = kernel_at(kernels, field, azimuth)
            y, x = top + margin - reach, left + margin - reach
            part = padded[y : y + patch + 2 * reach, x : x + patch + 2 * reach]
            blurred = next(iter(sweep(np.ascontiguousarray(part), [taps], "zeros", flip=True)))[
                reach : reach + patch, reach : reach + patch
            ]
            total[top + step : top + step + patch, left + step : left + step + patch] += window * blurred
    return np.clip(total[step : step + height, step : step + width], 0, 1)


def _window(patch: int) -> NDArray[np.float32]:
    """Squared sines: neighbours half a patch apart sum to one."""
    line = np.sin(np.pi * (np.arange(patch) + 0.5) / patch) ** 2
    return np.outer(line, line).astype(np.float32)[..., None]
