"""Blur shifts: defocus, Gaussian, motion, zoom and frosted glass.

Sweeps with a fixed kernel need one forward transform per image and one inverse transform per severity.
Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations", ICLR 2019.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from sorites.core import ImageF32, ImageU8, add_shift, to_uint8
from sorites.optics import convolve
from sorites.optics.convolve import Kernel, sweep
from sorites.scenes.fields import Field, gaussian_taps, half_gaussian, smooth, streak
from sorites.shifts.base import LEVELS, add_continuous_shift, between, check, clip

# Disks up to this radius in px use arrays of the same size, so that a sweep shares one transform.
SMALL_RADIUS_PX = 10

# The maximum radius of a kernel in px: larger kernels would take gigabytes.
MAX_RADIUS_PX = 500


@functools.lru_cache(maxsize=64)
def _published_disk(radius: int) -> NDArray[np.float64]:
    """Return ImageNet-C's kernel: a disk of ``radius`` px, smoothed by a small Gaussian of 3 or 5 taps.

    From 8 px on, the array is as wide as the disk and the smoothing mirrors at its border, so the taps sum
    to up to 1.0135. The published images have this gain, so it is kept here.
    """
    half = max(radius, 8)
    y, x = np.ogrid[-half : half + 1, -half : half + 1]
    disk = (x * x + y * y <= radius * radius).astype(np.float64)
    taps = np.arange(-1, 2) if radius <= 8 else np.arange(-2, 3)
    weights = np.exp(-0.5 * (taps / (0.1 if radius <= 3 else 0.5)) ** 2)
    smooth = functools.partial(ndimage.correlate1d, weights=weights / weights.sum(), mode="mirror")
    return smooth(smooth(disk / disk.sum(), axis=0), axis=1)  # type: ignore[no-any-return]


def disk(radius: float) -> NDArray[np.float64]:
    """Return ImageNet-C's kernel for a radius in px, interpolated between integers; 0 is the identity."""
    low, high = math.floor(radius), math.ceil(radius)
    half = max(SMALL_RADIUS_PX, high)
    mixed = np.zeros((2 * half + 1, 2 * half + 1))
    for whole, weight in ((low, 1 - (radius - low)), (high, radius - low)):
        kernel = _published_disk(whole)
        edge = half - len(kernel) // 2
        mixed[edge : edge + len(kernel), edge : edge + len(kernel)] += weight * kernel
    return mixed


@functools.lru_cache(maxsize=32)
def _kernel(radius: float) -> Kernel:
    return Kernel(disk(radius))


@add_shift(family="blur", unit="px", levels=(3, 4, 6, 8, 10), version=convolve.VERSION, stage="optics")
def defocus_disk(image: ImageF32, severity: float, rng: np.random.Generator) -> ImageF32:
    """Blur by a disk of radius ``severity`` px, like defocus, mirrored at the border; integer radii are
    ImageNet-C's kernels.
    """
    return next(_defocus(image, [severity], rng))


@defocus_disk.sweeper
def _defocus(image: ImageF32, severities: Sequence[float], rng: np.random.Generator) -> Iterator[ImageF32]:
    check("defocus_disk", severities, MAX_RADIUS_PX, "px")
    for _, group in itertools.groupby(severities, key=lambda radius: max(SMALL_RADIUS_PX, math.ceil(radius))):
        for blurred in sweep(image, map(_kernel, group), "reflect"):
            yield np.clip(blurred, 0, 1, out=np.empty(image.shape, np.float32))


# The border in px for a Gaussian of sigma up to 6 px; smaller ones use it too, so that a sweep shares one
# transform.
MIN_BORDER_PX = 24


def _reach(sigma: float) -> int:
    return max(MIN_BORDER_PX, int(4 * sigma + 0.5))


@functools.lru_cache(maxsize=32)
def _gaussian(sigma: float) -> Kernel:
    taps, reach = gaussian_taps(sigma), _reach(sigma)
    line = np.zeros(2 * reach + 1)
    line[reach : reach + len(taps)] = taps
    line[reach - len(taps) + 1 : reach + 1] = taps[::-1]
    return Kernel(np.outer(line, line))


@add_shift(family="blur", unit="px", levels=(1, 2, 3, 4, 6), version=convolve.VERSION, stage="optics")
def gaussian_blur(image: ImageF32, severity: float, rng: np.random.Generator) -> ImageF32:
    """Blur by a Gaussian of standard deviation ``severity`` px, truncated at four of them; border pixels are
    repeated.
    """
    return next(_gaussian_sweep(image, [severity], rng))


@gaussian_blur.sweeper
def _gaussian_sweep(
    image: ImageF32, severities: Sequence[float], rng: np.random.Generator
) -> Iterator[ImageF32]:
    check("gaussian_blur", severities, MAX_RADIUS_PX / 4, "px")
    for reach, group in itertools.groupby(severities, key=_reach):
        padded = np.pad(image, ((reach, reach), (reach, reach), (0, 0)), mode="edge")
        for blurred in sweep(padded, map(_gaussian, group), "zeros"):
            yield np.clip(blurred[reach:-reach, reach:-reach], 0, 1, out=np.empty(image.shape, np.float32))


# Motion of the camera: sideways and forward.


# Left, top, right and bottom of a part of the image, in px.
Box = tuple[float, float, float, float]

# Per level: length and sigma of the streak in px.
STREAK = ((0, 0), (10, 3), (15, 5), (15, 8), (15, 12), (20, 15))


