"""Sensor model: photon counts (Poisson) and read noise become rounded and clipped raw values.

Part of the read noise arises before the ISO gain and part after it, so a dark image at high ISO is cleaner
than one brightened later. A value of a smaller image is the mean of ``area`` sensor pixels, and its noise
variance falls by that factor.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.optics.camera import Body, Light

# Below this many electrons, counts are drawn from a Poisson distribution; above, from a normal distribution
# of equal mean and variance.
POISSON_MAX_E = 30.0


@dataclass(frozen=True)
class Draw:
    """The random numbers of one shot, drawn before the camera is set: settings that share a draw differ only
    in the setting.

    Attributes:
        photons: Quantile of each value's photon count (0 to 65535).
        read: Read noise of each value (standard normal).
    """

    photons: NDArray[np.uint16]
    read: Light

    @functools.cached_property
    def normal(self) -> Light:
        """The photon quantile as a normal deviate, for large counts."""
        return _normal()[self.photons]

    @functools.cached_property
    def quantile(self) -> NDArray[np.int32]:
        """The upper twelve bits of the photon quantile."""
        return (self.photons >> 4).astype(np.int32)

    @functools.cached_property
    def dither(self) -> Light:
        """The lower four bits of the photon quantile, as a number 0..1."""
        return ((self.photons & 15) + np.float32(0.5)) * np.float32(1 / 16)

    def at(self, where: NDArray[np.bool_]) -> Draw:
        """Return the draw of the selected values."""
        return Draw(self.photons[where], self.read[where])

    @classmethod
    def of(cls, shape: tuple[int, ...], rng: np.random.Generator) -> Draw:
        """Draw random numbers for an image of ``shape``."""
        photons = rng.integers(0, 1 << 16, shape, dtype=np.uint16)
        return cls(photons, rng.standard_normal(shape, dtype=np.float32))

    def again(self, shot: int) -> Draw:
        """Return the draw of another shot of the same scene; shot 0 is this one."""
        step = 7919 * shot
        return Draw(np.roll(self.photons, step), np.roll(self.read, step)) if shot else self


def raw(electrons: Light, iso: float, draw: Draw, body: Body, area: float = 1.0) -> Light:
    """Convert mean electrons per pixel to digital numbers from 0 to ``white_dn``.

    Args:
        electrons: Mean electrons per pixel; 0 gives ``black_dn`` plus read noise.
        iso: ISO speed.
        draw: Random numbers of the shot.
        body: The camera.
        area: Number of sensor pixels that each value averages; values are whole numbers if it is 1.
    """
    counts = electrons * np.float32(area)
    rounding = 0.0 if area == 1 else 1 / (12 * body.dn_per_e(iso) ** 2)
    read = np.float32(math.sqrt((body.noise_e(iso) ** 2 + rounding) * area))
    few = counts < POISSON_MAX_E
    if not few.any():
        noisy = _add_normal_noise(counts, draw.normal, read)
    elif few.all():
        noisy = _poisson(counts, draw) + draw.read * read
    else:
        noisy = _add_normal_noise(counts, draw.normal, read)
        few_draw = draw.at(few)
        noisy[few] = _poisson(counts[few], few_draw) + few_draw.read * read
    noisy *= np.float32(body.dn_per_e(iso) / area)
    noisy += np.float32(body.black_dn)
    if area == 1:
        np.rint(noisy, out=noisy)
    return np.clip(noisy, 0, body.white_dn, out=noisy)


def _add_normal_noise(counts: Light, normal: Light, read: np.float32) -> Light:
    """Add photon and read noise to large counts as one normal deviate."""
    noisy: Light = np.sqrt(counts + read * read)
    noisy *= normal
    noisy += counts
    return noisy


@functools.cache
def _normal() -> Light:
    """Return the normal deviates of the 65536 possible quantiles."""
    from scipy.special import ndtri

    return np.asarray(ndtri((np.arange(1 << 16) + 0.5) / (1 << 16)), np.float32)


# Rows of the Poisson table per unit of the square root of the rate.
ROWS_PER_ROOT_RATE = 48


def _poisson(rates: Light, draw: Draw) -> Light:
    """Draw Poisson counts by inversion.

    Twelve bits of the draw are the quantile. The other four choose between the two nearest rates of the table
    so that the mean is exact.
    """
    scaled = rates * np.float32(ROWS_PER_ROOT_RATE**2)
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
    """Return a flat table of counts at 4096 quantiles for each rate (k / ROWS_PER_ROOT_RATE)^2 up to
    ``POISSON_MAX_E``.
    """
    from scipy.special import pdtr

    rates = (np.arange(int(math.sqrt(POISSON_MAX_E) * ROWS_PER_ROOT_RATE) + 2) / ROWS_PER_ROOT_RATE) ** 2
    slices = (np.arange(4096) + 0.5) / 4096
    below = pdtr(np.arange(80)[:, None], rates).T
    return np.concatenate([np.searchsorted(row, slices) for row in below]).astype(np.uint8)


# Bayer mosaic

# Channel of each pixel in a 2 x 2 block: red, green, green, blue.
COLOUR = np.array([[0, 1], [1, 2]])


def through_mosaic(electrons: Light, iso: float, draw: Draw, body: Body, area: float) -> Light:
    """Return raw values of H x W x 3 light captured by a Bayer sensor of 2H x 2W pixels, demosaicked and
    halved.

    Args:
        electrons: Mean electrons per pixel, H x W x 3.
        iso: ISO speed.
        draw: Random numbers of shape 2H x 2W x 3, of which the first channel is used.
        body: The camera.
        area: Number of sensor pixels per value of the image; each of the four sites averages a quarter of
            them, or one pixel if there are fewer.
    """
    sites = sampled(np.repeat(np.repeat(electrons, 2, 0), 2, 1))
    chance = Draw(draw.photons[..., 0], draw.read[..., 0])
    return halved(demosaic(raw(sites, iso, chance, body, max(1.0, area / 4))))


def sampled(image: Light) -> Light:
    """Return the value that each pixel measures through its filter, from H x W x 3 to H x W; sides must be
    even.
    """
    mosaic = np.empty(image.shape[:2], image.dtype)
    for row, column in np.ndindex(2, 2):
        mosaic[row::2, column::2] = image[row::2, column::2, COLOUR[row, column]]
    return mosaic


def demosaic(sites: Light) -> Light:
    """Interpolate the missing channels bilinearly, from H x W to H x W x 3; measured values are kept."""
    image = np.empty((*sites.shape, 3), sites.dtype)
    for channel in range(3):
        mask = np.tile(np.equal(COLOUR, channel), (sites.shape[0] // 2, sites.shape[1] // 2)).astype(
            sites.dtype
        )
        image[..., channel] = np.where(mask > 0, sites, _around(sites * mask) / _around(mask))
    return image


def _around(plane: Light) -> Light:
    """Return the weighted sum over the 3 x 3 neighbourhood (weights 1, 2, 1); mirrored borders keep the
    mosaic's pattern.
    """
    wide = np.pad(plane, 1, mode="reflect")
    rows = wide[:-2] + 2 * wide[1:-1] + wide[2:]
    around: Light = rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]
    return around


def halved(image: Light) -> Light:
    """Return the means of 2 x 2 blocks."""
    height, width = image.shape[0] // 2, image.shape[1] // 2
    return np.ascontiguousarray(image.reshape(height, 2, width, 2, 3).mean((1, 3)))
