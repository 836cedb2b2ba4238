"""The blurs of a lens, traced at five field heights, three azimuths and three colours and matched
to a sensor.

The method is that of Mueller, Braun and Keuper, "Examining the Impact of Optical Aberrations to
Image Classification and Object Detection", section V and appendix D. The tracing and the choice of
focus are our own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft, ndimage
from scipy.optimize import minimize_scalar

from sorites.core.errors import MissingExtra, SoritesError
from sorites.optics.mtf import FREQUENCIES, crossing
from sorites.optics.psf import LINES_UM, centroid
from sorites.optics.tracing.lens import D_LINE_UM, Lens
from sorites.optics.tracing.prescription import Refused
from sorites.optics.tracing.rays import COARSE, Beam, Rays, beams, trace
from sorites.optics.zernike import fringe, zernike

# The positions in its image at which a lens is traced: five field heights, three azimuths.


# Parts of the half field of view.
FIELDS = (0.0, 0.3, 0.5, 0.7, 0.9)
# The same, as they are written.
PERCENT = tuple(round(100 * field) for field in FIELDS)
# Degrees from x.
AZIMUTHS = (0, 45, 90)
# The thirteen places of a lens, in the order of its kernels; on the axis all azimuths are one.
POSITIONS = tuple((field, azimuth) for field in FIELDS for azimuth in AZIMUTHS if field or azimuth == 90)


# The PSF of a distant point on the sensor: each ray is a plane wave there, and the waves are summed on a
# fine grid.


Array = NDArray[np.float64]
# The number of points across the PSF, 1 um apart.
WINDOW = 256
# The most rays across a beam; a beam that needs more is too fast or too blurred for its window.
MOST_RAYS = 1700


def rays_across(rays: Rays, line_um: float, window: int = WINDOW) -> int:
    """Return the number of rays needed across a beam, from a coarse trace of it.

    The sum of waves repeats after wavelength / (largest step in direction), which must reach from
    one end of the light (99 % of it) beyond the other end of the window.
    """
    step = float(np.quantile(rays.step, 0.98))
    reach = max(float(np.quantile(np.abs(v - v.mean()), 0.99)) for v in (rays.x, rays.y)) * 1000
    needed = 2 * math.ceil(1.15 * COARSE * step * (window / 2 + max(reach, window / 2)) / line_um / 2) + 8
    if needed > MOST_RAYS:
        raise Refused(
            f"its light needs {needed} rays across for a window of {window} um; wanted {MOST_RAYS} at most"
        )
    return needed


def psf(
    rays: Rays,
    line_um: float,
    window: int = WINDOW,
    step_um: float = 1.0,
    centre: tuple[float, float] | None = None,
) -> Array:
    """Return the light at ``window`` x ``window`` points (rows y, columns x) ``step_um`` apart.

    Point ``window // 2`` is at ``centre`` (mm); the default is the mean of the rays. The scale is
    arbitrary: divide by the sum.
    """
    try:
        import finufft
    except ImportError:
        raise MissingExtra("summing the waves of a lens", "lens") from None
    x, y = centre if centre is not None else (float(rays.x.mean()), float(rays.y.mean()))
    waves = 2 * np.pi / (line_um / 1000)
    late = rays.path + rays.L * (x - rays.x) + rays.M * (y - rays.y)
    strength = np.exp(1j * waves * (late - late.mean()))
    across, down = (waves * step_um / 1000 * (part - part.mean()) for part in (rays.L, rays.M))
    field = finufft.nufft2d1(down, across, strength, (window, window), eps=1e-6, isign=1, nthreads=1)
    return np.asarray(np.abs(field) ** 2)


def gathered(rays: Rays, window: int = WINDOW) -> Rays:
    """Return the rays without those that land further from the median point than the window is wide.

    A few rays that graze a surface may land millimetres away; they leave no light in the window but
    would move its middle.
    """
    return rays.where(_within(rays, float(np.median(rays.x)), float(np.median(rays.y)), window / 1000))


def inside(rays: Rays, window: int = WINDOW) -> float:
    """Return the share of all rays that land in the window around the mean of the gathered rays."""
    near = gathered(rays, window)
    return float(_within(rays, float(near.x.mean()), float(near.y.mean()), window / 2000).mean())


def _within(rays: Rays, x: float, y: float, reach_mm: float) -> NDArray[np.bool_]:
    """Return which rays land within ``reach_mm`` of (x, y) along both axes."""
    return np.asarray((np.abs(rays.x - x) <= reach_mm) & (np.abs(rays.y - y) <= reach_mm))


# Turn a PSF on a 1 um grid into the kernel of a camera whose pixels suit the lens.


# The pixel pitches that sensors have, in micrometres: the smallest and the largest.
PITCH_UM = (1.0, 20.0)
# The share of the light that a kernel should hold.
WANTED_SHARE = 0.995
# The share of the light that a kernel must hold.
LEAST_SHARE = 0.97
# The widest kernel for the sake of 99.5 % of the light: a nearly perfect lens on 1 um pixels would
# need 200 px for the last percent of its diffraction rings. A blur that is itself wide gets as many
# pixels as 97 % of its light needs.
MOST_PX = 51
# The frequencies, in cycles per mm, of the MTF of a PSF sampled at 1 um, up to its Nyquist
# frequency.
CYCLES_MM: Array = FREQUENCIES * 1000
_TURNS = np.arange(32) * np.pi / 32


def radial_mtf(light: Array) -> Array:
    """Return the MTF averaged over all directions at ``FREQUENCIES`` (cycles per sample), from one
    padded FFT. It equals ``mtf.mtf`` except for interpolation between the FFT's points, and is much
    faster for large arrays.
    """
    times = 4 if len(light) < 128 else 2 if len(light) < 2048 else 1
    size = fft.next_fast_len(max(256, times * len(light)))
    spectrum = np.abs(fft.fftshift(fft.fft2(light / light.sum(), s=(size, size))))
    radius = FREQUENCIES * size
    places = [np.outer(part, radius) + size // 2 for part in (np.sin(_TURNS), np.cos(_TURNS))]
    curve = ndimage.map_coordinates(spectrum, places, order=1, mode="grid-wrap").mean(0)
    return np.asarray(curve / curve[0])


def mtf20(curve: Array) -> float:
    """Return the cycles per mm at which a curve at ``CYCLES_MM`` falls to 20 %, or 500 if it does not."""
    found = crossing(curve, 0.2)
    return 500.0 if np.isnan(found) else 1000 * found


def pitch_um(curves: Sequence[Array]) -> float:
    """Return the pixel pitch whose Nyquist frequency is the curves' mean MTF20, within what sensors
    have (1 to 20 um).
    """
    return float(np.clip(500 / np.mean([mtf20(curve) for curve in curves]), *PITCH_UM))


def mtf50(kernel: Array) -> float:
    """Return a kernel's MTF50 in cycles per pixel, averaged over its colours; one that stays above
    50 % counts as 0.5.
    """
    found = [crossing(radial_mtf(plane), 0.5) for plane in kernel]
    return float(np.mean([0.5 if np.isnan(one) else one for one in found]))


def _cubic(t: Array) -> Array:
    """Return Keys' cubic interpolation kernel with a = -1/2 (1981)."""
    t = np.abs(t)
    inner = (1.5 * t - 2.5) * t * t + 1
    outer = ((-0.5 * t + 2.5) * t - 4) * t + 2
    return np.where(t <= 1, inner, np.where(t < 2, outer, 0.0))


