"""The two charts of a lens's sheet: contrast over spatial frequency, and the terms of the wavefront, at five fields."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from sorites.drawings.lens_space import FAINT, INK, SOFT, Box, Pen, Point
from sorites.lenses.store import Entry
from sorites.optics.tracing.positions import PERCENT

HEIGHT = 284
"""The height of the charts with their labels, in px."""
REACH = 500.0
"""The cycles per mm at which a stored curve ends."""
COLOURS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (240, 170, 20))
"""The colours of the fields, from the middle outward."""
TERMS = {
    4: "defocus",
    5: "astigmatism",
    6: "astigmatism 45",
    7: "coma x",
    8: "coma y",
    9: "spherical",
    10: "trefoil",
    11: "trefoil 30",
}
"""The names of the terms that are drawn, by Fringe number."""
Array = NDArray[np.float32]


def panels(entry: Entry, width: int) -> Pillow.Image:
    """Draw the MTF on the left and the Zernike coefficients on the right, with one colour per field."""
    pen = Pen(width, HEIGHT)
    _fields(pen, (16, 12))
    _curves(pen, entry.arrays["mtf"], 500 / float(entry.about["pitch_um"]), (56, 68, width * 0.48, HEIGHT - 44))
    _wavefront(pen, entry.arrays["zernike12"], (width * 0.56, 68, width - 16, HEIGHT - 44))
    return pen.finished()


def _fields(pen: Pen, at: Point) -> None:
    """Draw the legend of both charts: the colour of each field."""
    pen.text(at, "below, by distance from the middle:", 13, "lm")
    for i, (field, colour) in enumerate(zip(PERCENT, COLOURS, strict=True)):
        x = at[0] + 236 + 128 * i
        pen.line([(x, at[1]), (x + 20, at[1])], colour, 4)
        pen.text((x + 26, at[1]), f"{field} % of the field", 12, "lm")


def right_edge(nyquist: float) -> float:
    """Return the cycles per mm at the right edge: twice the pixels' Nyquist frequency, or less if no curve reaches that far."""
    return min(2 * nyquist, max(REACH, 1.1 * nyquist))


def ticks(low: float, high: float, most: int = 8) -> list[float]:
    """Return round numbers (in steps of 1, 2 or 5 times a power of ten) from ``low`` to ``high``, at most ``most`` steps."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(times * power for times in (1, 2, 5, 10) if times * power >= rough * (1 - 1e-9))
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def curve(values: Array, end: float) -> tuple[Array, Array]:
    """Return frequencies and contrasts of a stored curve up to ``end`` cycles per mm, with the last point exactly there."""
    stored = np.linspace(0, REACH, len(values))
    x = np.append(stored[stored < end], min(end, REACH))
    return x.astype(np.float32), np.interp(x, stored, values).astype(np.float32)


def _curves(pen: Pen, mtf: Array, nyquist: float, box: Box) -> None:
    """Draw the contrast in percent over cycles per mm at each field, averaged over the colours."""
    left, top, right, bottom = box
    end = right_edge(nyquist)

    def at(x: float, y: float) -> tuple[float, float]:
        return left + x / end * (right - left), bottom - y * (bottom - top)

    pen.text((left - 40, top - 36), "MTF, mean of the colours", 14)
    for share in (0, 0.25, 0.5, 0.75, 1):
        pen.line([at(0, share), at(end, share)], SOFT if share == 0.5 else FAINT, 1 if share == 0.5 else 0.6)
        pen.text((left - 6, at(0, share)[1]), f"{100 * share:.0f} %", 12, "rm", SOFT)
    for x in ticks(0, end):
        pen.line([at(x, 0), (at(x, 0)[0], bottom + 4)], SOFT)
        pen.text((at(x, 0)[0], bottom + 13), f"{x:g}", 12, "mm", SOFT)
    pen.text(((left + right) / 2, bottom + 31), "cycles/mm", 12, "mm", SOFT)
    pen.line([at(nyquist, 0), at(nyquist, 1)], SOFT, 1)
    pen.text((at(nyquist, 1)[0], top - 8), f"Nyquist {nyquist:.3g}", 12, "mm", SOFT)
    for values, colour in zip(mtf.mean(1), COLOURS, strict=True):
        pen.line([at(x, y) for x, y in zip(*(part.tolist() for part in curve(values, end)), strict=True)], colour, 1.8)


def _wavefront(pen: Pen, zernike: Array, box: Box) -> None:
    """Draw the Fringe coefficients of a twelve-term fit in waves, averaged over the colours, as one bar per field."""
    left, top, right, bottom = box
    mean = zernike.mean(1)[:, [term - 1 for term in TERMS]]
    most = 1.06 * max(float(np.abs(mean).max()), 1e-9)
    step = (right - left) / len(TERMS)

    def at(value: float) -> float:
        return (top + bottom) / 2 - value / most * (bottom - top) / 2

    pen.text((left - 40, top - 36), "Zernike coefficients in waves, mean of the colours", 14)
    for value in ticks(-most, most):
        pen.line([(left, at(value)), (right, at(value))], SOFT if value == 0 else FAINT, 1 if value == 0 else 0.6)
        pen.text((left - 6, at(value)), f"{value:g}", 12, "rm", SOFT)
    for t, name in enumerate(TERMS.values()):
        start = left + t * step
        pen.text((start + step / 2, bottom + 13 + 15 * (t % 2)), name, 11, "mm", INK)
        for i, value in enumerate(mean[:, t].tolist()):
            x0, x1 = (start + 4 + (i + end) * (step - 8) / len(PERCENT) for end in (0.06, 0.94))
            pen.area([(x0, at(0)), (x1, at(0)), (x1, at(value)), (x0, at(value))], COLOURS[i])
