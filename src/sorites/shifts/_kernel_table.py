"""The kernels as a table and as a picture: what ``sorites kernels`` and ``sorites kernels match`` show."""

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
"""Pixels: a kernel in colour, one of its planes, a plot, the space between, the row's label."""


def references(path: str | None = None) -> dict[tuple[int, int], Array]:
    """What to match, by mode and level: ImageNet-C's disks, or the kernels of a stack file."""
    if path is None:
        return {(mode, level): disk(defocus_disk.levels[level - 1]) for mode in WAVES for level in LEVELS}
    held = load(path)
    return {(mode, level): held.taps(mode, level) for mode in WAVES for level in LEVELS}


def kernel_table(kernels: Stack | None = None) -> pl.DataFrame:
    """A row a mode, level and colour: MTF numbers in cycles per pixel (null above Nyquist), and against the disk."""
    held = kernels or default()
    return pl.DataFrame([_told(held, mode, level, c) for mode in WAVES for level in LEVELS for c in range(3)]).fill_nan(None)


def _told(held: Stack, mode: int, level: int, colour: int) -> dict[str, object]:
    plane = held.taps(mode, level)[colour]
    read, x_y = sharpness(plane), centroid(plane)
    baseline = sharpness(disk(defocus_disk.levels[level - 1]))
    return {
        "zernike": mode,
        "name": NAMES[mode],
        "level": level,
        "colour": COLOURS[colour],
        "mtf50": read.mtf50,
        "mtf20": read.mtf20,
        "mtf10": read.mtf10,
        "area": read.area,
        "mtf50_over_disk": read.mtf50 / baseline.mtf50,
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
    """The coefficient of each mode that matches its reference, with the residual of every criterion; and the kernels.

    Columns without a unit are ours over the reference's minus one; ``caught`` is the light left inside the frame:
    where that is far below 1, at the upper levels, the frame and not the coefficient limits the match.
    """
    if unknown := [m for m in modes if m not in WAVES] + [n for n in levels if n not in LEVELS]:
        raise SoritesError(f"wanted Zernike modes {min(WAVES)} to {max(WAVES)} and levels 1 to 5, got {unknown[0]}")
    wanted, rows, made = references(reference), [], {}
    for mode, level in ((mode, level) for mode in modes for level in levels):
        target = wanted[mode, level]
        found = match(imager, mode, target, criterion)
        made[mode, level] = found.taps
        told = residuals(found.taps, target) | charts(found.taps, target)
        row = {"zernike": mode, "name": NAMES[mode], "level": level, "criterion": criterion, "waves": found.waves}
        rows.append(row | {"caught": found.caught} | told)
    return pl.DataFrame(rows).fill_nan(None), made


def camera(f_number: float | None, pixel_um: float | None, wavelengths_um: Sequence[float] | None) -> Imager:
    """The default camera with what is named replaced; its residual wavefront stays."""
    if wavelengths_um is not None and len(wavelengths_um) != 3:
        raise SoritesError(f"wavelengths: wanted three, red, green and blue in micrometres, got {len(wavelengths_um)}")
    lines = RGB.wavelengths_um if wavelengths_um is None else tuple(wavelengths_um)
    return replace(RGB, f_number=f_number or RGB.f_number, pixel_um=pixel_um or RGB.pixel_um, wavelengths_um=lines)


def packed(kernels: Mapping[tuple[int, int], Array]) -> bytes:
    """A whole matched set as the ``.npy`` file that ``load`` reads."""
    if missing := [(mode, level) for mode in WAVES for level in LEVELS if (mode, level) not in kernels]:
        raise SoritesError(f"a set holds every mode and level; leave out --mode and --level (missing: mode, level {missing[0]})")
    buffer = io.BytesIO()
    np.save(buffer, np.array([[kernels[mode, level] for level in LEVELS] for mode in WAVES], np.float32))
    return buffer.getvalue()


def sheet(kernels: Stack | None = None) -> Pil.Image:
    """Modes down, levels across: each kernel in colour over its red, green and blue planes; at the right the MTF curves."""
    from PIL import Image as Pil
    from PIL import ImageDraw

    held = kernels or default()
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
            _place(page, held.taps(mode, level), LABEL + (level - 1) * column, top)
        _plot(draw, [held.taps(mode, level) for level in LEVELS], LABEL + 5 * column + GAP, top)
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
    """One line a level, darker upwards; contrast 0 to 1 up, frequency across, a hair line at one half."""
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
