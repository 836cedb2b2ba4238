"""A traceable lens with its first-order data, on top of the ray tracer optiland (extra ``lens``).

``rays`` decides which rays are launched and blocked; ``assembly`` builds lenses. Units are millimetres and
degrees; wavelengths are in micrometres.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import MissingExtra, SoritesError
from sorites.optics.psf import LINES_UM
from sorites.optics.tracing.prescription import Refused, Vignetting


@dataclass(frozen=True)
class FirstOrder:
    """First-order data of a lens.

    Attributes:
        efl_mm: Focal length.
        bfl_mm: Distance from the last vertex to the focus.
        at_stop: Height at the aperture stop of a parallel ray that enters at height 1.
    """

    efl_mm: float
    bfl_mm: float
    at_stop: float


def first_order(
    curvatures: Sequence[float], thicknesses: Sequence[float], indices: Sequence[float], stop: int
) -> FirstOrder:
    """Compute first-order data as a product of 2 x 2 ray matrices (Kogelnik and Li 1966).

    Args:
        curvatures: Vertex curvature of each refracting surface; there is air in front of the first.
        thicknesses: Distance from each surface to the next.
        indices: Refractive index behind each surface.
        stop: Number of the aperture stop among these surfaces, from 0.

    Raises:
        SoritesError: The lens has no power.
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


Array = NDArray[np.float64]
D_LINE_UM = LINES_UM[1]


def tracer() -> Any:
    """Return the optiland package.

    Its warnings about ambiguous glass names are suppressed, because the names used here are exact.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import optiland.materials
            import optiland.optic
            import optiland.rays
            import optiland.samples.objectives
    except ImportError:
        raise MissingExtra("tracing rays through a lens", "lens") from None
    return optiland


@dataclass
class Lens:
    """A lens as an optiland system.

    Attributes:
        stop: Number of the surface that is the aperture stop; 0 is the object.
        stop_mm: Radius of the stop.
        epd_mm: Diameter of the entrance pupil.
        field_deg: Half field of view.
        rims: Radii that block rays, by surface number.
    """

    name: str
    optic: Any
    stop: int
    stop_mm: float
    epd_mm: float
    field_deg: float
    rims: dict[int, float]
    paraxial: FirstOrder
    nominal: tuple[str, float] = ("", 0.0)
    """Kind and value of the aperture as stated in the file."""
    focus_mm: float = 0.0
    """Distance of the sensor behind the stated image plane."""
    vignetting: tuple[Vignetting, ...] = ()
    """Vignetting stated in the file, by rising field."""
    substitutes: Mapping[str, str] = field(default_factory=dict)
    """Successors that stand for glasses missing from the catalogues, by the name of the glass."""

    @property
    def f_number(self) -> float:
        """Focal length divided by the diameter of the entrance pupil."""
        return self.paraxial.efl_mm / self.epd_mm

    @property
    def surfaces(self) -> list[Any]:
        """All surfaces of the optiland system, from the object to the image."""
        return list(self.optic.surfaces)

    @functools.cached_property
    def length_mm(self) -> float:
        """Length from the first surface to the image plane."""
        return float(sum(abs(float(surface.thickness)) for surface in self.surfaces[1:-1]))


def paraxial(optic: Any, stop: int, line_um: float = D_LINE_UM) -> FirstOrder:
    """Compute first-order data with ``first_order``, independently of the ray tracer."""
    inner = list(optic.surfaces)[1:-1]
    curvatures = [_curvature(surface.geometry) for surface in inner]
    behind = [float(np.squeeze(surface.material_post.n(line_um))) for surface in inner]
    try:
        return first_order(curvatures, [float(surface.thickness) for surface in inner], behind, stop - 1)
    except Exception as error:
        raise Refused(str(error)) from error


def _curvature(geometry: Any) -> float:
    """Return the curvature at the vertex, including the r^2 term of an even asphere."""
    radius = float(geometry.radius)
    square = getattr(geometry, "coefficients", None)
    return (0.0 if math.isinf(radius) or radius == 0 else 1 / radius) + 2 * (
        float(square[0]) if square is not None and len(square) else 0.0
    )
