"""A lens that was not assembled as designed: one glass element is off the axis, tilted, or too far
from the next.

An element is a piece of glass; a cemented group counts as one. If the aperture stop lies on one of
its surfaces, it moves with it. The yz plane is then the only symmetry of the lens, so whole beams
are traced. Errors are given in micrometres and arc minutes; computations are in millimetres. An
error is turned up in steps; step 0 is the lens as designed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.optics.psf import LINES_UM
from sorites.optics.tracing.blur import (
    ENOUGH_LIGHT,
    WINDOWS,
    best_focus,
    blur,
    centred,
    gathered,
    inside,
    mtf50,
    psf,
    rays_across,
    shares,
    side_for,
)
from sorites.optics.tracing.lens import D_LINE_UM, Lens, paraxial
from sorites.optics.tracing.prescription import Refused
from sorites.optics.tracing.rays import COARSE, Beam, Rays, beams, trace

Array = NDArray[np.float64]
UNITS = {"decentre": "um", "tilt": "arcmin", "spacing": "um"}
# The traced azimuths in degrees from x; the element moves toward 90. At 135, 180 and 225 degrees
# there are mirror images.
AZIMUTHS = (270, 315, 0, 45, 90)


@dataclass(frozen=True)
class BuiltBlurs:
    """The blurs of a lens as designed (step 0) and as built.

    ``kernels``: step x place x colour (C, d, F as R, G, B) x y x x, each of sum 1; the places are
    the axis and the azimuths of one field. ``mtf50``: step x place, in cycles per pixel.
    """

    kernels: Array
    mtf50: Array
    pitch_um: float
    window_um: int
    focus_mm: tuple[float, ...]
    """The distance of the sensor behind the stated image plane, at each step."""
    kept: float
    """The smallest share of the window's light that a kernel holds."""


@dataclass(frozen=True)
class CoarseTrace:
    """A coarse trace of a lens at one place: the beam that gets through, and its rays at each wavelength."""

    angle: float
    azimuth: float
    box: Beam
    rays: list[Rays]


def elements(lens: Lens) -> list[tuple[int, int]]:
    """Return the first and last surface of each glass element, from the object side."""
    found, first = [], 0
    for i, one in enumerate(lens.surfaces[:-1]):
        glass = float(np.squeeze(one.material_post.n(D_LINE_UM))) > 1.0001
        if glass and not first:
            first = i
        elif first and not glass:
            found.append((first, i))
            first = 0
    return found


def moved(lens: Lens, element: int, kind: str, by: float) -> Lens:
    """Return a copy of the lens with one element (1 is the first) out of place.

    ``decentre`` moves it ``by`` um toward y, ``tilt`` turns it by ``by`` arc minutes about x around
    its middle, and ``spacing`` widens the air space behind it ``by`` um; the sensor then moves with
    everything that follows.
    """
    known = elements(lens)
    if kind not in UNITS or not 1 <= element <= len(known):
        raise SoritesError(
            f"wanted one of {', '.join(UNITS)} and an element of 1 to {len(known)}, got {kind!r} and"
            f" {element}"
        )
    first, last = known[element - 1]
    optic = copy.deepcopy(lens.optic)
    surfaces = list(optic.surfaces)
    if kind == "spacing":
        surfaces[last].thickness = float(surfaces[last].thickness) + by / 1000
    middle = (_z(surfaces[first]) + _z(surfaces[last])) / 2
    for one in surfaces[last + 1 :] if kind == "spacing" else surfaces[first : last + 1]:
        place = one.geometry.cs
        if kind == "tilt":
            turn, ahead = math.radians(by / 60), _z(one) - middle
            place.y, place.z = place.y - ahead * math.sin(turn), place.z + ahead * (math.cos(turn) - 1)
            place.rx = place.rx + turn
        elif kind == "decentre":
            place.y = place.y + by / 1000
        else:
            place.z = place.z + by / 1000
    return replace(lens, optic=optic, paraxial=paraxial(optic, lens.stop))


def _z(surface: object) -> float:
    """Return the z of a surface's vertex in mm."""
    return float(np.squeeze(surface.geometry.cs.z))  # type: ignore[attr-defined]


def designed(lens: Lens) -> tuple[Lens, float]:
    """Return the lens with its sensor at best focus, and the pixel pitch (um) that suits it; the
    given lens is not changed.
    """
    focused = replace(lens)
    return focused, blur(focused).pitch_um


