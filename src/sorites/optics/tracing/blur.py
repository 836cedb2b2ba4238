"""Blur kernels of a lens, traced at five field heights, three azimuths and three colours and matched to a
sensor.

The method is that of Mueller, Braun and Keuper, "Examining the Impact of Optical Aberrations to Image
Classification and Object Detection", section V and appendix D. The tracing and the choice of focus are our
own.
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

# Traced field heights, as fractions of the half field of view and in percent.
FIELDS = (0.0, 0.3, 0.5, 0.7, 0.9)
PERCENT = tuple(round(100 * field) for field in FIELDS)
# Traced azimuths in degrees from x.
AZIMUTHS = (0, 45, 90)
# Azimuths between 0 and 45 degrees that are traced for blurs of whole images.
BETWEEN = (11.25, 22.5, 33.75)
# The thirteen (field, azimuth) positions of a lens in the order of its kernels; the axis has one azimuth.
POSITIONS = tuple((field, azimuth) for field in FIELDS for azimuth in AZIMUTHS if field or azimuth == 90)


Array = NDArray[np.float64]

# PSF: each ray is a plane wave at the sensor, and the waves are summed on a fine grid.

# Points across the PSF, 1 um apart.
WINDOW = 256
# Maximum rays across a beam; a beam that needs more is too fast or too blurred for its window.
MAX_RAYS = 1700


def rays_across(rays: Rays, line_um: float, window: int = WINDOW) -> int:
    """Return the number of rays needed across a beam, from a coarse trace of it.

    The sum of waves repeats after wavelength / (largest step in direction). This period must reach from one
    end of the light (99 % of it) beyond the other end of the window.
    """
    step = float(np.quantile(rays.step, 0.98))
    reach = max(float(np.quantile(np.abs(v - v.mean()), 0.99)) for v in (rays.x, rays.y)) * 1000
    needed = 2 * math.ceil(1.15 * COARSE * step * (window / 2 + max(reach, window / 2)) / line_um / 2) + 8
    if needed > MAX_RAYS:
        raise Refused(
            f"its light needs {needed} rays across for a window of {window} um; the maximum is {MAX_RAYS}"
        )
    return needed


def psf(
    rays: Rays,
    line_um: float,
    window: int = WINDOW,
    step_um: float = 1.0,
    centre: tuple[float, float] | None = None,
) -> Array:
    """Return the light at ``window`` x ``window`` points (rows y, columns x), in arbitrary units.

    Args:
        rays: The rays at the sensor.
        line_um: Wavelength.
        window: Points per side.
        step_um: Distance between points.
        centre: Position in mm of point ``window // 2``; the mean of the rays by default.
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


def drop_stray_rays(rays: Rays, window: int = WINDOW) -> Rays:
    """Return the rays that land within the window's width of the median point.

    A few rays that graze a surface may land millimetres away; they leave no light in the window but would
    move its centre.
    """
    return rays.where(_within(rays, float(np.median(rays.x)), float(np.median(rays.y)), window / 1000))


def inside(rays: Rays, window: int = WINDOW) -> float:
    """Return the share of all rays that land in the window around the mean of the gathered rays."""
    near = drop_stray_rays(rays, window)
    return float(_within(rays, float(near.x.mean()), float(near.y.mean()), window / 2000).mean())


def _within(rays: Rays, x: float, y: float, reach_mm: float) -> NDArray[np.bool_]:
    """Return which rays land within ``reach_mm`` of (x, y) along both axes."""
    return np.asarray((np.abs(rays.x - x) <= reach_mm) & (np.abs(rays.y - y) <= reach_mm))


# Kernels: PSFs on the 1 um grid, resampled to a pixel pitch that suits the lens.

# Smallest and largest pixel pitch of a sensor.
PITCH_UM = (1.0, 20.0)
# Share of the light that a kernel should contain, and that it must contain.
TARGET_SHARE = 0.995
MIN_SHARE = 0.97
# Largest kernel chosen to reach ``TARGET_SHARE``: a nearly perfect lens on 1 um pixels would need 200 px for
# the last percent of its diffraction rings. Wider blurs get the size that ``MIN_SHARE`` needs.
MAX_TARGET_PX = 51
# Frequencies in cycles per mm of the MTF of a PSF sampled at 1 um, up to Nyquist.
CYCLES_MM: Array = FREQUENCIES * 1000
_TURNS = np.arange(32) * np.pi / 32


