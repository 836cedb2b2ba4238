"""A Bayer sensor: one colour a pixel, the other two filled in from its neighbours."""

from __future__ import annotations

import numpy as np

from sorites.optics.camera import Body, Light
from sorites.optics.sensor import Draw, raw

COLOUR = np.array([[0, 1], [1, 2]])
"""Which channel each pixel of a 2 x 2 block sees: red, green, green, blue."""


def through_mosaic(electrons: Light, iso: float, draw: Draw, body: Body, area: float) -> Light:
    """Raw numbers of H x W x 3 light as a Bayer sensor of 2H x 2W pixels gives them, demosaicked and halved.

    ``area`` counts sensor pixels behind one value of the picture: each of the four sites is the mean of a quarter of them, or
    one pixel where there are fewer. ``draw`` is for 2H x 2W x 3 and gives one number a site.
    """
    sites = sampled(np.repeat(np.repeat(electrons, 2, 0), 2, 1))
    chance = Draw(draw.photons[..., 0], draw.read[..., 0])
    return halved(demosaic(raw(sites, iso, chance, body, max(1.0, area / 4))))


def sampled(picture: Light) -> Light:
    """H x W x 3 to H x W: what each pixel sees through its filter. Sides are even."""
    seen = np.empty(picture.shape[:2], picture.dtype)
    for row, column in np.ndindex(2, 2):
        seen[row::2, column::2] = picture[row::2, column::2, COLOUR[row, column]]
    return seen


def demosaic(sites: Light) -> Light:
    """H x W to H x W x 3: a channel is kept where it was measured, elsewhere the mean of its nearest measured neighbours."""
    made = np.empty((*sites.shape, 3), sites.dtype)
    for channel in range(3):
        mask = np.tile(np.equal(COLOUR, channel), (sites.shape[0] // 2, sites.shape[1] // 2)).astype(sites.dtype)
        made[..., channel] = np.where(mask > 0, sites, _around(sites * mask) / _around(mask))
    return made


def _around(plane: Light) -> Light:
    """The sum over the 3 x 3 neighbourhood, near ones double: bilinear weights. Borders are mirrored, which keeps the pattern."""
    wide = np.pad(plane, 1, mode="reflect")
    rows = wide[:-2] + 2 * wide[1:-1] + wide[2:]
    around: Light = rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]
    return around


def halved(picture: Light) -> Light:
    """Means of 2 x 2 blocks."""
    height, width = picture.shape[0] // 2, picture.shape[1] // 2
    return np.ascontiguousarray(picture.reshape(height, 2, width, 2, 3).mean((1, 3)))
