"""Tables of kernels, for ``sorites kernels`` and ``sorites kernels match``."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.optics.match import charts, match, residuals
from sorites.optics.mtf import sharpness
from sorites.optics.psf import Imager, centroid
from sorites.shifts.aberration import LEVELS, NAMES, RGB, WAVES, Stack, default, load
from sorites.shifts.blur import defocus_disk, disk

Array = NDArray[np.float64]
COLOURS = ("red", "green", "blue")
# The exclusive upper limit of f-number, pixel pitch and wavelength (um).
LARGEST = 1000.0


def references(path: str | None = None) -> dict[tuple[int, int], Array]:
    """Return the kernels to match by mode and level: ImageNet-C's disks, or the kernels of a file."""
    if path is None:
        return {(mode, level): disk(defocus_disk.levels[level - 1]) for mode in WAVES for level in LEVELS}
    stack = load(path)
    return {(mode, level): stack.taps(mode, level) for mode in WAVES for level in LEVELS}


def kernel_table(kernels: Stack | None = None) -> pl.DataFrame:
    """Return a row per mode, level and colour with MTF values in cycles per pixel (null above Nyquist), also
    relative to the disk.
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
    """Find the coefficient of each mode that matches its reference.

    Returns:
        A table with the coefficients and the residuals of all criteria, and the kernels. The columns of MTF
        and area are relative differences to the reference, ``acutance`` is a difference, and SSIM and PSNR
        (dB) are those of the blurred charts. ``caught`` is the share of light inside the frame. If it is far
        below 1, as at the upper levels, the frame limits the match.
    """
    if unknown := [m for m in modes if m not in WAVES] + [n for n in levels if n not in LEVELS]:
        raise SoritesError(
            f"expected Zernike modes {min(WAVES)} to {max(WAVES)} and levels 1 to 5, got {unknown[0]}"
        )
    targets, rows, kernels = references(reference), [], {}
    for mode, level in ((mode, level) for mode in modes for level in levels):
        target = targets[mode, level]
        matched = match(imager, mode, target, criterion)
        kernels[mode, level] = matched.taps
        differences = residuals(matched.taps, target) | charts(matched.taps, target)
        row = {
            "zernike": mode,
            "name": NAMES[mode],
            "level": level,
            "criterion": criterion,
            "waves": matched.waves,
        }
        rows.append(row | {"caught": matched.caught} | differences)
    return pl.DataFrame(rows).fill_nan(None), kernels


def camera(f_number: float | None, pixel_um: float | None, wavelengths_um: Sequence[float] | None) -> Imager:
    """Return the default camera with some parameters replaced; its residual wavefront is unchanged."""
    if wavelengths_um is not None and len(wavelengths_um) != 3:
        raise SoritesError(
            f"wavelengths: expected red, green and blue in micrometres, got {len(wavelengths_um)} values"
        )
    parameters = {
        "f_number": f_number,
        "pixel_um": pixel_um,
        "wavelengths_um": None if wavelengths_um is None else tuple(wavelengths_um),
    }
    for name, value in parameters.items():
        for number in value if isinstance(value, tuple) else () if value is None else (value,):
            if not 0 < number < LARGEST:
                raise SoritesError(
                    f"{name.removesuffix('_um')}: expected a number above 0 and below {LARGEST:g}, got"
                    f" {number!r}"
                )
    return replace(RGB, **{name: value for name, value in parameters.items() if value is not None})  # type: ignore[arg-type]


def check_complete(kernels: Collection[tuple[int, int]]) -> None:
    """Raise an error unless these modes and levels are a complete set."""
    if missing := [(mode, level) for mode in WAVES for level in LEVELS if (mode, level) not in kernels]:
        raise SoritesError(
            f"a set needs every mode and level; remove {option('mode', None)} and {option('level', None)}"
            f" (missing: mode, level {missing[0]})"
        )


def kernel_set_bytes(kernels: Mapping[tuple[int, int], Array]) -> bytes:
    """Return a complete set of matched kernels as the bytes of a ``.npy`` file for ``load``."""
    check_complete(kernels)
    buffer = io.BytesIO()
    np.save(buffer, np.array([[kernels[mode, level] for level in LEVELS] for mode in WAVES], np.float32))
    return buffer.getvalue()
