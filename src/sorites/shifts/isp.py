"""The camera behind the lens, one dial per stage: colour filter, denoising, sharpening, tone curve.

Each stage converts display values (sRGB) to linear light, acts there and converts them back; the tone curve
maps display values. Values are limited to 0..1 between stages, so noise below black is cut off. With a lens
aberration (option ``linear``), ``iso_noise`` and ``jpeg`` they are a whole camera, in the order of their
stages: see the suite ``isp``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sorites.core import ImageF32
from sorites.optics.develop import linear_from_srgb, to_display
from sorites.optics.sensor import demosaic, sampled
from sorites.shifts.base import add_continuous_shift, clip

Light = NDArray[np.float32]
FAMILY = "isp"
# Neighbours within two pixels, one of each opposite pair (y, x).
NEAR = ((0, 1), (0, 2), (1, -1), (1, 0), (1, 1), (2, 0))
# Standard deviation in px of the spatial weights of denoising, and of the blur that sharpening removes.
DENOISE_SPACE, SHARPEN_RADIUS = 1.5, 1.0


def _filtered(image: ImageF32, rng: np.random.Generator) -> tuple[Light, Light]:
    """Return the light, and the light that a Bayer sensor reconstructs; odd sides are mirrored once."""
    light = linear_from_srgb(image)
    height, width = light.shape[:2]
    even = np.pad(light, ((0, height % 2), (0, width % 2), (0, 0)), mode="symmetric")
    return light, demosaic(sampled(even))[:height, :width] if min(height, width) > 1 else light


@add_continuous_shift(
    _filtered, family=FAMILY, unit="share", levels=(0.25, 0.5, 0.75, 1), limit=1, stage="sensor"
)
def mosaic(image: ImageF32, severity: float, prepared: tuple[Light, Light]) -> ImageF32:
    """Measure one colour per pixel (Bayer, RGGB) and interpolate the others bilinearly; below severity 1 the
    result is mixed with the full colours.
    """
    light, reconstructed = prepared
    return to_display(light + (reconstructed - light) * np.float32(severity))


def _light(image: ImageF32, rng: np.random.Generator) -> Light:
    return linear_from_srgb(image)


@add_continuous_shift(
    _light, family=FAMILY, unit="sigma", levels=(0.02, 0.05, 0.1, 0.2, 0.4), limit=10, stage="isp"
)
def denoise(image: ImageF32, severity: float, light: Light) -> ImageF32:
    """Smooth with a bilateral filter of 5 px: ``severity`` is the difference in linear light (summed over
    colours) at which a neighbour's weight falls to 61 %.
    """
    return to_display(bilateral(light, severity, DENOISE_SPACE))


def bilateral(light: Light, colour: float, space: float) -> Light:
    """Apply a bilateral filter with a round window of 5 px, as OpenCV defines it for floats.

    Args:
        light: H x W x 3.
        colour: Standard deviation of the weights over the sum of absolute differences of the colours.
        space: Standard deviation of the weights over the distance in px.
    """
    if colour < 1e-6:
        return light.copy()
    height, width = light.shape[:2]
    wide = np.pad(light, ((2, 2), (2, 2), (0, 0)), mode="reflect" if min(height, width) > 2 else "symmetric")
    total, weights = light.copy(), np.ones((height, width, 1), np.float32)
    for y, x in (*NEAR, *((-y, -x) for y, x in NEAR)):
        near = wide[2 + y : 2 + y + height, 2 + x : 2 + x + width]
        apart = np.abs(near - light).sum(-1, keepdims=True) / np.float32(colour)
        weight = np.exp(-0.5 * apart * apart - np.float32((y * y + x * x) / (2 * space * space)))
        total += weight * near
        weights += weight
    return np.asarray(total / weights)


def _soft(image: ImageF32, rng: np.random.Generator) -> tuple[Light, Light]:
    """Return the light, and what a blur takes away from it."""
    from scipy.ndimage import gaussian_filter

    light = linear_from_srgb(image)
    return light, light - gaussian_filter(light, (SHARPEN_RADIUS, SHARPEN_RADIUS, 0), mode="reflect")


@add_continuous_shift(_soft, family=FAMILY, unit="gain", levels=(0.5, 1, 2, 3, 5), limit=100, stage="isp")
def sharpen(image: ImageF32, severity: float, prepared: tuple[Light, Light]) -> ImageF32:
    """Sharpen with an unsharp mask of 1 px: add ``severity`` times what a Gaussian blur takes away."""
    light, detail = prepared
    return to_display(light + detail * np.float32(severity))


def _display(image: ImageF32, rng: np.random.Generator) -> Light:
    return np.asarray(np.sin(image * np.float32(2 * np.pi)) * np.float32(1 / (2 * np.pi)), np.float32)


@add_continuous_shift(
    _display, family=FAMILY, unit="contrast", levels=(0.2, 0.4, 0.6, 0.8, 1), limit=1, stage="isp"
)
def tone_curve(image: ImageF32, severity: float, wave: Light) -> ImageF32:
    """Raise the contrast with an S-shaped tone curve, x - ``severity`` sin(2 pi x) / (2 pi) on display
    values; at 1 its slope is 2 in the middle and 0 at both ends.
    """
    return clip(image - wave * np.float32(severity))
