"""The kernels as a table and as a picture, for ``sorites kernels`` and ``sorites kernels match``."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.errors import SoritesError
from sorites.optics.aberrated import Imager
from sorites.optics.match import charts, match, residuals
from sorites.optics.mtf import FREQUENCIES, mtf, sharpness
from sorites.optics.psf import centroid
from sorites.shifts._kernels import LEVELS, NAMES, RGB, WAVES, Stack, default, load
from sorites.shifts.blur import defocus_disk, disk

if TYPE_CHECKING:
    from PIL import Image as Pil
    from PIL import ImageDraw

Array = NDArray[np.float64]
COLOURS = ("red", "green", "blue")
TILE, PLANE, PLOT, GAP, LABEL = 100, 32, 150, 8, 150
"""Sizes in pixels: a kernel in colour, one of its planes, a plot, the space between them, the label of a row."""


def references(path: str | None = None) -> dict[tuple[int, int], Array]:
    """Return the kernels to match, by mode and level: ImageNet-C's disks, or the kernels of a stack file."""
    if path is None:
        return {(mode, level): disk(defocus_disk.levels[level - 1]) for mode in WAVES for level in LEVELS}
    stack = load(path)
    return {(mode, level): stack.taps(mode, level) for mode in WAVES for level in LEVELS}


def kernel_table(kernels: Stack | None = None) -> pl.DataFrame:
    """Return one row per mode, level and colour: MTF numbers in cycles per pixel (null above Nyquist), also over the disk's."""
    stack = kernels or default()
    return pl.DataFrame([_row(stack, mode, level, c) for mode in WAVES for level in LEVELS for c in range(3)]).fill_nan(None)


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
    """Find the coefficient of each mode that matches its reference; return it with every criterion's residual, and the kernels.

    Columns without a unit are ours over the reference's minus one; ``caught`` is the light left inside the frame:
    where that is far below 1, at the upper levels, the frame and not the coefficient limits the match.
    """
    if unknown := [m for m in modes if m not in WAVES] + [n for n in levels if n not in LEVELS]:
        raise SoritesError(f"wanted Zernike modes {min(WAVES)} to {max(WAVES)} and levels 1 to 5, got {unknown[0]}")
    wanted, rows, kernels = references(reference), [], {}
    for mode, level in ((mode, level) for mode in modes for level in levels):
        target = wanted[mode, level]
        found = match(imager, mode, target, criterion)
        kernels[mode, level] = found.taps
        differences = residuals(found.taps, target) | charts(found.taps, target)
        row = {"zernike": mode, "name": NAMES[mode], "level": level, "criterion": criterion, "waves": found.waves}
        rows.append(row | {"caught": found.caught} | differences)
    return pl.DataFrame(rows).fill_nan(None), kernels


def camera(f_number: float | None, pixel_um: float | None, wavelengths_um: Sequence[float] | None) -> Imager:
    """Return the default camera with the given numbers replaced; its residual wavefront stays."""
    if wavelengths_um is not None and len(wavelengths_um) != 3:
        raise SoritesError(f"wavelengths: wanted three, red, green and blue in micrometres, got {len(wavelengths_um)}")
    lines = RGB.wavelengths_um if wavelengths_um is None else tuple(wavelengths_um)
    return replace(RGB, f_number=f_number or RGB.f_number, pixel_um=pixel_um or RGB.pixel_um, wavelengths_um=lines)


def packed(kernels: Mapping[tuple[int, int], Array]) -> bytes:
    """Return a whole matched set as the bytes of the ``.npy`` file that ``load`` reads."""
    if missing := [(mode, level) for mode in WAVES for level in LEVELS if (mode, level) not in kernels]:
        raise SoritesError(f"a set holds every mode and level; leave out --mode and --level (missing: mode, level {missing[0]})")
    buffer = io.BytesIO()
    np.save(buffer, np.array([[kernels[mode, level] for level in LEVELS] for mode in WAVES], np.float32))
    return buffer.getvalue()


def sheet(kernels: Stack | None = None) -> Pil.Image:
    """Draw the kernels, modes down and levels across: each in colour above its three planes, and the MTF curves at the right."""
    from PIL import Image as Pil
    from PIL import ImageDraw

    stack = kernels or default()
    row, column = TILE + PLANE + 3 * GAP, TILE + GAP
    page = Pil.new("RGB", (LABEL + 5 * column + PLOT + 3 * GAP, 24 + 8 * row), "white")
    draw = ImageDraw.Draw(page)
    for level in LEVELS:
        draw.text((LABEL + (level - 1) * column, 6), f"level {level}", fill="black")
    draw.text((LABEL + 5 * column + GAP, 6), "MTF to 0.5 cycles/px", fill="black")
    for i, mode in enumerate(WAVES):
        top = 24 + i * row
        draw.text((GAP, top + TILE // 2), f"Z{mode} {NAMES[mode]}", fill="black")
        for level in LEVELS:
            _place(page, stack.taps(mode, level), LABEL + (level - 1) * column, top)
        _plot(draw, [stack.taps(mode, level) for level in LEVELS], LABEL + 5 * column + GAP, top)
    return page


def _place(page: Pil.Image, taps: Array, left: int, top: int) -> None:
    from PIL import Image as Pil

    shown = np.rint(255 * np.sqrt(taps / taps.max((1, 2), keepdims=True))).astype(np.uint8)
    colour = Pil.fromarray(np.ascontiguousarray(np.moveaxis(shown, 0, -1)))
    page.paste(colour.resize((TILE, TILE), Pil.Resampling.NEAREST), (left, top))
    for c, plane in enumerate(shown):
        gray = Pil.fromarray(plane).resize((PLANE, PLANE), Pil.Resampling.NEAREST)
        page.paste(gray, (left + c * (PLANE + 2), top + TILE + 2))


def _plot(draw: ImageDraw.ImageDraw, levels: list[Array], left: int, top: int) -> None:
    """Draw one line per level, darker for higher levels: contrast 0 to 1 upwards, frequency across, a hairline at one half."""
    height = TILE
    draw.rectangle((left, top, left + PLOT, top + height), outline="gray")
    draw.line((left, top + height // 2, left + PLOT, top + height // 2), fill="lightgray")
    across = left + FREQUENCIES / FREQUENCIES[-1] * PLOT
    for i, taps in enumerate(levels):
        curve = np.mean([mtf(plane) for plane in taps], axis=0)
        shade = 180 - 40 * i
        draw.line(
            list(zip(across.tolist(), (top + (1 - curve) * height).tolist(), strict=True)), fill=(shade, shade, 255 - 30 * i)
        )
