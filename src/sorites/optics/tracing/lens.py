"""A lens that light can be traced through, its first-order data, and the ray tracer behind it.

The ray tracer and its glass catalogues are optiland's (the extra ``lens``); what is launched, where it is stopped and what is
made of it is decided in ``rays``, how a lens is put together in ``assembly``. Millimetres, degrees; wavelengths in micrometres.
"""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.errors import MissingExtra
from sorites.optics.aberrated import LINES_UM
from sorites.optics.tracing.paraxial import FirstOrder, first_order
from sorites.optics.tracing.prescription import Cut, Refused

Array = NDArray[np.float64]
D_LINE_UM = LINES_UM[1]


def tracer() -> Any:
    """The optiland package, without its advice on ambiguous glass names: the names here are exact."""
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
    """``stop`` and ``rims`` count optiland's surfaces (0 is the object); ``field_deg`` is the half field of view."""

    name: str
    optic: Any
    stop: int
    stop_mm: float
    epd_mm: float
    field_deg: float
    rims: dict[int, float]
    paraxial: FirstOrder
    nominal: tuple[str, float] = ("", 0.0)
    """What the file says of its aperture."""
    focus_mm: float = 0.0
    """How far behind the stated image plane the sensor stands."""
    cuts: tuple[Cut, ...] = ()
    """What its file cuts off the pupil away from the axis."""

    @property
    def f_number(self) -> float:
        return self.paraxial.efl_mm / self.epd_mm

    @property
    def surfaces(self) -> list[Any]:
        return list(self.optic.surfaces)

    @functools.cached_property
    def length_mm(self) -> float:
        return float(sum(abs(float(one.thickness)) for one in self.surfaces[1:-1]))


def paraxial(optic: Any, stop: int, line_um: float = D_LINE_UM) -> FirstOrder:
    """First-order data from the surfaces' own numbers, by our matrices."""
    inner = list(optic.surfaces)[1:-1]
    curved = [_curvature(one.geometry) for one in inner]
    behind = [float(np.squeeze(one.material_post.n(line_um))) for one in inner]
    try:
        return first_order(curved, [float(one.thickness) for one in inner], behind, stop - 1)
    except Exception as error:
        raise Refused(str(error)) from error


def _curvature(geometry: Any) -> float:
    """At the vertex: an even asphere's r^2 term bends it too."""
    radius = float(geometry.radius)
    square = getattr(geometry, "coefficients", None)
    return (0.0 if math.isinf(radius) or radius == 0 else 1 / radius) + 2 * (
        float(square[0]) if square is not None and len(square) else 0.0
    )
