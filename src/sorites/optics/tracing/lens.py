"""A lens that light can be traced through, its first-order data, and the ray tracer behind it.

The ray tracer and its glass catalogues are optiland's (the extra ``lens``); what is launched, where
it is stopped and what is made of it is decided in ``rays``, how a lens is put together in
``assembly``. Millimetres, degrees; wavelengths in micrometres.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import MissingExtra, SoritesError
from sorites.optics.psf import LINES_UM
from sorites.optics.tracing.prescription import Refused, Vignetting

# First-order optics of a lens as a product of 2 x 2 matrices (Kogelnik and Li 1966), with lengths in
# millimetres.


@dataclass(frozen=True)
class FirstOrder:
    """Focal length, distance from the last vertex to the focus, and the height at the aperture stop
    of a parallel ray that enters at height 1 (``at_setting``).
    """

    efl_mm: float
    bfl_mm: float
    at_setting: float


def first_order(
    curvatures: Sequence[float], thicknesses: Sequence[float], indices: Sequence[float], stop: int
) -> FirstOrder:
    """Compute first-order data from each refracting surface's vertex curvature, distance to the
    next surface and index behind it.

    There is air in front of the first surface. ``stop`` is the number of the aperture stop, counted
    from 0 at the first of these surfaces. A lens without power has no focal length and raises an
    error.
    """
    ray, before, at_setting = np.array([1.0, 0.0]), 1.0, 1.0
    for i, (curvature, thickness, behind) in enumerate(zip(curvatures, thicknesses, indices, strict=True)):
        if i == stop:
            at_setting = float(ray[0])
        ray = np.array([[1, 0], [(before - behind) * curvature / behind, before / behind]]) @ ray
        if i < len(curvatures) - 1:
            ray = np.array([[1, thickness], [0, 1]]) @ ray
        before = behind
    if abs(ray[1]) < 1e-9:
        raise SoritesError("the lens has no power: parallel light leaves it parallel (afocal)")
    return FirstOrder(float(-1 / ray[1]), float(-ray[0] / ray[1]), at_setting)


Array = NDArray[np.float64]
D_LINE_UM = LINES_UM[1]


def tracer() -> Any:
    """Return the optiland package, without its warnings about ambiguous glass names: the names here
    are exact.
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

    ``stop`` (the aperture stop) and the keys of ``rims`` count its surfaces, 0 being the object;
    ``stop_mm`` is the stop's radius, ``epd_mm`` the entrance pupil's diameter, ``field_deg`` the
    half field of view.
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
    """The aperture as the file states it: its kind and its value."""
    focus_mm: float = 0.0
    """The distance of the sensor behind the stated image plane."""
    vignetting: tuple[Vignetting, ...] = ()
    """The vignetting that its file states away from the axis, by rising field."""

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
        """The summed distances from the first surface to the image plane."""
        return float(sum(abs(float(one.thickness)) for one in self.surfaces[1:-1]))


def paraxial(optic: Any, stop: int, line_um: float = D_LINE_UM) -> FirstOrder:
    """Compute first-order data from the surfaces' numbers with our own matrices (``first_order``),
    not with the ray tracer.
    """
    inner = list(optic.surfaces)[1:-1]
    curved = [_curvature(one.geometry) for one in inner]
    behind = [float(np.squeeze(one.material_post.n(line_um))) for one in inner]
    try:
        return first_order(curved, [float(one.thickness) for one in inner], behind, stop - 1)
    except Exception as error:
        raise Refused(str(error)) from error


def _curvature(geometry: Any) -> float:
    """Return the curvature at the vertex; the r^2 term of an even asphere adds to it."""
    radius = float(geometry.radius)
    square = getattr(geometry, "coefficients", None)
    return (0.0 if math.isinf(radius) or radius == 0 else 1 / radius) + 2 * (
        float(square[0]) if square is not None and len(square) else 0.0
    )
