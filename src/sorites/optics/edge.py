"""The MTF of a camera from a photograph of a slanted edge (ISO 12233), and a round kernel that has it.

Rows across the edge are pixels at many distances from it. Sorted into quarters of a pixel they give the edge
spread; its derivative is the line spread, whose transform is the MTF across the edge.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from sorites.core.errors import SoritesError
from sorites.optics.mtf import FREQUENCIES

Array = NDArray[np.float64]
# Bins per pixel of the edge spread.
FINE = 4
# Smallest and largest angle of the edge to the nearest axis of the pixels, in degrees.
ANGLES_DEG = (1.0, 44.0)
# Smallest difference between both sides, relative to the brighter one.
LEAST_CONTRAST = 0.1
# Smallest side of the photograph of an edge, in px.
LEAST_SIDE = 20


def edge_mtf(plane: Array) -> Array:
    """Return the MTF at ``FREQUENCIES`` (cycles per pixel) across a slanted edge.

    Args:
        plane: H x W linear light with one straight edge, steep or flat, that crosses it from end to end.

    Raises:
        SoritesError: There is no such edge.
    """
    if plane.ndim != 2 or min(plane.shape) < LEAST_SIDE or not np.isfinite(plane).all():
        raise SoritesError(
            f"edge: expected finite light of at least {LEAST_SIDE} x {LEAST_SIDE} px, got {plane.shape}"
        )
    steep = np.abs(np.diff(plane.mean(0))).sum() >= np.abs(np.diff(plane.mean(1))).sum()
    rows = plane if steep else plane.T
    places, slope = _edge_line(rows)
    return _mtf_of_spread(_line_spread(rows, places, slope))


def _edge_line(rows: Array) -> tuple[Array, float]:
    """Return the column of the edge in each row, on a straight line, and its slope."""
    sides = rows[:, : rows.shape[1] // 5].mean(), rows[:, -(rows.shape[1] // 5) :].mean()
    if abs(sides[1] - sides[0]) < LEAST_CONTRAST * max(abs(sides[0]), abs(sides[1]), 1e-9):
        raise SoritesError(
            f"edge: expected a dark and a bright side, got means of {sides[0]:.3g} and {sides[1]:.3g}"
        )
    numbers, places = np.arange(len(rows)), np.full(len(rows), (rows.shape[1] - 1) / 2)
    change = np.diff(rows, axis=1) * np.sign(sides[1] - sides[0])
    between = np.arange(rows.shape[1] - 1) + 0.5
    width = rows.shape[1] / 2
    slope = 0.0
    for _ in range(8):  # the window follows the line that was found so far
        weights = np.maximum(change, 0) * (np.abs(between - places[:, None]) <= width)
        total = weights.sum(1)
        seen = total > 0.2 * np.median(total[total > 0]) if (total > 0).any() else total > 0
        if seen.sum() < LEAST_SIDE // 2:
            raise SoritesError("edge: expected one edge that crosses the whole photograph")
        found = (weights @ between)[seen] / total[seen]
        slope, start = np.polyfit(numbers[seen], found, 1)
        places, width = start + slope * numbers, max(width / 2, 6.0)
    angle = np.degrees(np.arctan(abs(slope)))
    if not ANGLES_DEG[0] <= angle <= ANGLES_DEG[1]:
        raise SoritesError(
            f"edge: expected an edge tilted by {ANGLES_DEG[0]:g} to {ANGLES_DEG[1]:g} degrees against the"
            f" pixels, got {angle:.2f}"
        )
    return places, float(slope)


def _line_spread(rows: Array, places: Array, slope: float) -> Array:
    """Return the line spread in steps of 1 / ``FINE`` px, tapered to 0 at both ends."""
    away = (np.arange(rows.shape[1]) - places[:, None]) / np.hypot(1, slope)
    reach = min(float(-away[:, 0].max()), float(away[:, -1].min()))
    count = int(reach * FINE) - 1
    if count < 4 * FINE:
        raise SoritesError("edge: expected the edge in the middle, at least 4 px from both borders")
    bins = np.rint(away * FINE).astype(int) + count
    inside = (bins >= 0) & (bins <= 2 * count)
    filled = np.bincount(bins[inside], minlength=2 * count + 1)
    sums = np.bincount(bins[inside], rows[inside], minlength=2 * count + 1)
    known = np.flatnonzero(filled)
    spread = np.interp(np.arange(2 * count + 1), known, sums[known] / filled[known])
    line = (spread[2:] - spread[:-2]) / 2
    peak = int(np.rint((np.abs(line) @ np.arange(len(line))) / np.abs(line).sum()))
    half = min(peak, len(line) - 1 - peak)
    return np.asarray(line[peak - half : peak + half + 1] * np.hamming(2 * half + 1))


def _mtf_of_spread(line: Array) -> Array:
    """Return the MTF of a line spread, corrected for its bins and its derivative."""
    step = np.arange(len(line)) / FINE
    curve = np.abs(np.exp(-2j * np.pi * np.outer(FREQUENCIES, step)) @ line) / abs(line.sum())
    # A difference over two bins, and the mean over one.
    return np.asarray(curve / np.sinc(2 * FREQUENCIES / FINE) / np.sinc(FREQUENCIES / FINE))


def round_kernel(curve: Array, side: int) -> Array:
    """Return the kernel of ``side`` px whose MTF is ``curve`` in every direction; it sums to 1.

    The transfer function is taken as real and positive, and as 0 beyond Nyquist. Negative values, which no
    light has, are cut off.
    """
    size = fft.next_fast_len(4 * side)
    frequency = np.hypot(fft.fftfreq(size)[:, None], fft.rfftfreq(size)[None, :])
    transfer = np.interp(frequency, FREQUENCIES, np.clip(curve, 0, 1), right=0.0)
    light = fft.fftshift(fft.irfft2(transfer, s=(size, size)))
    low = size // 2 - side // 2
    kernel = np.maximum(light[low : low + side, low : low + side], 0)
    return np.asarray(kernel / kernel.sum())