def _angle(image: ImageF32, rng: np.random.Generator) -> float:
    return math.radians(rng.uniform(-45, 45))


@add_continuous_shift(_angle, family="blur", unit="level", levels=LEVELS, limit=5, stage="optics")
def motion_blur(image: ImageF32, severity: float, angle: float) -> ImageF32:
    """Move the camera along a line within 45 degrees of horizontal, fading like half a Gaussian; one angle
    per sample.
    """
    reach, sigma = between(STREAK, severity)
    return clip(streak(image, half_gaussian(reach, sigma), angle))


# Per level: the zoom step between exposures, and their number, including the unchanged one.
ZOOMS = ((0.01, 12), (0.01, 16), (0.02, 11), (0.02, 13), (0.03, 11))


@dataclass
class _Exposures:
    """The exposures of a forward motion, cached for the other severities of a sweep."""

    image: ImageU8
    by_box: dict[Box, ImageU8] = field(default_factory=dict)

    def enlarged(self, box: Box) -> ImageU8:
        """Return the part of the image in ``box``, enlarged to the full size."""
        from PIL import Image as pil

        if box not in self.by_box:
            height, width = self.image.shape[:2]
            enlarged = pil.fromarray(self.image).resize((width, height), pil.Resampling.BILINEAR, box=box)
            self.by_box[box] = np.asarray(enlarged)
        return self.by_box[box]


def _exposures(image: ImageF32, rng: np.random.Generator) -> _Exposures:
    return _Exposures(to_uint8(image))


@add_continuous_shift(_exposures, family="blur", unit="level", levels=LEVELS, limit=5, stage="optics")
def zoom_blur(image: ImageF32, severity: float, exposures: _Exposures) -> ImageF32:
    """Move the camera forward: average the image and increasingly enlarged exposures, each at 8 bits.

    Between levels the two neighbours are mixed; level 0 is the unchanged image.
    """
    weights = _weights(image.shape[0], image.shape[1], severity)
    out = image * np.float32(1 - sum(weights.values()))
    layer = np.empty_like(image)
    for box, weight in weights.items():
        np.multiply(exposures.enlarged(box), np.float32(weight / 255), out=layer)
        out += layer
    return clip(out)


def _weights(height: int, width: int, severity: float) -> dict[Box, float]:
    """Return the weight of each enlarged exposure at a severity; the image has the remaining weight."""
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
    """Return the part of a side that fills it at ``zoom``, rounded to whole pixels as published."""
    cropped = math.ceil(length / zoom)
    scale = (cropped - 1) / max(round(cropped * zoom) - 1, 1) or 1 / length
    start = (length - cropped) // 2 + 0.5 - 0.5 * scale
    return start, min(start + length * scale, length)


# Frosted glass: pixels are swapped with neighbours between two blurs.


# Per level: the sigma of the blur in px, then the maximum displacement in px in each of up to three rounds.
GLASS = ((0, 0, 0, 0), (0.7, 1, 1, 0), (0.9, 2, 0, 0), (1, 2, 2, 2), (1.1, 3, 3, 0), (1.5, 4, 4, 0))


def _rounds(image: ImageF32, rng: np.random.Generator) -> Field:
    """Draw three uniform fields per round: vertical and horizontal displacement, and which pixels reach
    further first.
    """
    return rng.random((3, 3, *image.shape[:2]), dtype=np.float32)


@add_continuous_shift(_rounds, family="blur", unit="level", levels=LEVELS, limit=5, stage="optics")
def glass_blur(image: ImageF32, severity: float, rounds: Field) -> ImageF32:
    """Show the image through frosted glass: blur, replace each pixel by a nearby one, and blur again."""
    sigma, *reaches = between(GLASS, severity)
    height, width = image.shape[:2]
    source = np.arange(height * width)
    for draw, reach in zip(rounds, reaches, strict=True):
        if reach > 0:
            source = source[_fetch(draw, reach)]
    blurred = smooth(image, sigma).reshape(-1, 3)
    return clip(smooth(np.take(blurred, source, axis=0).reshape(image.shape), sigma))


def _fetch(draw: Field, reach: float) -> NDArray[np.intp]:
    """Return the source of each pixel after one round, as flat indices.

    The published loop runs from the last pixel to the first and copies a nearby pixel over each, so a value
    that comes from later pixels may already have been replaced. Such chains of copies are followed to their
    ends, all at once. Between two integer reaches, a share of the pixels has the larger one.
    """
    height, width = draw.shape[1:]
    inner = _visited_window(height, width, int(np.ceil(reach)))
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


def _visited_window(height: int, width: int, margin: int) -> tuple[slice, slice]:
    """Return the rows and columns that the published loop visits: all but a border, which is one px wider at
    the top and left.
    """
    return slice(margin + 1, max(height - margin, margin) + 1), slice(
        margin + 1, max(width - margin, margin) + 1
    )


def _offsets(draw: Field, reach: float, width: int) -> NDArray[np.intp]:
    """Return uniform integer offsets from -reach to reach - 1 px in both directions, as flat index steps."""
    whole = np.floor(np.float32(reach))
    each = whole + (draw[2] < np.float32(reach) - whole)
    down, across = (np.floor(draw[:2] * (2 * each)) - each).astype(np.intp)
    steps: NDArray[np.intp] = down * width + across
    return steps