def coarse_traces(lens: Lens, field: float, lines: Sequence[float] = LINES_UM) -> list[CoarseTrace]:
    """Trace the axis, then all azimuths at ``field``, a fraction of the half field of view."""
    places = [(0.0, 90.0), *((field * lens.field_deg, float(azimuth)) for azimuth in AZIMUTHS)]
    return [_coarse_trace(lens, angle, azimuth, lines) for angle, azimuth in places]


def _coarse_trace(lens: Lens, angle: float, azimuth: float, lines: Sequence[float]) -> CoarseTrace:
    """Trace one place at the given wavelengths."""
    box = beams(lens, [angle], azimuth, D_LINE_UM)[0]
    return CoarseTrace(
        angle, azimuth, box, [trace(lens, angle, line, COARSE, box, azimuth, whole=True) for line in lines]
    )


def spread_mm(nominal: Lens, element: int, kind: str, by: float, field: float, refocus: bool) -> float:
    """Return the mean distance (mm) of d-line rays from their mean point, over the places, with an
    element moved.
    """
    seen = coarse_traces(moved(nominal, element, kind, by), field, (D_LINE_UM,))
    rays = [[gathered(some, WINDOWS[-1]) for some in one.rays] for one in seen]
    back = best_focus(rays, nominal.f_number) if refocus else 0.0
    spread = [
        np.hypot(one.x - one.x.mean(), one.y - one.y.mean()).mean()
        for some in rays
        for one in (some[0].moved(back),)
    ]
    return float(np.mean(spread))


def worst_element(nominal: Lens, kind: str, by: float, field: float, refocus: bool = False) -> int:
    """Return the element that blurs most when it is moved by ``by``; 1 is the first."""
    count = len(elements(nominal))
    return 1 + int(np.argmax([spread_mm(nominal, k, kind, by, field, refocus) for k in range(1, count + 1)]))


def built_blurs(
    nominal: Lens,
    pitch: float,
    element: int,
    kind: str,
    steps: Sequence[float],
    field: float,
    refocus: bool = False,
    tick: Callable[[int], None] = lambda n: None,
) -> BuiltBlurs:
    """Trace the blurs of the nominal lens and with an element moved by each step.

    The sensor stays where the ``nominal`` lens has it; ``refocus`` moves it at each step by as much
    as the best focus over the places moves. ``tick`` is called once per lens.
    """
    lenses = [nominal, *(moved(nominal, element, kind, step) for step in steps)]
    if refocus:
        best = [
            best_focus([one.rays for one in coarse_traces(lens, field)], nominal.f_number) for lens in lenses
        ]
        lenses = [
            replace(lens, focus_mm=lens.focus_mm + at - best[0])
            for lens, at in zip(lenses, best, strict=True)
        ]
    seen = [coarse_traces(lens, field) for lens in lenses]
    window = _window(seen)
    light = []
    for lens, some in zip(lenses, seen, strict=True):
        light.append([_light(lens, one, window) for one in some])
        tick(1)
    side, kept = side_for([shares(plane, pitch) for some in light for planes in some for plane in planes])
    kernels = np.array(
        [[[_kernel(plane, pitch, side) for plane in planes] for planes in some] for some in light]
    )
    sharp = np.array([[mtf50(kernel) for kernel in some] for some in kernels])
    return BuiltBlurs(kernels, sharp, pitch, window, tuple(lens.focus_mm for lens in lenses), kept)


def _window(seen: Sequence[Sequence[CoarseTrace]]) -> int:
    """Return the smallest window (um) that holds enough light of every beam."""
    rays = [one for some in seen for coarse in some for one in coarse.rays]
    for size in WINDOWS:
        if all(inside(one, size) >= ENOUGH_LIGHT for one in rays):
            return size
    raise Refused(
        f"moved that far, less than {ENOUGH_LIGHT:.0%} of some beam's light falls within {WINDOWS[-1]} um;"
        " ask for smaller stops"
    )


def _kernel(plane: NDArray[np.float32], pitch: float, side: int) -> Array:
    """Return the centred kernel of a PSF, or refuse a blur that has no centre."""
    try:
        return centred(plane.astype(np.float64), pitch, side)
    except Refused as error:
        raise Refused(f"moved that far, its blur has no centre: {error}; ask for smaller stops") from error


def _light(lens: Lens, at: CoarseTrace, window: int) -> NDArray[np.float32]:
    """Return the PSFs of a place, colour x y x x at 1 um, each of sum 1."""
    planes = []
    for line, coarse in zip(LINES_UM, at.rays, strict=True):
        across = rays_across(gathered(coarse, window), line, window)
        rays = trace(lens, at.angle, line, across, at.box, at.azimuth, whole=True)
        planes.append(psf(gathered(rays, window), line, window))
    return np.array([plane / plane.sum() for plane in planes], np.float32)
