"""Production errors of a lens: one glass element is decentred, tilted, or too far from the next.

An element is a piece of glass; a cemented group counts as one. An aperture stop on one of its surfaces moves
with it. The yz plane is then the only symmetry of the lens, so whole beams are traced. Errors are given in
micrometres and arc minutes; computations are in millimetres. Errors grow in steps; step 0 is the lens as
designed.
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
    centre_kernel,
    drop_stray_rays,
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
# Traced azimuths in degrees from x; the element moves toward 90. Kernels at 135, 180 and 225 are mirror
# images.
AZIMUTHS = (270, 315, 0, 45, 90)


@dataclass(frozen=True)
class BuiltBlurs:
    """The blurs of a lens as designed (step 0) and as built.

    Attributes:
        kernels: step x place x colour (C, d, F as R, G, B) x y x x, each of sum 1; places are the axis and
            the azimuths of one field.
        mtf50: step x place, in cycles per pixel.
    """

    kernels: Array
    mtf50: Array
    pitch_um: float
    window_um: int
    focus_mm: tuple[float, ...]
    """Distance of the sensor behind the stated image plane, by step."""
    kept: float
    """Smallest share of the window's light that a kernel contains."""


@dataclass(frozen=True)
class CoarseTrace:
    """A coarse trace at one place: the transmitted beam and its rays by wavelength."""

    angle: float
    azimuth: float
    box: Beam
    rays: list[Rays]


def elements(lens: Lens) -> list[tuple[int, int]]:
    """Return the first and last surface of each glass element, from the object side."""
    spans, first = [], 0
    for i, surface in enumerate(lens.surfaces[:-1]):
        glass = float(np.squeeze(surface.material_post.n(D_LINE_UM))) > 1.0001
        if glass and not first:
            first = i
        elif first and not glass:
            spans.append((first, i))
            first = 0
    return spans


def moved(lens: Lens, element: int, kind: str, by: float) -> Lens:
    """Return a copy of the lens with one element displaced.

    Args:
        lens: The lens.
        element: Number of the element, from 1.
        kind: ``decentre`` moves it by um toward y, ``tilt`` turns it by arc minutes about x around its
            middle, ``spacing`` widens the air space behind it by um and moves everything that follows, with
            the sensor.
        by: Size of the error.
    """
    spans = elements(lens)
    if kind not in UNITS or not 1 <= element <= len(spans):
        raise SoritesError(
            f"expected one of {', '.join(UNITS)} and an element of 1 to {len(spans)}, got {kind!r} and"
            f" {element}"
        )
    first, last = spans[element - 1]
    optic = copy.deepcopy(lens.optic)
    surfaces = list(optic.surfaces)
    if kind == "spacing":
        surfaces[last].thickness = float(surfaces[last].thickness) + by / 1000
    middle = (_vertex_z(surfaces[first]) + _vertex_z(surfaces[last])) / 2
    for surface in surfaces[last + 1 :] if kind == "spacing" else surfaces[first : last + 1]:
        system = surface.geometry.cs
        if kind == "tilt":
            turn, ahead = math.radians(by / 60), _vertex_z(surface) - middle
            system.y, system.z = system.y - ahead * math.sin(turn), system.z + ahead * (math.cos(turn) - 1)
            system.rx = system.rx + turn
        elif kind == "decentre":
            system.y = system.y + by / 1000
        else:
            system.z = system.z + by / 1000
    return replace(lens, optic=optic, paraxial=paraxial(optic, lens.stop))


def _vertex_z(surface: object) -> float:
    return float(np.squeeze(surface.geometry.cs.z))  # type: ignore[attr-defined]


def designed(lens: Lens) -> tuple[Lens, float]:
    """Return a copy of the lens at best focus, and the pixel pitch (um) that suits it."""
    focused = replace(lens)
    return focused, blur(focused).pitch_um


def coarse_traces(lens: Lens, field: float, lines: Sequence[float] = LINES_UM) -> list[CoarseTrace]:
    """Trace the axis and all azimuths at ``field``, a fraction of the half field of view."""
    places = [(0.0, 90.0), *((field * lens.field_deg, float(azimuth)) for azimuth in AZIMUTHS)]
    return [_coarse_trace(lens, angle, azimuth, lines) for angle, azimuth in places]