def resampled(light: Array, pitch: float, side: int, middle: tuple[float, float]) -> Array:
    """Resample light to ``side`` x ``side`` pixels of ``pitch`` um around ``middle`` (x, y in um
    from the array's middle). The result sums to 1 and is nowhere negative.
    """
    fine = np.arange(len(light)) - (len(light) - 1) / 2
    wide = pitch * (np.arange(side) - (side - 1) / 2)
    across, down = (_cubic((fine - (wide + at)[:, None]) / pitch) for at in middle)
    pixels = np.maximum(down @ light @ across.T, 0.0)
    return np.asarray(pixels / pixels.sum())


def centred(light: Array, pitch: float, side: int) -> Array:
    """Return the kernel whose centre of mass is in its middle, to a hundredth of a pixel."""
    x, y = centroid(light)
    for _ in range(60):
        kernel = resampled(light, pitch, side, (x, y))
        right, low = centroid(kernel)
        if np.hypot(right, low) < 0.01:
            return kernel
        x, y = x + 0.7 * right * pitch, y + 0.7 * low * pitch
    raise Refused(f"no kernel of {side} px has this light's centre of mass in its middle")


def shares(light: Array, pitch: float) -> Array:
    """Return the shares of the light in squares of 1, 3, 5, ... pixels around the centre of mass."""
    most = int(len(light) / pitch) // 2 * 2 - 1
    whole = resampled(light, pitch, most, centroid(light))
    padded = np.pad(np.cumsum(whole, 0).cumsum(1), ((1, 0), (1, 0)))
    low = most // 2 - np.arange(most // 2 + 1)
    high = most - low
    return np.asarray(padded[high, high] - padded[low, high] - padded[high, low] + padded[low, low])


