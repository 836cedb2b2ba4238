"""Draw the kernels of the lens aberrations with their MTF curves as one image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pil
from PIL import ImageDraw

from sorites.optics.mtf import FREQUENCIES, mtf
from sorites.shifts.aberration import LEVELS, NAMES, WAVES, Stack, default

Array = NDArray[np.float64]
# Sizes in px: a kernel in colour, one of its planes, a plot, the space between, the label of a row.
TILE, PLANE, PLOT, GAP, LABEL = 100, 32, 150, 8, 150


def sheet(kernels: Stack | None = None) -> Pil.Image:
    """Draw modes down, levels across: each kernel in colour over its RGB planes; MTF curves at the right."""
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
    scaled = np.rint(255 * np.sqrt(taps / taps.max((1, 2), keepdims=True))).astype(np.uint8)
    colour = Pil.fromarray(np.ascontiguousarray(np.moveaxis(scaled, 0, -1)))
    page.paste(colour.resize((TILE, TILE), Pil.Resampling.NEAREST), (left, top))
    for c, plane in enumerate(scaled):
        gray = Pil.fromarray(plane).resize((PLANE, PLANE), Pil.Resampling.NEAREST)
        page.paste(gray, (left + c * (PLANE + 2), top + TILE + 2))


def _plot(draw: ImageDraw.ImageDraw, levels: list[Array], left: int, top: int) -> None:
    """Draw one line per level, darker upwards: contrast over frequency, with a hairline at one half."""
    height = TILE
    draw.rectangle((left, top, left + PLOT, top + height), outline="gray")
    draw.line((left, top + height // 2, left + PLOT, top + height // 2), fill="lightgray")
    across = left + FREQUENCIES / FREQUENCIES[-1] * PLOT
    for i, taps in enumerate(levels):
        curve = np.mean([mtf(plane) for plane in taps], axis=0)
        shade = 180 - 40 * i
        draw.line(
            list(zip(across.tolist(), (top + (1 - curve) * height).tolist(), strict=True)),
            fill=(shade, shade, 255 - 30 * i),
        )
