"""Global shifts of light and colour: brightness, contrast and saturation.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations", ICLR 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sorites.core import ImageF32
from sorites.scenes.fields import Field, across, front_mask
from sorites.shifts.base import LEVELS, add_continuous_shift, between, clip


def _value(image: ImageF32, rng: np.random.Generator) -> ImageF32:
    """Return V of HSV, the maximum of the channels."""
    return np.maximum(np.maximum(image[..., 0], image[..., 1]), image[..., 2])


@add_continuous_shift(_value, family="light", unit="V of HSV", levels=(0.1, 0.2, 0.3, 0.4, 0.5), stage="isp")
def brightness(image: ImageF32, severity: float, value: ImageF32) -> ImageF32:
    """Increase V of HSV by ``severity``, clipped at 1; hue and saturation are unchanged, black turns gray."""
    raised = np.minimum(value + np.float32(severity), np.float32(1))
    black = value == 0
    ratio = raised / np.where(black, np.float32(1), value)
    brighter = np.empty_like(image)
    for channel in range(3):
        np.multiply(image[..., channel], ratio, out=brighter[..., channel])
    if black.any():
        brighter[black] = raised[black, None]
    return np.minimum(brighter, np.float32(1), out=brighter)


def _mean(image: ImageF32, rng: np.random.Generator) -> ImageF32:
    """Return the mean of each channel, repeated for one row of the image."""
    means = [image[..., channel].mean(dtype=np.float64) for channel in range(3)]
    return np.tile(np.array(means, np.float32), (1, image.shape[1], 1))


@add_continuous_shift(
    _mean, family="light", unit="1 - c", levels=(0.6, 0.7, 0.8, 0.9, 0.95), limit=1, stage="isp"
)
def contrast(image: ImageF32, severity: float, mean: ImageF32) -> ImageF32:
    """Scale each channel about its mean by c = 1 - ``severity``; at severity 1 the image is uniform."""
    flatter = image * np.float32(1 - severity)
    flatter += mean * np.float32(severity)
    return clip(flatter)


PALER = ((1, 0), (0.3, 0), (0.1, 0))
# The factor and offset of S per level: ``PALER`` at levels 0 to 2, ``VIVID`` at levels 3 to 5.
VIVID = ((2, 0), (5, 0.1), (20, 0.2))


@dataclass(frozen=True)
class _Hsv:
    value: ImageF32
    saturation: ImageF32
    hue: tuple[ImageF32, ImageF32, ImageF32]
    """The distance of each channel below V, relative to chroma: 1 for the minimum; gray counts as red."""
    along: Field
    """The position of each pixel along the direction of the transition between levels 2 and 3."""


def _hsv(image: ImageF32, rng: np.random.Generator) -> _Hsv:
    along = across(image.shape[0], image.shape[1], rng.uniform(0, 2 * np.pi))
    value = _value(image, rng)
    chroma = value - np.minimum(np.minimum(image[..., 0], image[..., 1]), image[..., 2])
    gray = chroma == 0
    span: Field = np.where(gray, np.float32(1), chroma)
    red, green, blue = ((value - image[..., channel]) / span for channel in range(3))
    green[gray] = blue[gray] = 1
    np.copyto(span, value, where=~gray)
    return _Hsv(value, chroma / span, (red, green, blue), along)


@add_continuous_shift(_hsv, family="light", unit="level", levels=LEVELS, limit=5, stage="isp")
def saturate(image: ImageF32, severity: float, hsv: _Hsv) -> ImageF32:
    """Change S of HSV by a factor and an offset: paler up to level 2, more vivid from level 3; hue and value
    are unchanged.

    Between levels 2 and 3 the vivid image slides over the pale one, because interpolated factors would
    pass through the unchanged image.
    """
    chroma = hsv.value * _saturation(hsv, severity)
    out = np.empty_like(image)
    for channel in range(3):
        np.subtract(hsv.value, chroma * hsv.hue[channel], out=out[..., channel])
    return clip(out)


def _saturation(hsv: _Hsv, severity: float) -> Field:
    pale, vivid = (
        clip(hsv.saturation * np.float32(factor) + np.float32(offset))
        for factor, offset in (between(PALER, min(severity, 2.0)), between(VIVID, max(severity - 3, 0.0)))
    )
    if severity <= 2 or severity >= 3:
        return pale if severity <= 2 else vivid
    return pale + (vivid - pale) * front_mask(hsv.along, severity - 2)