def side_for(curves: Sequence[Array]) -> tuple[int, float]:
    """Return the side of the kernels in pixels and the smallest share of the light that it holds,
    from the ``shares`` of all PSFs.

    The side is the smallest odd number that holds 99.5 % of every PSF's light. If that is above
    ``MOST_PX``, it is ``MOST_PX``, or whatever holds 97 % if ``MOST_PX`` does not.
    """
    side = min(_needed(curves, WANTED_SHARE), max(MOST_PX, _needed(curves, LEAST_SHARE)))
    return side, min(float(one[min(side // 2, len(one) - 1)]) for one in curves)


def _needed(curves: Sequence[Array], share: float) -> int:
    """Return the smallest odd side that holds a share of every PSF's light."""
    return max(
        2 * int(np.argmax(one >= share)) + 1 if (one >= share).any() else 2 * len(one) - 1 for one in curves
    )


# Window widths in micrometres; the first that holds enough light at every field is used.
WINDOWS = (WINDOW, 2 * WINDOW, 4 * WINDOW, 8 * WINDOW)
# The share of the rays that must land in the window at every field.
ENOUGH_LIGHT = 0.95


@dataclass(frozen=True)
class Blur:
    """The blurs of a lens. ``kernels`` is position x colour (C, d, F as R, G, B) x y x x, and each
    kernel sums to 1. ``mtf`` is field x colour x frequency at ``CYCLES_MM``. ``zernike`` is field x
    colour x 37 Fringe coefficients in waves over the aperture stop; ``zernike12`` holds those of a
    fit with 12 terms.
    """

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
    """Trace the blurs of a lens.

    ``focus``: ``best`` moves its sensor (``focus_mm``) to the least blur, ``file`` does not.
    """
    if focus not in ("best", "file"):
        raise SoritesError(f"focus: wanted best or file, got {focus!r}")
    angles = [field * lens.field_deg for field in FIELDS]
    boxes = beams(lens, angles, 90.0, D_LINE_UM)
    first = [
        [trace(lens, a, line, COARSE, box) for line in LINES_UM] for a, box in zip(angles, boxes, strict=True)
    ]
    lens.focus_mm += best_focus(first, lens.f_number) if focus == "best" else 0.0
    first = [
        [trace(lens, a, line, COARSE, box) for line in LINES_UM] for a, box in zip(angles, boxes, strict=True)
    ]
    window = next((size for size in WINDOWS if min(_shares(first, size)) >= ENOUGH_LIGHT), 0)
    if not window:
        least = min(_shares(first, WINDOWS[-1]))
        raise Refused(
            f"at some field only {least:.0%} of its light falls within {WINDOWS[-1]} um; wanted"
            f" {ENOUGH_LIGHT:.0%}"
        )
    return _matched(lens, angles, boxes, first, window)


def _shares(rays: Sequence[Sequence[Rays]], window: int) -> list[float]:
    """Return, for each field, the smallest share of the rays of any colour that lands in the window."""
    return [min(inside(one, window) for one in some) for some in rays]


def best_focus(rays: Sequence[Sequence[Rays]], f_number: float) -> float:
    """Return the shift of the sensor (mm) at which rays lie closest to their median point, averaged
    over fields and colours.
    """

    def blurred(by: float) -> float:
        return float(np.mean([_distance(one.moved(by)) for some in rays for one in some]))

    reach = 8 * f_number * max(float(np.median(_far(one))) for some in rays for one in some) + 1e-4
    places = np.linspace(-reach, reach, 81)
    near = float(places[int(np.argmin([blurred(place) for place in places]))])
    step = float(places[1] - places[0])
    found = minimize_scalar(
        blurred, bounds=(near - step, near + step), method="bounded", options={"xatol": 1e-6}
    )
    return float(found.x)


def _far(rays: Rays) -> Array:
    """Return the distance of each ray from the median landing point."""
    return np.asarray(np.hypot(rays.x - np.median(rays.x), rays.y - np.median(rays.y)))


def _distance(rays: Rays) -> float:
    """Return the mean distance of the rays from their median landing point."""
    return float(np.mean(_far(rays)))


def _matched(
    lens: Lens, angles: list[float], boxes: list[Beam], first: list[list[Rays]], window: int
) -> Blur:
    """Trace finely, choose the pixel pitch and the kernel's side that suit the lens, and resample
    the PSFs to that pitch.
    """
    psfs, curves, fits = [], [], []
    for angle, box, coarse in zip(angles, boxes, first, strict=True):
        counts = [
            rays_across(gathered(some, window), line, window)
            for line, some in zip(LINES_UM, coarse, strict=True)
        ]
        lit = [
            gathered(trace(lens, angle, line, n, box), window)
            for line, n in zip(LINES_UM, counts, strict=True)
        ]
        turns = AZIMUTHS if angle else (90,)
        psfs += [
            [psf(some.turned(turn - 90), line, window) for line, some in zip(LINES_UM, lit, strict=True)]
            for turn in turns
        ]
        curves.append([radial_mtf(plane) for plane in psfs[-1]])
        fits.append(
            [
                [fitted(some, line, terms) for line, some in zip(LINES_UM, lit, strict=True)]
                for terms in (37, 12)
            ]
        )
    pitch = pitch_um(
        [curve for field, some in zip(FIELDS, curves, strict=True) if field < FIELDS[-1] for curve in some]
    )
    side, kept = side_for([shares(plane, pitch) for planes in psfs for plane in planes])
    kernels = np.array([[centred(plane, pitch, side) for plane in planes] for planes in psfs])
    sharp = [
        np.mean([mtf50(k) for k, (at, _) in zip(kernels, POSITIONS, strict=True) if at == field])
        for field in FIELDS
    ]
    return Blur(
        kernels, np.array(curves), np.array([one[0] for one in fits]), np.array([one[1] for one in fits]), pitch,
        tuple(float(one) for one in sharp), window, lens.focus_mm, tuple(_shares(first, window)), kept,
    )  # fmt: skip


def fitted(rays: Rays, line_um: float, terms: int) -> Array:
    """Return Fringe coefficients (in waves, a longer path is positive) of the wavefront over the
    aperture stop, relative to the rays' mean image point.
    """
    step = max(1, len(rays.x) // 4000)
    some = rays.where(np.arange(len(rays.x)) % step == 0)
    late = some.path + some.L * (rays.x.mean() - some.x) + some.M * (rays.y.mean() - some.y)
    waves = (late - late.mean()) / (line_um / 1000)
    rho, theta = np.hypot(some.sx, some.sy), np.arctan2(some.sy, some.sx)
    basis = np.stack([zernike(*fringe(i), rho, theta) for i in range(1, terms + 1)], axis=1)
    return np.asarray(np.linalg.lstsq(basis, waves, rcond=None)[0])
