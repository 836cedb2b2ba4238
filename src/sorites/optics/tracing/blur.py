"""The blurs of a lens, traced at five field heights, three azimuths and three colours and matched to a sensor.

The method is that of Mueller, Braun and Keuper, "Examining the Impact of Optical Aberrations to Image Classification and Object
Detection", section V and appendix D. The tracing and the choice of focus are our own.
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
"""Window widths in micrometres; the first that holds enough light at every field is used."""
ENOUGH_LIGHT = 0.95
"""The share of the rays that must land in the window at every field."""


@dataclass(frozen=True)
class Blur:
    """The blurs of a lens. ``kernels`` is position x colour (C, d, F as R, G, B) x y x x, and each kernel sums to 1. ``mtf`` is
    field x colour x frequency at ``CYCLES_MM``. ``zernike`` is field x colour x 37 Fringe coefficients in waves over the aperture
    stop; ``zernike12`` holds those of a fit with 12 terms."""

    kernels: Array
    mtf: Array
    zernike: Array
    zernike12: Array
    pitch_um: float
    mtf50: tuple[float, ...]
    """The MTF50 at each field, in cycles per pixel."""
    window_um: int
    focus_mm: float
    caught: tuple[float, ...]
    """The smallest share of the rays, over the colours, that lands in the window at each field."""
    kept: float
    """The smallest share of the window's light that a kernel holds."""

    @property
    def quality(self) -> float:
        """The mean over the fields of the kernels' MTF50, in cycles per pixel."""
        return float(np.mean(self.mtf50))


def blur(lens: Lens, focus: str = "best") -> Blur:
    """Trace the blurs of a lens. ``focus``: ``best`` moves its sensor (``focus_mm``) to the least blur, ``file`` does not."""
    if focus not in ("best", "file"):
        raise SoritesError(f"focus: wanted best or file, got {focus!r}")
    angles = [field * lens.field_deg for field in FIELDS]
    boxes = beams(lens, angles, 90.0, D_LINE_UM)
    first = [[trace(lens, a, line, COARSE, box) for line in LINES_UM] for a, box in zip(angles, boxes, strict=True)]
    lens.focus_mm += best_focus(first, lens.f_number) if focus == "best" else 0.0
    first = [[trace(lens, a, line, COARSE, box) for line in LINES_UM] for a, box in zip(angles, boxes, strict=True)]
    window = next((size for size in WINDOWS if min(_shares(first, size)) >= ENOUGH_LIGHT), 0)
    if not window:
        least = min(_shares(first, WINDOWS[-1]))
        raise Refused(f"at some field only {least:.0%} of its light falls within {WINDOWS[-1]} um; wanted {ENOUGH_LIGHT:.0%}")
    return _matched(lens, angles, boxes, first, window)


def _shares(rays: Sequence[Sequence[Rays]], window: int) -> list[float]:
    """Return, for each field, the smallest share of the rays of any colour that lands in the window."""
    return [min(inside(one, window) for one in some) for some in rays]


def best_focus(rays: Sequence[Sequence[Rays]], f_number: float) -> float:
    """Return the shift of the sensor (mm) at which rays lie closest to their median point, averaged over fields and colours."""

    def blurred(by: float) -> float:
        return float(np.mean([_distance(one.moved(by)) for some in rays for one in some]))

    reach = 8 * f_number * max(float(np.median(_far(one))) for some in rays for one in some) + 1e-4
    places = np.linspace(-reach, reach, 81)
    near = float(places[int(np.argmin([blurred(place) for place in places]))])
    step = float(places[1] - places[0])
    found = minimize_scalar(blurred, bounds=(near - step, near + step), method="bounded", options={"xatol": 1e-6})
    return float(found.x)


def _far(rays: Rays) -> Array:
    """Return the distance of each ray from the median landing point."""
    return np.asarray(np.hypot(rays.x - np.median(rays.x), rays.y - np.median(rays.y)))


def _distance(rays: Rays) -> float:
    """Return the mean distance of the rays from their median landing point."""
    return float(np.mean(_far(rays)))


def _matched(lens: Lens, angles: list[float], boxes: list[Beam], first: list[list[Rays]], window: int) -> Blur:
    """Trace finely, choose the pixel pitch and the kernel's side that suit the lens, and resample the PSFs to that pitch."""
    psfs, curves, fits = [], [], []
    for angle, box, coarse in zip(angles, boxes, first, strict=True):
        counts = [rays_across(gathered(some, window), line, window) for line, some in zip(LINES_UM, coarse, strict=True)]
        lit = [gathered(trace(lens, angle, line, n, box), window) for line, n in zip(LINES_UM, counts, strict=True)]
        turns = AZIMUTHS if angle else (90,)
        psfs += [[psf(some.turned(turn - 90), line, window) for line, some in zip(LINES_UM, lit, strict=True)] for turn in turns]
        curves.append([radial_mtf(plane) for plane in psfs[-1]])
        fits.append([[fitted(some, line, terms) for line, some in zip(LINES_UM, lit, strict=True)] for terms in (37, 12)])
    pitch = pitch_um([curve for field, some in zip(FIELDS, curves, strict=True) if field < FIELDS[-1] for curve in some])
    side, kept = side_for([shares(plane, pitch) for planes in psfs for plane in planes])
    kernels = np.array([[centred(plane, pitch, side) for plane in planes] for planes in psfs])
    sharp = [np.mean([mtf50(k) for k, (at, _) in zip(kernels, POSITIONS, strict=True) if at == field]) for field in FIELDS]
    return Blur(
        kernels, np.array(curves), np.array([one[0] for one in fits]), np.array([one[1] for one in fits]), pitch,
        tuple(float(one) for one in sharp), window, lens.focus_mm, tuple(_shares(first, window)), kept,
    )  # fmt: skip


def fitted(rays: Rays, line_um: float, terms: int) -> Array:
    """Return Fringe coefficients (in waves, a longer path is positive) of the wavefront over the aperture stop, relative to the
    rays' mean image point."""
    step = max(1, len(rays.x) // 4000)
    some = rays.where(np.arange(len(rays.x)) % step == 0)
    late = some.path + some.L * (rays.x.mean() - some.x) + some.M * (rays.y.mean() - some.y)
    waves = (late - late.mean()) / (line_um / 1000)
    rho, theta = np.hypot(some.sx, some.sy), np.arctan2(some.sy, some.sx)
    basis = np.stack([zernike(*fringe(i), rho, theta) for i in range(1, terms + 1)], axis=1)
    return np.asarray(np.linalg.lstsq(basis, waves, rcond=None)[0])
