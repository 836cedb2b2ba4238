"""Build lenses from prescriptions or from optiland's photographic objectives.

The real size of the aperture stop and the angle of a stated image height are found by tracing rays through
the unfinished lens.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq

from sorites.io.files import read_json
from sorites.optics.tracing.glass import material, used_name, with_hyphen
from sorites.optics.tracing.lens import D_LINE_UM, Lens, paraxial, tracer
from sorites.optics.tracing.prescription import WIDEST_DEG, Glass, Prescription, Refused
from sorites.optics.tracing.rays import at_stop, chief

# Photographic objectives of optiland 0.6.3.
OBJECTIVES = (
    "CookeTriplet",
    "DoubleGauss",
    "HeliarLens",
    "LensWithFieldCorrector",
    "ObjectiveUS008879901",
    "PetzvalLens",
    "ProjectionLens120FOV",
    "ProjectionLens160FOV",
    "ReverseTelephoto",
    "Telephoto",
    "TelescopeObjective48Inch",
    "TessarLens",
    "TripletTelescopeObjective",
    "WideAngle100FOV",
    "WideAngle170FOV",
)
# Objectives that optiland stores in inches, as in their book (Laikin 2007), although it assumes millimetres.
IN_INCHES = (
    "HeliarLens",
    "ProjectionLens120FOV",
    "ProjectionLens160FOV",
    "TelescopeObjective48Inch",
    "TessarLens",
    "WideAngle100FOV",
    "WideAngle170FOV",
)
INCH_MM = 25.4


def objective(name: str) -> Lens:
    """Return one of optiland's objectives by class name, in millimetres."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optic = getattr(tracer().samples.objectives, name)()
        if name in IN_INCHES:
            optic.updater.scale_system(INCH_MM)
    surfaces = list(optic.surfaces)
    stop = next(i for i, surface in enumerate(surfaces) if surface.is_stop)
    angle = max(math.hypot(float(field.x), float(field.y)) for field in optic.fields.fields)
    return _finish(
        name, optic, stop, ("entrance pupil", float(np.squeeze(optic.paraxial.EPD()))), angle, "angle", {}
    )


# Shapes of optiland's surfaces that can be traced.
SHAPES = ("Plane", "StandardGeometry", "EvenAsphere")


def from_optiland(path: Path) -> Lens:
    """Return the lens of a file that optiland saved (``optiland.fileio.save_optiland_file``).

    Raises:
        Refused: It cannot be read, or light from a distant object cannot be traced through it.
    """
    optic = _load_optiland(path)
    surfaces = list(optic.surfaces)
    for number, surface in enumerate(surfaces):
        if type(surface.geometry).__name__ not in SHAPES:
            raise Refused(f"surface {number} is a {type(surface.geometry).__name__}, which cannot be traced")
        if number and getattr(surface.interaction_model, "is_reflective", False):
            raise Refused(f"surface {number} is a mirror; only refracting lenses can be traced")
    if len(surfaces) < 4:
        raise Refused(f"it has {len(surfaces)} surfaces; expected an object, a lens and an image")
    if not optic.object_surface.is_infinite:
        raise Refused("its object is near; expected a distant one")
    stop = next((i for i, surface in enumerate(surfaces) if surface.is_stop), 0)
    if not 0 < stop < len(surfaces) - 1:
        raise Refused("it does not state which surface is the aperture stop")
    kind = OPTILAND_FIELDS.get(type(optic.fields.field_definition).__name__, "")
    largest = max((math.hypot(float(at.x), float(at.y)) for at in optic.fields.fields), default=0.0)
    if not kind or largest <= 0:
        raise Refused("its field is zero or not given as an angle or an image height")
    pupil = ("entrance pupil", float(np.squeeze(optic.paraxial.EPD())))
    return _finish(path.stem, optic, stop, pupil, largest, kind, {})


OPTILAND_FIELDS = {
    "AngleField": "angle",
    "ParaxialImageHeightField": "paraxial image height",
    "RealImageHeightField": "real image height",
}


def _load_optiland(path: Path) -> Any:
    library = tracer()
    content = read_json(path)
    if not isinstance(content, dict) or "surface_group" not in content:
        raise Refused("it is not a file of optiland: it has no surface_group")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return library.optic.Optic.from_dict(content)
    except Exception as error:  # whatever optiland raises for a file that it did not write
        raise Refused(f"optiland cannot load it: {error}") from error


