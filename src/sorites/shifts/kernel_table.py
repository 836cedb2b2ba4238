"""The kernels as a table: what ``sorites kernels`` and ``sorites kernels match`` print."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.optics.match import charts, match, residuals
from sorites.optics.mtf import sharpness
from sorites.optics.psf import Imager, centroid
from sorites.shifts.aberration import LEVELS, NAMES, RGB, WAVES, Stack, default, load
from sorites.shifts.blur import defocus_disk, disk

Array = NDArray[np.float64]
COLOURS = ("red", "green", "blue")
# The largest f-number, pixel pitch or wavelength (um) of a camera.
LARGEST = 1000.0


def references(path: str | None = None) -> dict[tuple[int, int], Array]:
    """Return the kernels to match, by mode and level: ImageNet-C's disks, or the kernels of a stack file."""
    if path is None:
        return {(mode, level): disk(defocus_disk.levels[level - 1]) for mode in WAVES for level in LEVELS}
    stack = load(path)
    return {(mode, level): stack.taps(mode, level) for mode in WAVES for level in LEVELS}


def kernel_table(kernels: Stack | None = None) -> pl.DataFrame:
    """Return one row per mode, level and colour: MTF numbers in cycles per pixel (null above
    Nyquist), also over the disk's.
    """
    stack = kernels or default()
    return pl.DataFrame(
        [_row(stack, mode, level, c) for mode in WAVES for level in LEVELS for c in range(3)]
    ).fill_nan(None)


def _row(stack: Stack, mode: int, level: int, colour: int) -> dict[str, object]:
    plane = stack.taps(mode, level)[colour]
    sharp, x_y = sharpness(plane), centroid(plane)
    baseline = sharpness(disk(defocus_disk.levels[level - 1]))
    return {
        "zernike": mode,
        "name": NAMES[mode],
        "level": level,
        "colour": COLOURS[colour],
        "mtf50": sharp.mtf50,
        "mtf20": sharp.mtf20,
        "mtf10": sharp.mtf10,
        "area": sharp.area,
        "mtf50_over_disk": sharp.mtf50 / baseline.mtf50,
        "centre_x": x_y[0],
        "centre_y": x_y[1],
    }


def match_table(
    reference: str | None = None,
    criterion: str = "mtf50",
    imager: Imager = RGB,
    modes: tuple[int, ...] = tuple(WAVES),
    levels: tuple[int, ...] = LEVELS,
) -> tuple[pl.DataFrame, dict[tuple[int, int], Array]]:
    """Find the coefficient of each mode that matches its reference; return it with every
    criterion's residual, and the kernels.

    Columns without a unit are ours over the reference's minus one; ``caught`` is the light left
    inside the frame: where that is far below 1, at the upper levels, the frame and not the
    coefficient limits the match.
    """
    if unknown := [m for m in modes if m not in WAVES] + [n for n in levels if n not in LEVELS]:
        raise SoritesError(
            f"wanted Zernike modes {min(WAVES)} to {max(WAVES)} and levels 1 to 5, got {unknown[0]}"
        )
    wanted, rows, kernels = references(reference), [], {}
    for mode, level in ((mode, level) for mode in modes for level in levels):
        target = wanted[mode, level]
        found = match(imager, mode, target, criterion)
        kernels[mode, level] = found.taps
        differences = residuals(found.taps, target) | charts(found.taps, target)
        row = {
            "zernike": mode,
            "name": NAMES[mode],
            "level": level,
            "criterion": criterion,
            "waves": found.waves,
        }
        rows.append(row | {"caught": found.caught} | differences)
    return pl.DataFrame(rows).fill_nan(None), kernels


def camera(f_number: float | None, pixel_um: float | None, wavelengths_um: Sequence[float] | None) -> Imager:
    """Return the default camera with the given numbers replaced; its residual wavefront stays."""
    if wavelengths_um is not None and len(wavelengths_um) != 3:
        raise SoritesError(
            f"wavelengths: wanted three, red, green and blue in micrometres, got {len(wavelengths_um)}"
        )
    given = {
        "f_number": f_number,
        "pixel_um": pixel_um,
        "wavelengths_um": None if wavelengths_um is None else tuple(wavelengths_um),
    }
    for name, value in given.items():
        for one in value if isinstance(value, tuple) else () if value is None else (value,):
            if not 0 < one < LARGEST:
                raise SoritesError(
                    f"{name.removesuffix('_um')}: wanted a number above 0 and below {LARGEST:g}, got {one!r}"
                )
    return replace(RGB, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]


def packed(kernels: Mapping[tuple[int, int], Array]) -> bytes:
    """Return a whole matched set as the bytes of the ``.npy`` file that ``load`` reads."""
    if missing := [(mode, level) for mode in WAVES for level in LEVELS if (mode, level) not in kernels]:
        raise SoritesError(
            "a set holds every mode and level; leave out --mode and --level (missing: mode, level"
            f" {missing[0]})"
        )
    buffer = io.BytesIO()
    np.save(buffer, np.array([[kernels[mode, level] for level in LEVELS] for mode in WAVES], np.float32))
    return buffer.getvalue()