def _coarse_trace(lens: Lens, angle: float, azimuth: float, lines: Sequence[float]) -> CoarseTrace:
    box = beams(lens, [angle], azimuth, D_LINE_UM)[0]
    return CoarseTrace(
        angle, azimuth, box, [trace(lens, angle, line, COARSE, box, azimuth, whole=True) for line in lines]
    )


def spread_mm(nominal: Lens, element: int, kind: str, by: float, field: float, refocus: bool) -> float:
    """Return the mean distance (mm) of d-line rays from their mean point over all places, with an element
    moved.
    """
    traces = coarse_traces(moved(nominal, element, kind, by), field, (D_LINE_UM,))
    rays = [[drop_stray_rays(beam, WINDOWS[-1]) for beam in trace.rays] for trace in traces]
    back = best_focus(rays, nominal.f_number) if refocus else 0.0
    focused = [at_place[0].moved(back) for at_place in rays]
    spread = [np.hypot(beam.x - beam.x.mean(), beam.y - beam.y.mean()).mean() for beam in focused]
    return float(np.mean(spread))


def worst_element(nominal: Lens, kind: str, by: float, field: float, refocus: bool = False) -> int:
    """Return the number (from 1) of the element that blurs most when moved by ``by``."""
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
    """Trace the blurs of the nominal lens and of the lens with an element moved by each step.

    Args:
        nominal: The lens as designed, in focus.
        pitch: Pixel pitch in um.
        element: Number of the element, from 1.
        kind: Kind of the error; see ``moved``.
        steps: Sizes of the error.
        field: Fraction of the half field of view.
        refocus: Move the sensor at each step by the shift of the best focus; otherwise it stays.
        tick: Called once per lens.

    Raises:
        Refused: A step blurs too much.
    """
    lenses = [nominal, *(moved(nominal, element, kind, step) for step in steps)]
    if refocus:
        lenses = _refocused(lenses, field, nominal.f_number)
    traces = [coarse_traces(lens, field) for lens in lenses]
    window = _window(traces)
    light = []
    for lens, at_places in zip(lenses, traces, strict=True):
        light.append([_psfs(lens, at_place, window) for at_place in at_places])
        tick(1)
    all_planes = [plane for at_places in light for planes in at_places for plane in planes]
    side, kept = side_for([shares(plane, pitch) for plane in all_planes])
    kernels = np.array([[_kernels(planes, pitch, side) for planes in at_places] for at_places in light])
    sharp = np.array([[mtf50(kernel) for kernel in at_places] for at_places in kernels])
    return BuiltBlurs(kernels, sharp, pitch, window, tuple(lens.focus_mm for lens in lenses), kept)


def _refocused(lenses: Sequence[Lens], field: float, f_number: float) -> list[Lens]:
    """Move each sensor by the difference of its best focus from that of the first lens."""
    best = [best_focus([trace.rays for trace in coarse_traces(lens, field)], f_number) for lens in lenses]
    return [
        replace(lens, focus_mm=lens.focus_mm + at - best[0]) for lens, at in zip(lenses, best, strict=True)
    ]


def _window(traces: Sequence[Sequence[CoarseTrace]]) -> int:
    """Return the smallest window (um) that contains enough light of every beam."""
    rays = [beam for at_places in traces for trace in at_places for beam in trace.rays]
    for size in WINDOWS:
        if all(inside(beam, size) >= ENOUGH_LIGHT for beam in rays):
            return size
    raise Refused(
        f"at this error, less than {ENOUGH_LIGHT:.0%} of some beam's light falls within {WINDOWS[-1]} um;"
        " use smaller stops"
    )


def _kernels(planes: NDArray[np.float32], pitch: float, side: int) -> list[Array]:
    try:
        return [centre_kernel(plane.astype(np.float64), pitch, side) for plane in planes]
    except Refused as error:
        raise Refused(f"at this error the blur has no centre: {error}; use smaller stops") from error


def _psfs(lens: Lens, at: CoarseTrace, window: int) -> NDArray[np.float32]:
    """Return the PSFs of a place, colour x y x x at 1 um, each of sum 1."""
    planes = []
    for line, coarse in zip(LINES_UM, at.rays, strict=True):
        across = rays_across(drop_stray_rays(coarse, window), line, window)
        rays = trace(lens, at.angle, line, across, at.box, at.azimuth, whole=True)
        planes.append(psf(drop_stray_rays(rays, window), line, window))
    return np.array([plane / plane.sum() for plane in planes], np.float32)
