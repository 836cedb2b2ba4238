"""Turn a PSF on a 1 um grid into the kernel of a camera whose pixels suit the lens.

This follows Mueller, Braun and Keuper, appendix D: the sensor's Nyquist frequency is the lens's mean MTF20; the PSF is resampled
to that pitch (antialiased bicubic), cropped to 99.5 % of its light, and shifted so that its centre of mass is in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import fft, ndimage

from sorites.optics.mtf import FREQUENCIES, crossing
from sorites.optics.psf import centroid
from sorites.optics.tracing.prescription import Refused

Array = NDArray[np.float64]
PITCH_UM = (1.0, 20.0)
"""The pixel pitches that sensors have, in micrometres: the smallest and the largest."""
WANTED_SHARE = 0.995
"""The share of the light that a kernel should hold."""
LEAST_SHARE = 0.97
"""The share of the light that a kernel must hold."""
MOST_PX = 51
"""The widest kernel for the sake of 99.5 % of the light: a nearly perfect lens on 1 um pixels would need 200 px for the last
percent of its diffraction rings. A blur that is itself wide gets as many pixels as 97 % of its light needs."""
CYCLES_MM: Array = FREQUENCIES * 1000
"""The frequencies, in cycles per mm, of the MTF of a PSF sampled at 1 um, up to its Nyquist frequency."""
_TURNS = np.arange(32) * np.pi / 32


def radial_mtf(light: Array) -> Array:
    """Return the MTF averaged over all directions at ``FREQUENCIES`` (cycles per sample), from one padded FFT. It equals
    ``mtf.mtf`` except for interpolation between the FFT's points, and is much faster for large arrays."""
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
    """Return the pixel pitch whose Nyquist frequency is the curves' mean MTF20, within what sensors have (1 to 20 um)."""
    return float(np.clip(500 / np.mean([mtf20(curve) for curve in curves]), *PITCH_UM))


def mtf50(kernel: Array) -> float:
    """Return a kernel's MTF50 in cycles per pixel, averaged over its colours; one that stays above 50 % counts as 0.5."""
    found = [crossing(radial_mtf(plane), 0.5) for plane in kernel]
    return float(np.mean([0.5 if np.isnan(one) else one for one in found]))


def _cubic(t: Array) -> Array:
    """Return Keys' cubic interpolation kernel with a = -1/2 (1981)."""
    t = np.abs(t)
    inner = (1.5 * t - 2.5) * t * t + 1
    outer = ((-0.5 * t + 2.5) * t - 4) * t + 2
    return np.where(t <= 1, inner, np.where(t < 2, outer, 0.0))


def resampled(light: Array, pitch: float, side: int, middle: tuple[float, float]) -> Array:
    """Resample light to ``side`` x ``side`` pixels of ``pitch`` um around ``middle`` (x, y in um from the array's middle). The
    result sums to 1 and is nowhere negative."""
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
    """Return the side of the kernels in pixels and the smallest share of the light that it holds, from the ``shares`` of all
    PSFs.

    The side is the smallest odd number that holds 99.5 % of every PSF's light. If that is above ``MOST_PX``, it is ``MOST_PX``,
    or whatever holds 97 % if ``MOST_PX`` does not.
    """
    side = min(_needed(curves, WANTED_SHARE), max(MOST_PX, _needed(curves, LEAST_SHARE)))
    return side, min(float(one[min(side // 2, len(one) - 1)]) for one in curves)


def _needed(curves: Sequence[Array], share: float) -> int:
    """Return the smallest odd side that holds a share of every PSF's light."""
    return max(2 * int(np.argmax(one >= share)) + 1 if (one >= share).any() else 2 * len(one) - 1 for one in curves)
