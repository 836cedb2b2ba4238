"""A sensor turns electrons into raw numbers: photons are counted (Poisson), read noise is added,
the converter rounds and clips.

Part of the read noise arises before the ISO gain and part after it, so a dark image is cleaner at
high ISO than brightened later. An image smaller than its patch of the sensor is the mean of
``area`` pixels, and its noise variance falls by that number.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.optics.camera import Body, Light

# Below this many electrons counts are drawn from the Poisson distribution itself, from there on
# from a normal distribution of the same mean and variance.
FEW = 30.0


@dataclass(frozen=True)
class Draw:
    """The randomness of one shot, drawn before the camera is set: ``photons`` is the quantile of
    each value's photon count (0 to 65535) and ``read`` its read noise (standard normal). Two
    settings that use the same draw differ only in the setting.
    """

    photons: NDArray[np.uint16]
    read: Light

    @functools.cached_property
    def normal(self) -> Light:
        """The photon quantile as a normal deviate, for large counts."""
        return _normal()[self.photons]

    @functools.cached_property
    def quantile(self) -> NDArray[np.int32]:
        """The upper twelve bits of the photon quantile: one of 4096 slices of probability."""
        return (self.photons >> 4).astype(np.int32)

    @functools.cached_property
    def dither(self) -> Light:
        """The lower four bits of the photon quantile, as a number 0..1."""
        return ((self.photons & 15) + np.float32(0.5)) * np.float32(1 / 16)

    def at(self, where: NDArray[np.bool_]) -> Draw:
        """Return the draw restricted to some values."""
        return Draw(self.photons[where], self.read[where])

    @classmethod
    def of(cls, shape: tuple[int, ...], rng: np.random.Generator) -> Draw:
        """Return a new draw for an image of ``shape``."""
        photons = rng.integers(0, 1 << 16, shape, dtype=np.uint16)
        return cls(photons, rng.standard_normal(shape, dtype=np.float32))

    def again(self, shot: int) -> Draw:
        """Return the draw of another shot of the same scene; shot 0 is this one."""
        step = 7919 * shot
        return Draw(np.roll(self.photons, step), np.roll(self.read, step)) if shot else self


def raw(electrons: Light, iso: float, draw: Draw, body: Body, area: float = 1.0) -> Light:
    """Return digital numbers for the mean electrons per pixel; each is the mean of ``area`` pixels,
    and a whole number if that is 1.

    Results lie from 0 to ``white_dn``. No light gives ``black_dn`` plus read noise.
    """
    counts = electrons * np.float32(area)
    rounding = 0.0 if area == 1 else 1 / (12 * body.dn_per_e(iso) ** 2)
    read = np.float32(math.sqrt((body.noise_e(iso) ** 2 + rounding) * area))
    few = counts < FEW
    if not few.any():
        noisy = _many(counts, draw.normal, read)
    elif few.all():
        noisy = _poisson(counts, draw) + draw.read * read
    else:
        noisy = _many(counts, draw.normal, read)
        some = draw.at(few)
        noisy[few] = _poisson(counts[few], some) + some.read * read
    noisy *= np.float32(body.dn_per_e(iso) / area)
    noisy += np.float32(body.black_dn)
    if area == 1:
        np.rint(noisy, out=noisy)
    return np.clip(noisy, 0, body.white_dn, out=noisy)


def _many(counts: Light, normal: Light, read: np.float32) -> Light:
    """Return large counts with photon and read noise together, as one normal deviate."""
    noisy: Light = np.sqrt(counts + read * read)
    noisy *= normal
    noisy += counts
    return noisy


@functools.cache
def _normal() -> Light:
    """Return the normal deviates of the 65536 quantiles that a draw can take."""
    from scipy.special import ndtri

    return np.asarray(ndtri((np.arange(1 << 16) + 0.5) / (1 << 16)), np.float32)


# Number of rows of the Poisson table per unit of the square root of the rate.
STEPS = 48


def _poisson(rates: Light, draw: Draw) -> Light:
    """Return Poisson counts by inversion.

    Twelve bits of the draw are the quantile; the other four choose between the two nearest rates of
    the table, with the frequency that makes the mean right.
    """
    scaled = rates * np.float32(STEPS**2)
    row = np.sqrt(scaled).astype(np.int32)
    below = row.astype(np.float32)
    scaled -= below * below
    below *= np.float32(2)
    below += np.float32(1)
    below *= draw.dither
    row += below < scaled
    row <<= 12
    row += draw.quantile
    counts: Light = np.take(_poisson_table(), row, mode="clip").astype(np.float32)
    return counts


@functools.cache
def _poisson_table() -> NDArray[np.uint8]:
    """Return the counts at 4096 slices of probability for each rate (k / STEPS)^2 up to ``FEW``, flat."""
    from scipy.special import pdtr

    rates = (np.arange(int(math.sqrt(FEW) * STEPS) + 2) / STEPS) ** 2
    slices = (np.arange(4096) + 0.5) / 4096
    below = pdtr(np.arange(80)[:, None], rates).T
    return np.concatenate([np.searchsorted(row, slices) for row in below]).astype(np.uint8)


# A Bayer sensor measures one colour per pixel; the other two are filled in from the neighbours.


# The channel that each pixel of a 2 x 2 block measures: red, green, green, blue.
COLOUR = np.array([[0, 1], [1, 2]])


def through_mosaic(electrons: Light, iso: float, draw: Draw, body: Body, area: float) -> Light:
    """Return raw numbers for H x W x 3 light: a Bayer sensor of 2H x 2W pixels takes it, then it is
    demosaicked and halved.

    ``area`` is the number of sensor pixels behind one value of the image. Each of the four sites
    is the mean of a quarter of them, or one pixel if there are fewer. ``draw`` has shape 2H x 2W x
    3; its first channel is used, one number per site.
    """
    sites = sampled(np.repeat(np.repeat(electrons, 2, 0), 2, 1))
    chance = Draw(draw.photons[..., 0], draw.read[..., 0])
    return halved(demosaic(raw(sites, iso, chance, body, max(1.0, area / 4))))


def sampled(image: Light) -> Light:
    """Return what each pixel measures through its filter, from H x W x 3 to H x W. The sides must be even."""
    seen = np.empty(image.shape[:2], image.dtype)
    for row, column in np.ndindex(2, 2):
        seen[row::2, column::2] = image[row::2, column::2, COLOUR[row, column]]
    return seen


def demosaic(sites: Light) -> Light:
    """Fill in the missing channels, from H x W to H x W x 3: a channel keeps its measured values
    and takes the mean of the nearest measured neighbours elsewhere.
    """
    image = np.empty((*sites.shape, 3), sites.dtype)
    for channel in range(3):
        mask = np.tile(np.equal(COLOUR, channel), (sites.shape[0] // 2, sites.shape[1] // 2)).astype(
            sites.dtype
        )
        image[..., channel] = np.where(mask > 0, sites, _around(sites * mask) / _around(mask))
    return image


def _around(plane: Light) -> Light:
    """Return the bilinear sum over the 3 x 3 neighbourhood (weights 1, 2, 1).

    Mirrored borders keep the mosaic's pattern.
    """
    wide = np.pad(plane, 1, mode="reflect")
    rows = wide[:-2] + 2 * wide[1:-1] + wide[2:]
    around: Light = rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]
    return around


def halved(image: Light) -> Light:
    """Return the means of 2 x 2 blocks."""
    height, width = image.shape[0] // 2, image.shape[1] // 2
    return np.ascontiguousarray(image.reshape(height, 2, width, 2, 3).mean((1, 3)))