def build(prescription: Prescription, glasses: Mapping[str, Glass] | None = None) -> Lens:
    """Build a lens.

    Args:
        prescription: The prescription.
        glasses: Glasses by name that override the catalogues.

    Raises:
        Refused: A glass is neither known (see ``glass.material``) nor in ``glasses``.
    """
    library = tracer()
    optic = library.optic.Optic()
    for i, surface in enumerate(prescription.surfaces):
        options: dict[str, Any] = {
            "radius": 1 / surface.curvature if surface.curvature else math.inf,
            "conic": surface.conic,
        }
        if surface.shape == "EVENASPH":
            highest = max((term for term, value in surface.even.items() if value), default=1)
            terms = [surface.even.get(term, 0.0) for term in range(1, highest + 1)]
            options |= {"surface_type": "even_asphere", "coefficients": terms, "max_iter": 12}
        last = i == len(prescription.surfaces) - 1
        glass = surface.glass and (glasses or {}).get(surface.glass.name, surface.glass)
        medium = "air" if glass is None else material(glass, prescription.catalogues)
        options |= {} if last else {"thickness": surface.thickness, "material": medium}
        optic.surfaces.add(index=i, is_stop=i == prescription.stop, **options)
    rims = {i: surface.rim_mm for i, surface in enumerate(prescription.surfaces) if surface.rim_mm}
    lens = _finish(
        prescription.name,
        optic,
        prescription.stop,
        prescription.aperture,
        prescription.field,
        prescription.field_kind,
        rims,
    )
    vignetting = (replace(v, part=_part(lens, prescription, v.part)) for v in prescription.vignetting)
    return replace(lens, vignetting=tuple(vignetting), substitutes=_substitutes(prescription, glasses or {}))


def _substitutes(prescription: Prescription, glasses: Mapping[str, Glass]) -> dict[str, str]:
    """Return the successors that stand for glasses of the prescription, by the name of the glass."""
    named = {
        surface.glass.name: used_name(surface.glass, prescription.catalogues)
        for surface in prescription.surfaces
        if surface.glass is not None and surface.glass.name and surface.glass.name not in glasses
    }
    return {name: used for name, used in named.items() if used not in (name, with_hyphen(name))}


def _part(lens: Lens, prescription: Prescription, part: float) -> float:
    """Convert a fraction of the largest field to a fraction of the largest angle."""
    if prescription.field_kind == "angle" or part in (0, 1):
        return part
    return _angle_of_height(lens, part * prescription.field, prescription.field_kind) / lens.field_deg


def _finish(
    name: str,
    optic: Any,
    stop: int,
    aperture: tuple[str, float],
    angle: float,
    kind: str,
    rims: dict[int, float],
) -> Lens:
    order = paraxial(optic, stop)
    if order.efl_mm <= 0 or order.bfl_mm < 0:
        raise Refused(f"it forms no real image (focal length {order.efl_mm:.4g} mm): an extender or a viewer")
    aperture_kind, value = aperture
    epd = {
        "entrance pupil": value,
        "F-number": order.efl_mm / (value or 1),
        "stop": 2 * value / abs(order.at_stop),
    }[aperture_kind]
    lens = Lens(name, optic, stop, 1.0, epd, angle, rims, order, aperture)
    lens.stop_mm = _stop_radius(lens)
    if kind != "angle":
        lens.field_deg = _angle_of_height(lens, angle, kind)
    if lens.field_deg * 0.9 > WIDEST_DEG:
        raise Refused(f"its field of {lens.field_deg:g} degrees reaches behind the lens")
    return lens


def _stop_radius(lens: Lens) -> float:
    """Return the real radius of the aperture stop in mm: the height at which the marginal ray crosses it."""
    _, rim = at_stop(
        replace(lens, stop_mm=1.0), 0.0, 90.0, np.array([0.0]), np.array([lens.epd_mm / 2]), D_LINE_UM
    )
    height = float(abs(rim[0]))
    if not math.isfinite(height) or height == 0:
        raise Refused("the rim ray of its stated aperture does not get through")
    return height


def _angle_of_height(lens: Lens, height: float, kind: str) -> float:
    """Return the angle in degrees whose chief ray, real or paraxial, lands at an image height in mm."""
    if kind == "paraxial image height":
        return math.degrees(math.atan(height / lens.paraxial.efl_mm))

    def miss(angle: float) -> float:
        return abs(chief(lens, angle, 90.0, D_LINE_UM)[1]) - height

    guess = math.degrees(math.atan(height / lens.paraxial.efl_mm))
    try:
        return float(brentq(miss, 0.5 * guess, min(1.8 * guess, WIDEST_DEG)))
    except ValueError as error:
        raise Refused(f"no chief ray lands at the stated image height of {height:g} mm") from error
