"""A Bayer sensor measures one colour per pixel; the other two are filled in from the neighbours."""

from __future__ import annotations

import numpy as np

from sorites.optics.camera import Body, Light
from sorites.optics.sensor import Draw, raw

COLOUR = np.array([[0, 1], [1, 2]])
"""The channel that each pixel of a 2 x 2 block measures: red, green, green, blue."""


def through_mosaic(electrons: Light, iso: float, draw: Draw, body: Body, area: float) -> Light:
    """Return raw numbers for H x W x 3 light: a Bayer sensor of 2H x 2W pixels takes it, then it is demosaicked and halved.

    ``area`` is the number of sensor pixels behind one value of the picture. Each of the four sites is the mean of a quarter of
    them, or one pixel if there are fewer. ``draw`` has shape 2H x 2W x 3; its first channel is used, one number per site.
    """
    sites = sampled(np.repeat(np.repeat(electrons, 2, 0), 2, 1))
    chance = Draw(draw.photons[..., 0], draw.read[..., 0])
    return halved(demosaic(raw(sites, iso, chance, body, max(1.0, area / 4))))


def sampled(picture: Light) -> Light:
    """Return what each pixel measures through its filter, from H x W x 3 to H x W. The sides must be even."""
    seen = np.empty(picture.shape[:2], picture.dtype)
    for row, column in np.ndindex(2, 2):
        seen[row::2, column::2] = picture[row::2, column::2, COLOUR[row, column]]
    return seen


def demosaic(sites: Light) -> Light:
    """Fill in the missing channels, from H x W to H x W x 3: a channel keeps its measured values and takes the mean of the
    nearest measured neighbours elsewhere."""
    picture = np.empty((*sites.shape, 3), sites.dtype)
    for channel in range(3):
        mask = np.tile(np.equal(COLOUR, channel), (sites.shape[0] // 2, sites.shape[1] // 2)).astype(sites.dtype)
        picture[..., channel] = np.where(mask > 0, sites, _around(sites * mask) / _around(mask))
    return picture


def _around(plane: Light) -> Light:
    """Return the bilinear sum over the 3 x 3 neighbourhood (weights 1, 2, 1). Mirrored borders keep the mosaic's pattern."""
    wide = np.pad(plane, 1, mode="reflect")
    rows = wide[:-2] + 2 * wide[1:-1] + wide[2:]
    around: Light = rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]
    return around


def halved(picture: Light) -> Light:
    """Return the means of 2 x 2 blocks."""
    height, width = picture.shape[0] // 2, picture.shape[1] // 2
    return np.ascontiguousarray(picture.reshape(height, 2, width, 2, 3).mean((1, 3)))
