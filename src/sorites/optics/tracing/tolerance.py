"""A lens that was not put together as designed: one glass element off the axis, tilted, or too far from what follows it.

An element is a piece of glass, a cemented group being one; a stop that lies on one of its surfaces moves with it. The lens then
has the yz plane as its only symmetry, so whole beams are traced. Micrometres and arc minutes outside, millimetres within.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError
from sorites.optics.aberrated import LINES_UM
from sorites.optics.tracing.blur import ENOUGH, WINDOWS, best_focus, blur
from sorites.optics.tracing.lens import D_LINE_UM, Lens, paraxial
from sorites.optics.tracing.match import centred, mtf50, shares, side_for
from sorites.optics.tracing.prescription import Refused
from sorites.optics.tracing.psf import gathered, inside, psf, rays_across
from sorites.optics.tracing.rays import COARSE, Beam, Rays, beams, trace

Array = NDArray[np.float64]
UNITS = {"decentre": "um", "tilt": "arcmin", "spacing": "um"}
AZIMUTHS = (270, 315, 0, 45, 90)
"""Of the field, in degrees from x; the element moves toward 90. At 135, 180 and 225 degrees there are mirror images of these."""


@dataclass(frozen=True)
class Built:
    """Blurs of the lens as designed (stop 0) and as built. ``kernels``: stop x place x colour (C, d, F as R, G, B) x y x x, each
    of sum 1; the places are the axis and the azimuths of one field. ``mtf50``: stop x place, cycles/pixel."""

    kernels: Array
    mtf50: Array
    pitch_um: float
    window_um: int
    focus_mm: tuple[float, ...]
    """Where the sensor stands at each stop, behind the stated image plane."""
    kept: float
    """The least share of the window's light in a kernel."""


@dataclass(frozen=True)
class Look:
    """What a lens shows at a place, coarsely: rays of the three lines in the beam that gets through."""

    angle: float
    azimuth: float
    box: Beam
    rays: list[Rays]


def elements(lens: Lens) -> list[tuple[int, int]]:
    """First and last surface of each glass element, from the object side."""
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
    """A copy with one element (1 is the first) ``by`` um toward y (``decentre``), ``by`` arc minutes about x around the element's
    middle (``tilt``), or with an air space ``by`` um wider behind it, the sensor moving with all that follows (``spacing``)."""
    known = elements(lens)
    if kind not in UNITS or not 1 <= element <= len(known):
        raise SoritesError(f"wanted one of {', '.join(UNITS)} and an element of 1 to {len(known)}, got {kind!r} and {element}")
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
    return float(np.squeeze(surface.geometry.cs.z))  # type: ignore[attr-defined]


def designed(lens: Lens) -> tuple[Lens, float]:
    """The lens with its sensor at best focus, and the pixel pitch (um) that suits it; the given lens stays as it is."""
    focused = replace(lens)
    return focused, blur(focused).pitch_um


def looks(lens: Lens, field: float, lines: Sequence[float] = LINES_UM) -> list[Look]:
    """The axis, and the azimuths at a part of the half field of view."""
    places = [(0.0, 90.0), *((field * lens.field_deg, float(azimuth)) for azimuth in AZIMUTHS)]
    return [_look(lens, angle, azimuth, lines) for angle, azimuth in places]


def _look(lens: Lens, angle: float, azimuth: float, lines: Sequence[float]) -> Look:
    box = beams(lens, [angle], azimuth, D_LINE_UM)[0]
    return Look(angle, azimuth, box, [trace(lens, angle, line, COARSE, box, azimuth, whole=True) for line in lines])


def harm(nominal: Lens, element: int, kind: str, by: float, field: float, refocus: bool) -> float:
    """The mean distance (mm) of rays of the d line from their middle, over the places, with an element moved."""
    seen = looks(moved(nominal, element, kind, by), field, (D_LINE_UM,))
    rays = [[gathered(some, WINDOWS[-1]) for some in one.rays] for one in seen]
    back = best_focus(rays, nominal.f_number) if refocus else 0.0
    spread = [np.hypot(one.x - one.x.mean(), one.y - one.y.mean()).mean() for some in rays for one in (some[0].moved(back),)]
    return float(np.mean(spread))


def worst(nominal: Lens, kind: str, by: float, field: float, refocus: bool = False) -> int:
    """The element that blurs most when it is moved by ``by``, 1 being the first."""
    count = len(elements(nominal))
    return 1 + int(np.argmax([harm(nominal, k, kind, by, field, refocus) for k in range(1, count + 1)]))


def built(
    nominal: Lens,
    pitch: float,
    element: int,
    kind: str,
    stops: Sequence[float],
    field: float,
    refocus: bool = False,
    tick: Callable[[int], None] = lambda n: None,
) -> Built:
    """The blurs with an element moved by nothing and by each stop. The sensor stays where the ``nominal`` lens has it;
    ``refocus`` moves it at each stop by as much as the best focus over the places moves. ``tick`` counts lenses done."""
    lenses = [nominal, *(moved(nominal, element, kind, stop) for stop in stops)]
    if refocus:
        best = [best_focus([one.rays for one in looks(lens, field)], nominal.f_number) for lens in lenses]
        lenses = [replace(lens, focus_mm=lens.focus_mm + at - best[0]) for lens, at in zip(lenses, best, strict=True)]
    seen = [looks(lens, field) for lens in lenses]
    window = _window(seen)
    light = []
    for lens, some in zip(lenses, seen, strict=True):
        light.append([_light(lens, one, window) for one in some])
        tick(1)
    side, kept = side_for([shares(plane, pitch) for some in light for planes in some for plane in planes])
    kernels = np.array([[[_kernel(plane, pitch, side) for plane in planes] for planes in some] for some in light])
    sharp = np.array([[mtf50(kernel) for kernel in some] for some in kernels])
    return Built(kernels, sharp, pitch, window, tuple(lens.focus_mm for lens in lenses), kept)


def _window(seen: Sequence[Sequence[Look]]) -> int:
    rays = [one for some in seen for look in some for one in look.rays]
    for size in WINDOWS:
        if all(inside(one, size) >= ENOUGH for one in rays):
            return size
    raise Refused(
        f"moved that far, some beam leaves less than {ENOUGH:.0%} of its light in {WINDOWS[-1]} um; ask for smaller stops"
    )


def _kernel(plane: NDArray[np.float32], pitch: float, side: int) -> Array:
    try:
        return centred(plane.astype(np.float64), pitch, side)
    except Refused as error:
        raise Refused(f"moved that far, its blur has no middle: {error}; ask for smaller stops") from error


def _light(lens: Lens, look: Look, window: int) -> NDArray[np.float32]:
    """Colour x y x x at 1 um."""
    planes = []
    for line, coarse in zip(LINES_UM, look.rays, strict=True):
        across = rays_across(gathered(coarse, window), line, window)
        rays = trace(lens, look.angle, line, across, look.box, look.azimuth, whole=True)
        planes.append(psf(gathered(rays, window), line, window))
    return np.array([plane / plane.sum() for plane in planes], np.float32)
