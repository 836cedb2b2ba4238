"""Measures of pixel values: PSNR, SSIM, clipped values, exposure and haze."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sorites.core import ImageU8, add_measure
from sorites.core.errors import BadImage
from sorites.optics.develop import light_of_bytes


@add_measure(nearer="higher", unit="dB")
def psnr(reference: ImageU8, moved: ImageU8) -> float:
    """Peak signal-to-noise ratio in dB with white = 255; infinite for equal images."""
    error = np.square(reference.astype(np.float64) - moved).mean()
    return float(10 * math.log10(255**2 / error)) if error else math.inf


@add_measure(nearer="higher", unit="-1 to 1")
def ssim(reference: ImageU8, moved: ImageU8) -> float:
    """Structural similarity (Wang et al. 2004), mean over pixels and channels; 1 for equal images.

    The window is Gaussian, 11 px wide with sigma 1.5; images must have at least 11 px per side.
    """
    if min(reference.shape[:2]) < 11:
        raise BadImage(
            f"SSIM needs images of at least 11x11 px, got {reference.shape[1]}x{reference.shape[0]}"
        )
    from sorites.optics import quality

    return quality.ssim(reference, moved, white=255)


@add_measure(nearer="lower", unit="share of values")
def clipped_share(reference: ImageU8, moved: ImageU8) -> float:
    """Share of values at 0 or 255 that are not so in the reference; 0 for equal images, at most 1."""
    ends = np.isin(moved, (0, 255)) & ~np.isin(reference, (0, 255))
    return float(ends.mean())


@add_measure(nearer="lower", unit="stops")
def exposure_error(reference: ImageU8, moved: ImageU8) -> float:
    """Change of the mean luminance in stops: positive if the image became lighter, negative if darker.

    Values near 0 are near the reference. A black image counts as half of the smallest 8-bit step.
    """
    return math.log2(_luminance(moved) / _luminance(reference))


def _luminance(image: ImageU8) -> float:
    means = [light_of_bytes()[image[..., channel]].mean() for channel in range(3)]
    return max(float(np.dot(means, (0.2126, 0.7152, 0.0722))), float(light_of_bytes()[1]) / 2)


# Rec. 709 luminance weights.
_GREY = np.array([0.2126, 0.7152, 0.0722])


@add_measure(nearer="lower", unit="optical depth")
def haze_depth(reference: ImageU8, moved: ImageU8) -> float:
    """Optical depth gained: -log of the remaining share of the scene's contrast, in linear light; 0 for
    equal images.

    Lower is nearer; at 1 about a third of the contrast remains. The share is the slope of the moved
    image's light on the reference's: through homogeneous air of optical depth d the light is J exp(-d)
    + A (1 - exp(-d)) (Koschmieder 1924), so the slope is exp(-d). Streaks and flakes do not depend on
    the scene and do not count as contrast. The value is infinite where no contrast remains, and NaN
    where the reference is a single grey.
    """
    before, after = _light(reference), _light(moved)
    spread = float(before.var())
    if spread < 1e-12:
        return math.nan
    share = float(((before - before.mean()) * (after - after.mean())).mean()) / spread
    return -math.log(share) if share > 0 else math.inf


def _light(image: ImageU8) -> NDArray[np.float64]:
    light: NDArray[np.float64] = light_of_bytes()[image] @ _GREY
    return light
