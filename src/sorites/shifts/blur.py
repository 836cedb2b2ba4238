"""Blur by a kernel that is the same all over the picture: one forward transform per picture, one inverse per severity.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", ICLR 2019.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from sorites.core import Image, add_shift
from sorites.optics.convolve import Kernel
from sorites.optics.convolve import sweep as convolve
from sorites.scenes.fields import gaussian_taps
from sorites.shifts._dial import check

SMALL = 10
"""Disks of up to this radius in px are laid on arrays of one size, so that a sweep shares one transform."""

WIDEST = 500
"""The most px from the middle of a kernel to its edge: a wider kernel would take gigabytes."""


@functools.lru_cache(maxsize=64)
def _published_disk(radius: int) -> NDArray[np.float64]:
    """Return ImageNet-C's kernel: equal pixels within ``radius`` px, smoothed by a small Gaussian cut at 3 or 5 taps.

    From 8 px up the array is as wide as the disk and the smoothing mirrors at its edge, so the taps sum to as much
    as 1.0135. The published pictures have this gain, so it is kept here.
    """
    half = max(radius, 8)
    y, x = np.ogrid[-half : half + 1, -half : half + 1]
    disk = (x * x + y * y <= radius * radius).astype(np.float64)
    taps = np.arange(-1, 2) if radius <= 8 else np.arange(-2, 3)
    weights = np.exp(-0.5 * (taps / (0.1 if radius <= 3 else 0.5)) ** 2)
    smooth = functools.partial(ndimage.correlate1d, weights=weights / weights.sum(), mode="mirror")
    return smooth(smooth(disk / disk.sum(), axis=0), axis=1)  # type: ignore[no-any-return]


def disk(radius: float) -> NDArray[np.float64]:
    """Return ImageNet-C's kernel at a whole radius (px), or a mix of its two neighbours between whole radii; 0 is a point."""
    low, high = math.floor(radius), math.ceil(radius)
    half = max(SMALL, high)
    mixed = np.zeros((2 * half + 1, 2 * half + 1))
    for whole, weight in ((low, 1 - (radius - low)), (high, radius - low)):
        kernel = _published_disk(whole)
        edge = half - len(kernel) // 2
        mixed[edge : edge + len(kernel), edge : edge + len(kernel)] += weight * kernel
    return mixed


@functools.lru_cache(maxsize=32)
def _kernel(radius: float) -> Kernel:
    return Kernel(disk(radius))


@add_shift(family="blur", unit="px", levels=(3, 4, 6, 8, 10))
def defocus_disk(image: Image, severity: float, rng: np.random.Generator) -> Image:
    """Blur by a disk of radius ``severity`` px, as out of focus, mirrored at the border; whole radii are ImageNet-C's kernels."""
    return next(_defocus(image, [severity], rng))


@defocus_disk.sweeper
def _defocus(image: Image, severities: Sequence[float], rng: np.random.Generator) -> Iterator[Image]:
    check("defocus_disk", severities, WIDEST, "px")
    for _, group in itertools.groupby(severities, key=lambda radius: max(SMALL, math.ceil(radius))):
        for blurred in convolve(image, map(_kernel, group), "reflect"):
            yield np.clip(blurred, 0, 1, out=np.empty(image.shape, np.float32))


WIDE = 24
"""The px of border that a Gaussian of sigma up to 6 px needs; all of them get it, so that a sweep shares one transform."""


def _reach(sigma: float) -> int:
    return max(WIDE, int(4 * sigma + 0.5))


@functools.lru_cache(maxsize=32)
def _gaussian(sigma: float) -> Kernel:
    taps, reach = gaussian_taps(sigma), _reach(sigma)
    line = np.zeros(2 * reach + 1)
    line[reach : reach + len(taps)] = taps
    line[reach - len(taps) + 1 : reach + 1] = taps[::-1]
    return Kernel(np.outer(line, line))


@add_shift(family="blur", unit="px", levels=(1, 2, 3, 4, 6))
def gaussian_blur(image: Image, severity: float, rng: np.random.Generator) -> Image:
    """Blur by a Gaussian of standard deviation ``severity`` px, cut at four of them; border pixels are repeated outwards."""
    return next(_gaussian_sweep(image, [severity], rng))


@gaussian_blur.sweeper
def _gaussian_sweep(image: Image, severities: Sequence[float], rng: np.random.Generator) -> Iterator[Image]:
    check("gaussian_blur", severities, WIDEST / 4, "px")
    for reach, group in itertools.groupby(severities, key=_reach):
        wide = np.pad(image, ((reach, reach), (reach, reach), (0, 0)), mode="edge")
        for blurred in convolve(wide, map(_gaussian, group), "zeros"):
            yield np.clip(blurred[reach:-reach, reach:-reach], 0, 1, out=np.empty(image.shape, np.float32))
