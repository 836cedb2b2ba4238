"""First-order optics by hand: a lens as a product of 2 x 2 matrices (Kogelnik and Li 1966), lengths in millimetres.

It owes nothing to the ray tracer, so that the two can be held against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sorites.errors import SoritesError


@dataclass(frozen=True)
class FirstOrder:
    """Focal length, distance from the last vertex to the focus, and ``at_stop``: a parallel ray's height there, 1 at entry."""

    efl_mm: float
    bfl_mm: float
    at_stop: float


def first_order(curvatures: Sequence[float], thicknesses: Sequence[float], indices: Sequence[float], stop: int) -> FirstOrder:
    """Of refracting surfaces in order: vertex curvature, distance to the next surface, index behind it; air in front.

    ``stop`` counts from the first of these surfaces. A lens without power has no focal length and is an error.
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
