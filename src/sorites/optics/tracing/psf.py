"""The PSF of a distant point on the sensor: each ray is a plane wave there, and the waves are summed on a fine grid.

A type-1 non-uniform FFT does the sum (Barnett, Magland and af Klinteberg 2019), so the cost of a PSF grows with the number of
rays plus the number of pixels, not with their product. Rays must lie so close that the sum does not repeat itself within the
window; ``rays_across`` computes how close.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sorites.errors import MissingExtra
from sorites.optics.tracing.prescription import Refused
from sorites.optics.tracing.rays import COARSE, Rays

Array = NDArray[np.float64]
WINDOW = 256
"""The number of points across the PSF, 1 um apart."""
MOST_RAYS = 1700
"""The most rays across a beam; a beam that needs more is too fast or too blurred for its window."""


def rays_across(rays: Rays, line_um: float, window: int = WINDOW) -> int:
    """Return the number of rays needed across a beam, from a coarse trace of it. The sum of waves repeats after wavelength /
    (largest step in direction), which must reach from one end of the light (99 % of it) beyond the other end of the window."""
    step = float(np.quantile(rays.step, 0.98))
    reach = max(float(np.quantile(np.abs(v - v.mean()), 0.99)) for v in (rays.x, rays.y)) * 1000
    needed = 2 * math.ceil(1.15 * COARSE * step * (window / 2 + max(reach, window / 2)) / line_um / 2) + 8
    if needed > MOST_RAYS:
        raise Refused(f"its light needs {needed} rays across for a window of {window} um; wanted {MOST_RAYS} at most")
    return needed


def psf(
    rays: Rays, line_um: float, window: int = WINDOW, step_um: float = 1.0, centre: tuple[float, float] | None = None
) -> Array:
    """Return the light at ``window`` x ``window`` points (rows y, columns x) ``step_um`` apart.

    Point ``window // 2`` is at ``centre`` (mm); the default is the mean of the rays. The scale is arbitrary: divide by the sum.
    """
    try:
        import finufft
    except ImportError:
        raise MissingExtra("summing the waves of a lens", "lens") from None
    x, y = centre if centre is not None else (float(rays.x.mean()), float(rays.y.mean()))
    waves = 2 * np.pi / (line_um / 1000)
    late = rays.path + rays.L * (x - rays.x) + rays.M * (y - rays.y)
    strength = np.exp(1j * waves * (late - late.mean()))
    across, down = (waves * step_um / 1000 * (part - part.mean()) for part in (rays.L, rays.M))
    field = finufft.nufft2d1(down, across, strength, (window, window), eps=1e-6, isign=1, nthreads=1)
    return np.asarray(np.abs(field) ** 2)


def gathered(rays: Rays, window: int = WINDOW) -> Rays:
    """Return the rays without those that land further from the median point than the window is wide. A few rays that graze a
    surface may land millimetres away; they leave no light in the window but would move its middle."""
    return rays.where(_within(rays, float(np.median(rays.x)), float(np.median(rays.y)), window / 1000))


def inside(rays: Rays, window: int = WINDOW) -> float:
    """Return the share of all rays that land in the window around the mean of the gathered rays."""
    near = gathered(rays, window)
    return float(_within(rays, float(near.x.mean()), float(near.y.mean()), window / 2000).mean())


def _within(rays: Rays, x: float, y: float, reach_mm: float) -> NDArray[np.bool_]:
    """Return which rays land within ``reach_mm`` of (x, y) along both axes."""
    return np.asarray((np.abs(rays.x - x) <= reach_mm) & (np.abs(rays.y - y) <= reach_mm))
