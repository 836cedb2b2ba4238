"""First-order optics of a lens as a product of 2 x 2 matrices (Kogelnik and Li 1966), with lengths in millimetres.

It is independent of the ray tracer, so that tests can compare the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sorites.errors import SoritesError


@dataclass(frozen=True)
class FirstOrder:
    """Focal length, distance from the last vertex to the focus, and the height at the aperture stop of a parallel ray that enters
    at height 1 (``at_stop``)."""

    efl_mm: float
    bfl_mm: float
    at_stop: float


def first_order(curvatures: Sequence[float], thicknesses: Sequence[float], indices: Sequence[float], stop: int) -> FirstOrder:
    """Compute first-order data from each refracting surface's vertex curvature, distance to the next surface and index behind it.

    There is air in front of the first surface. ``stop`` is the number of the aperture stop, counted from 0 at the first of these
    surfaces. A lens without power has no focal length and raises an error.
    """
    ray, before, at_stop = np.array([1.0, 0.0]), 1.0, 1.0
    for i, (curvature, thickness, behind) in enumerate(zip(curvatures, thicknesses, indices, strict=True)):
        if i == stop:
            at_stop = float(ray[0])
        ray = np.array([[1, 0], [(before - behind) * curvature / behind, before / behind]]) @ ray
        if i < len(curvatures) - 1:
            ray = np.array([[1, thickness], [0, 1]]) @ ray
        before = behind
    if abs(ray[1]) < 1e-9:
        raise SoritesError("the lens has no power: parallel light leaves it parallel (afocal)")
    return FirstOrder(float(-1 / ray[1]), float(-ray[0] / ray[1]), at_stop)
