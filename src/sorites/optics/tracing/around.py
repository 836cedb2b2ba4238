"""The kernels of a rotationally symmetric lens at all azimuths, from those traced between 0 and 90 degrees.

The light of a field is symmetric about the plane through the axis, and pixels are square. A mirror image
about x, y or the diagonal is therefore the exact kernel of the mirrored azimuth, and the kernels traced at 0,
11.25, 22.5, 33.75 and 45 degrees give all ``SECTORS``. Files without the azimuths between 0 and 45 degrees
(made by others) get rotated pixels there, which differ from a trace by an L1 of 0.1 to 0.4.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from sorites.optics.tracing.blur import AZIMUTHS, BETWEEN, FIELDS

Array = NDArray[np.floating[Any]]
# Azimuths per full turn that have a kernel.
SECTORS = 32
STEP_DEG = 360 / SECTORS


def around(kernels: Array, between: Array | None = None) -> NDArray[np.float32]:
    """Return 1 + 4 x ``SECTORS`` kernels: the axis, then all azimuths of each traced field.

    Args:
        kernels: The thirteen kernels of a lens, in the order of ``blur.POSITIONS``.
        between: Its kernels at the azimuths ``blur.BETWEEN`` (field x azimuth x colour x y x x).
    """
    made = [kernels[0]]
    for at in range(len(FIELDS) - 1):
        traced = kernels[1 + len(AZIMUTHS) * at : 1 + len(AZIMUTHS) * (at + 1)]
        quarter = _quarter(traced, None if between is None else between[at])
        made += [_mirrored(quarter, k) for k in range(SECTORS)]
    return np.asarray(made, np.float32)


def _quarter(traced: Array, between: Array | None) -> list[Array]:
    """Return the kernels of one field from 0 to 90 degrees in steps of ``STEP_DEG``."""
    if between is None:
        between = np.stack([_rotated(traced, azimuth) for azimuth in BETWEEN])
        beyond = np.stack([_rotated(traced, 90 - azimuth) for azimuth in reversed(BETWEEN)])
    else:
        beyond = np.swapaxes(between[::-1], -1, -2)
    return [traced[0], *between, traced[1], *beyond, traced[2]]


def _rotated(traced: Array, azimuth: float) -> Array:
    """Return the kernel at an azimuth by rotating the pixels of the nearest traced one."""
    nearest = int(np.argmin([abs(azimuth - stated) for stated in AZIMUTHS]))
    return rotated(traced[nearest], AZIMUTHS[nearest] - azimuth)


def rotated(kernel: Array, degrees: float) -> Array:
    """Return a kernel (colour, y, x) with its pixels rotated from y towards x; each colour sums to 1."""
    # Rows are y: a turn from x towards y is one from columns towards rows.
    turned = np.maximum(ndimage.rotate(kernel, degrees, axes=(1, 2), reshape=False, order=3), 0)
    return np.asarray(turned / turned.sum((-2, -1), keepdims=True))


def _mirrored(quarter: list[Array], k: int) -> Array:
    """Return the kernel of azimuth ``k`` steps from those of the first quarter of a turn."""
    turn = math.tau * k / SECTORS
    c, s = round(math.cos(turn), 9), round(math.sin(turn), 9)
    kernel = quarter[round(SECTORS * math.atan2(abs(s), abs(c)) / math.tau)]
    kernel = kernel[:, ::-1] if s < 0 else kernel
    return np.asarray(kernel[:, :, ::-1] if c < 0 else kernel)