def radial_mtf(light: Array) -> Array:
    """Return the MTF averaged over directions at ``FREQUENCIES`` (cycles per sample), from one padded FFT.

    It equals ``mtf.mtf`` up to interpolation between FFT points and is much faster for large arrays.
    """
    times = 4 if len(light) < 128 else 2 if len(light) < 2048 else 1
    size = fft.next_fast_len(max(256, times * len(light)))
    spectrum = np.abs(fft.fftshift(fft.fft2(light / light.sum(), s=(size, size))))
    radius = FREQUENCIES * size
    coordinates = [np.outer(part, radius) + size // 2 for part in (np.sin(_TURNS), np.cos(_TURNS))]
    curve = ndimage.map_coordinates(spectrum, coordinates, order=1, mode="grid-wrap").mean(0)
    return np.asarray(curve / curve[0])


def mtf20(curve: Array) -> float:
    """Return the cycles per mm at which a curve at ``CYCLES_MM`` falls to 20 %, or 500 if it does not."""
    frequency = crossing(curve, 0.2)
    return 500.0 if np.isnan(frequency) else 1000 * frequency


def pitch_um(curves: Sequence[Array]) -> float:
    """Return the pixel pitch (1 to 20 um) whose Nyquist frequency is the mean MTF20 of the curves."""
    return float(np.clip(500 / np.mean([mtf20(curve) for curve in curves]), *PITCH_UM))


def mtf50(kernel: Array) -> float:
    """Return the MTF50 of a kernel in cycles per pixel, averaged over colours; 0.5 if it stays above 50 %."""
    frequencies = [crossing(radial_mtf(plane), 0.5) for plane in kernel]
    return float(np.mean([0.5 if np.isnan(frequency) else frequency for frequency in frequencies]))


def _cubic(t: Array) -> Array:
    """Return Keys' cubic interpolation kernel with a = -1/2 (1981)."""
    t = np.abs(t)
    inner = (1.5 * t - 2.5) * t * t + 1
    outer = ((-0.5 * t + 2.5) * t - 4) * t + 2
    return np.where(t <= 1, inner, np.where(t < 2, outer, 0.0))


def resample(light: Array, pitch: float, side: int, middle: tuple[float, float]) -> Array:
    """Resample light to ``side`` x ``side`` pixels of ``pitch`` um; the result is non-negative and sums to 1.

    ``middle`` is the centre (x, y) in um from the array's middle.
    """
    fine = np.arange(len(light)) - (len(light) - 1) / 2
    wide = pitch * (np.arange(side) - (side - 1) / 2)
    across, down = (_cubic((fine - (wide + at)[:, None]) / pitch) for at in middle)
    pixels = np.maximum(down @ light @ across.T, 0.0)
    return np.asarray(pixels / pixels.sum())


def centre_kernel(light: Array, pitch: float, side: int) -> Array:
    """Return the kernel with its centre of mass in the middle, to a hundredth of a pixel."""
    x, y = centroid(light)
    for _ in range(60):
        kernel = resample(light, pitch, side, (x, y))
        right, low = centroid(kernel)
        if np.hypot(right, low) < 0.01:
            return kernel
        x, y = x + 0.7 * right * pitch, y + 0.7 * low * pitch
    raise Refused(f"its light cannot be centred in a kernel of {side} px")


def shares(light: Array, pitch: float) -> Array:
    """Return the shares of the light in squares of 1, 3, 5, ... pixels around the centre of mass."""
    most = int(len(light) / pitch) // 2 * 2 - 1
    whole = resample(light, pitch, most, centroid(light))
    padded = np.pad(np.cumsum(whole, 0).cumsum(1), ((1, 0), (1, 0)))
    low = most // 2 - np.arange(most // 2 + 1)
    high = most - low
    return np.asarray(padded[high, high] - padded[low, high] - padded[high, low] + padded[low, low])


def side_for(curves: Sequence[Array]) -> tuple[int, float]:
    """Return the side of the kernels in px and the smallest share of light it contains, from the ``shares``
    of all PSFs.

    The side is the smallest odd number that contains 99.5 % of every PSF's light. If that exceeds
    ``MAX_TARGET_PX``, it is ``MAX_TARGET_PX``, or the side for 97 % if that is larger.
    """
    side = min(_side_for_share(curves, TARGET_SHARE), max(MAX_TARGET_PX, _side_for_share(curves, MIN_SHARE)))
    return side, min(float(curve[min(side // 2, len(curve) - 1)]) for curve in curves)


def _side_for_share(curves: Sequence[Array], share: float) -> int:
    """Return the smallest odd side that contains a share of every PSF's light."""
    return max(
        2 * int(np.argmax(curve >= share)) + 1 if (curve >= share).any() else 2 * len(curve) - 1
        for curve in curves
    )


# Window widths in um; the first with enough light at every field is used.
WINDOWS = (WINDOW, 2 * WINDOW, 4 * WINDOW, 8 * WINDOW)
# Share of the rays that must land in the window at every field.
ENOUGH_LIGHT = 0.95


@dataclass(frozen=True)
class Blur:
    """The blurs of a lens.

    Attributes:
        kernels: position x colour (C, d, F as R, G, B) x y x x, each of sum 1.
        between: The same off the axis at the azimuths ``BETWEEN``: field x azimuth x colour x y x x.
        mtf: field x colour x frequency at ``CYCLES_MM``.
        zernike: field x colour x 37 Fringe coefficients in waves over the aperture stop.
        zernike12: The same from a fit with 12 terms.
    """

    kernels: Array
    between: Array
    mtf: Array
    zernike: Array
    zernike12: Array
    pitch_um: float
    mtf50: tuple[float, ...]
    """MTF50 by field, in cycles per pixel."""
    window_um: int
    focus_mm: float
    caught: tuple[float, ...]
    """Smallest share of the rays, over the colours, that lands in the window, by field."""
    kept: float
    """Smallest share of the window's light that a kernel contains."""

    @property
    def quality(self) -> float:
        """Mean over the fields of the kernels' MTF50, in cycles per pixel."""
        return float(np.mean(self.mtf50))


def blur(lens: Lens, focus: str = "best") -> Blur:
    """Trace the blurs of a lens.

    Args:
        lens: The lens. Its ``focus_mm`` is changed if ``focus`` is ``best``.
        focus: ``best`` moves the sensor to the least blur, ``file`` leaves it where the file puts it.

    Raises:
        Refused: The light of some field is too spread out.
    """
    if focus not in ("best", "file"):
        raise SoritesError(f"focus: expected best or file, got {focus!r}")
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
            f"at some field only {least:.0%} of its light falls within {WINDOWS[-1]} um; expected"
            f" {ENOUGH_LIGHT:.0%}"
        )
    return _match_sensor(lens, angles, boxes, first, window)


def _shares(rays: Sequence[Sequence[Rays]], window: int) -> list[float]:
    """Return the smallest share of rays in the window, over the colours, by field."""
    return [min(inside(beam, window) for beam in by_colour) for by_colour in rays]


def best_focus(rays: Sequence[Sequence[Rays]], f_number: float) -> float:
    """Return the shift of the sensor (mm) at which rays are closest to their median point, over fields and
    colours.
    """

    def blurred(by: float) -> float:
        return float(np.mean([np.mean(_distances(beam.moved(by))) for beam in beams_]))

    beams_ = [beam for by_colour in rays for beam in by_colour]
    reach = 8 * f_number * max(float(np.median(_distances(beam))) for beam in beams_) + 1e-4
    # A coarse grid search, then a bounded minimisation around its best point.
    shifts = np.linspace(-reach, reach, 81)
    near = float(shifts[int(np.argmin([blurred(shift) for shift in shifts]))])
    step = float(shifts[1] - shifts[0])
    best = minimize_scalar(
        blurred, bounds=(near - step, near + step), method="bounded", options={"xatol": 1e-6}
    )
    return float(best.x)


def _distances(rays: Rays) -> Array:
    """Return the distance of each ray from the median landing point."""
    return np.asarray(np.hypot(rays.x - np.median(rays.x), rays.y - np.median(rays.y)))


def _match_sensor(
    lens: Lens, angles: list[float], boxes: list[Beam], first: list[list[Rays]], window: int
) -> Blur:
    """Trace finely, choose the pixel pitch and kernel size that suit the lens, and resample the PSFs."""
    psfs, between, curves, fits37, fits12 = [], [], [], [], []
    for angle, box, coarse in zip(angles, boxes, first, strict=True):
        lit = _trace_finely(lens, angle, box, coarse, window)
        turns = AZIMUTHS if angle else (90,)
        psfs += [_turned_psfs(lit, turn, window) for turn in turns]
        between += [_turned_psfs(lit, turn, window) for turn in BETWEEN if angle]
        curves.append([radial_mtf(plane) for plane in psfs[-1]])
        fits37.append([fit_zernike(rays, line, 37) for line, rays in lit])
        fits12.append([fit_zernike(rays, line, 12) for line, rays in lit])
    # The outermost field does not influence the pitch.
    pitch = pitch_um([curve for by_colour in curves[:-1] for curve in by_colour])
    side, kept = side_for([shares(plane, pitch) for planes in psfs for plane in planes])
    kernels, more = (_centre_kernels(each, pitch, side) for each in (psfs, between))
    sharp = tuple(_mean_mtf50(kernels, field) for field in FIELDS)
    more = more.reshape(len(FIELDS) - 1, len(BETWEEN), *kernels.shape[1:])
    return Blur(
        kernels, more, np.array(curves), np.array(fits37), np.array(fits12), pitch, sharp, window,
        lens.focus_mm, tuple(_shares(first, window)), kept,
    )  # fmt: skip


def _centre_kernels(psfs: list[list[Array]], pitch: float, side: int) -> Array:
    return np.array([[centre_kernel(plane, pitch, side) for plane in planes] for planes in psfs])


def _turned_psfs(lit: list[tuple[float, Rays]], azimuth: float, window: int) -> list[Array]:
    """Return the PSFs by colour of rays that were traced at azimuth 90 degrees, at another azimuth."""
    return [psf(rays.turned(azimuth - 90), line, window) for line, rays in lit]


def _trace_finely(
    lens: Lens, angle: float, box: Beam, coarse: list[Rays], window: int
) -> list[tuple[float, Rays]]:
    """Return (wavelength, gathered rays) of a field, with as many rays as its window needs."""
    lit = []
    for line, rays in zip(LINES_UM, coarse, strict=True):
        count = rays_across(drop_stray_rays(rays, window), line, window)
        lit.append((line, drop_stray_rays(trace(lens, angle, line, count, box), window)))
    return lit


def _mean_mtf50(kernels: Array, field: float) -> float:
    """Return the MTF50 of the kernels at a field, averaged over its azimuths."""
    return float(
        np.mean([mtf50(kernel) for kernel, (at, _) in zip(kernels, POSITIONS, strict=True) if at == field])
    )


def fit_zernike(rays: Rays, line_um: float, terms: int) -> Array:
    """Fit Fringe coefficients (in waves; a longer path is positive) to the wavefront over the aperture stop.

    The wavefront is relative to the mean image point of the rays.
    """
    step = max(1, len(rays.x) // 4000)
    subset = rays.where(np.arange(len(rays.x)) % step == 0)
    late = subset.path + subset.L * (rays.x.mean() - subset.x) + subset.M * (rays.y.mean() - subset.y)
    waves = (late - late.mean()) / (line_um / 1000)
    rho, theta = np.hypot(subset.sx, subset.sy), np.arctan2(subset.sy, subset.sx)
    basis = np.stack([zernike(*fringe(i), rho, theta) for i in range(1, terms + 1)], axis=1)
    return np.asarray(np.linalg.lstsq(basis, waves, rcond=None)[0])
