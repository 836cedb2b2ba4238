"""A lens as the blurs it gives: traced at five field heights, three azimuths and three colours, matched to a sensor.

Mueller, Braun and Keuper, "Examining the Impact of Optical Aberrations to Image Classification and Object Detection",
section V and appendix D; the tracing and the choice of focus are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from sorites.errors import SoritesError
from sorites.optics.aberrated import LINES_UM
from sorites.optics.tracing.lens import D_LINE_UM, Lens
from sorites.optics.tracing.match import centred, mtf50, pitch_um, radial_mtf, shares, side_for
from sorites.optics.tracing.positions import AZIMUTHS, FIELDS, POSITIONS
from sorites.optics.tracing.prescription import Refused
from sorites.optics.tracing.psf import WINDOW, gathered, inside, psf, rays_across
from sorites.optics.tracing.rays import COARSE, Beam, Rays, beams, trace
from sorites.optics.zernike import fringe, zernike

Array = NDArray[np.float64]
WINDOWS = (WINDOW, 2 * WINDOW, 4 * WINDOW, 8 * WINDOW)
"""Micrometres across; the first that holds the light at every field is taken."""
ENOUGH = 0.95
"""The share of the rays that must land in the window at every field."""


@dataclass(frozen=True)
class Blur:
    """``kernels``: position x colour (C, d, F as R, G, B) x y x x, each of sum 1. ``mtf``: field x colour at ``CYCLES_MM``.
    ``zernike``: field x colour x 37 Fringe coefficients in waves over the stop, ``zernike12`` those of a fit with 12 terms."""

    kernels: Array
    mtf: Array
    zernike: Array
    zernike12: Array
    pitch_um: float
    mtf50: tuple[float, ...]
    """Cycles/pixel at each field."""
    window_um: int
    focus_mm: float
    caught: tuple[float, ...]
    """The least share of the rays in the window, at each field."""
    kept: float
    """The least share of the window's light in a kernel."""

    @property
    def quality(self) -> float:
        """The mean over fields of the MTF50 of the kernels, cycles/pixel."""
        return float(np.mean(self.mtf50))


def blur(lens: Lens, focus: str = "best") -> Blur:
    """Everything the set keeps of a lens. ``focus``: ``best`` moves the sensor to the least blur, ``file`` leaves it."""
    if focus not in ("best", "file"):
        raise SoritesError(f"focus: wanted best or file, got {focus!r}")
    angles = [field * lens.field_deg for field in FIELDS]
    boxes = beams(lens, angles, 90.0, D_LINE_UM)
    first = [[trace(lens, a, line, COARSE, box) for line in LINES_UM] for a, box in zip(angles, boxes, strict=True)]
    lens.focus_mm += best_focus(first, lens.f_number) if focus == "best" else 0.0
    first = [[trace(lens, a, line, COARSE, box) for line in LINES_UM] for a, box in zip(angles, boxes, strict=True)]
    window = next((size for size in WINDOWS if min(_shares(first, size)) >= ENOUGH), 0)
    if not window:
        least = min(_shares(first, WINDOWS[-1]))
        raise Refused(f"at some field only {least:.0%} of its light falls within {WINDOWS[-1]} um; wanted {ENOUGH:.0%}")
    return _matched(lens, angles, boxes, first, window)


def _shares(rays: Sequence[Sequence[Rays]], window: int) -> list[float]:
    return [min(inside(one, window) for one in some) for some in rays]


def best_focus(rays: Sequence[Sequence[Rays]], f_number: float) -> float:
    """The shift of the sensor (mm) with the least distance of rays from their middle, mean over fields and colours."""

    def blurred(by: float) -> float:
        return float(np.mean([_distance(one.moved(by)) for some in rays for one in some]))

    reach = 8 * f_number * max(float(np.median(_far(one))) for some in rays for one in some) + 1e-4
    places = np.linspace(-reach, reach, 81)
    near = float(places[int(np.argmin([blurred(place) for place in places]))])
    step = float(places[1] - places[0])
    found = minimize_scalar(blurred, bounds=(near - step, near + step), method="bounded", options={"xatol": 1e-6})
    return float(found.x)


def _far(rays: Rays) -> Array:
    return np.asarray(np.hypot(rays.x - np.median(rays.x), rays.y - np.median(rays.y)))


def _distance(rays: Rays) -> float:
    return float(np.mean(_far(rays)))


def _matched(lens: Lens, angles: list[float], boxes: list[Beam], first: list[list[Rays]], window: int) -> Blur:
    held, curves, fits = [], [], []
    for angle, box, coarse in zip(angles, boxes, first, strict=True):
        counts = [rays_across(gathered(some, window), line, window) for line, some in zip(LINES_UM, coarse, strict=True)]
        lit = [gathered(trace(lens, angle, line, n, box), window) for line, n in zip(LINES_UM, counts, strict=True)]
        turns = AZIMUTHS if angle else (90,)
        held += [[psf(some.turned(turn - 90), line, window) for line, some in zip(LINES_UM, lit, strict=True)] for turn in turns]
        curves.append([radial_mtf(plane) for plane in held[-1]])
        fits.append([[fitted(some, line, terms) for line, some in zip(LINES_UM, lit, strict=True)] for terms in (37, 12)])
    pitch = pitch_um([curve for field, some in zip(FIELDS, curves, strict=True) if field < FIELDS[-1] for curve in some])
    side, kept = side_for([shares(plane, pitch) for planes in held for plane in planes])
    kernels = np.array([[centred(plane, pitch, side) for plane in planes] for planes in held])
    sharp = [np.mean([mtf50(k) for k, (at, _) in zip(kernels, POSITIONS, strict=True) if at == field]) for field in FIELDS]
    return Blur(
        kernels, np.array(curves), np.array([one[0] for one in fits]), np.array([one[1] for one in fits]), pitch,
        tuple(float(one) for one in sharp), window, lens.focus_mm, tuple(_shares(first, window)), kept,
    )  # fmt: skip


def fitted(rays: Rays, line_um: float, terms: int) -> Array:
    """Fringe coefficients (waves, a longer path positive) of the wavefront over the stop, about the rays' mean image point."""
    step = max(1, len(rays.x) // 4000)
    some = rays.where(np.arange(len(rays.x)) % step == 0)
    late = some.path + some.L * (rays.x.mean() - some.x) + some.M * (rays.y.mean() - some.y)
    waves = (late - late.mean()) / (line_um / 1000)
    rho, theta = np.hypot(some.sx, some.sy), np.arctan2(some.sy, some.sx)
    basis = np.stack([zernike(*fringe(i), rho, theta) for i in range(1, terms + 1)], axis=1)
    return np.asarray(np.linalg.lstsq(basis, waves, rcond=None)[0])
