"""Draw a set of lenses as one picture: their balance between three kinds of aberration at five fields, and their focal lengths.

This follows Mueller, Braun and Keuper, figures 4a, 16 and 17: a lens is a unit vector of its coefficients for defocus with
spherical aberration, astigmatism and coma; the size of its dot is the logarithm of the vector's length.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from sorites.lenses.store import Entry, coefficient_space
from sorites.optics.tracing.positions import PERCENT

SCALE = 3
"""The picture is drawn this many times larger and then scaled down, so that edges are smooth."""
PANEL, HIGH, TOP, LEFT = 380, 352, 78, 20
INK, SOFT, FAINT, GROUND = (35, 38, 43), (105, 110, 118), (205, 205, 205), (247, 246, 243)
BLUE, ORANGE = (0, 114, 178), (213, 94, 0)
WAVES = (0.1, 1.0, 10.0)
"""The vector lengths that the legend shows, in waves."""
DEFOCUS, ASTIGMATISM, COMA = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
APERTURES = (1.4, 2.8, 5.6)
PAD = 13
"""The margin between an axis's ends and the edge of its chart, in px; the largest dot stays inside and clear of the numbers."""
Point = tuple[float, float]
Box = tuple[float, float, float, float]


class Pen:
    """A pen that takes coordinates of the finished picture and draws on the larger one. Dots are translucent, so that many in one
    place look darker."""

    def __init__(self, width: int, height: int) -> None:
        self.page = Pillow.new("RGB", (SCALE * width, SCALE * height), (255, 255, 255))
        self._draw = ImageDraw.Draw(self.page, "RGBA")

    def text(self, at: Point, words: str, size: int = 13, anchor: str = "la", fill: tuple[int, int, int] = INK) -> None:
        """Write words at a point; ``anchor`` is Pillow's."""
        self._draw.text((SCALE * at[0], SCALE * at[1]), words, fill, ImageFont.load_default(SCALE * size), anchor=anchor)

    def line(self, points: Iterable[Point], fill: tuple[int, int, int] = INK, width: float = 1) -> None:
        """Draw a line through points."""
        self._draw.line([(SCALE * x, SCALE * y) for x, y in points], fill, round(SCALE * width), joint="curve")

    def area(self, points: Iterable[Point], fill: tuple[int, int, int]) -> None:
        """Fill a polygon."""
        self._draw.polygon([(SCALE * x, SCALE * y) for x, y in points], fill)

    def dot(self, at: Point, radius: float, colour: tuple[int, int, int]) -> None:
        """Draw a translucent dot with a darker rim."""
        x, y, r = SCALE * at[0], SCALE * at[1], SCALE * radius
        self._draw.ellipse((x - r, y - r, x + r, y + r), (*colour, 150))
        self._draw.ellipse((x - r, y - r, x + r, y + r), None, tuple(part * 3 // 4 for part in colour), SCALE)

    def finished(self) -> Pillow.Image:
        """Return the picture scaled down to its final size."""
        return self.page.resize((self.page.width // SCALE, self.page.height // SCALE), Pillow.Resampling.LANCZOS)


def space(entries: Sequence[Entry], chosen: Collection[str] = ()) -> Pillow.Image:
    """Draw the coefficient space, one panel per field, and focal length against field of view; ``chosen`` are orange."""
    pen = Pen(2 * LEFT + 3 * PANEL, TOP + 2 * HIGH + 40)
    pen.text((LEFT, 14), f"{len(entries)} lenses among three kinds of aberration", 20)
    pen.text((LEFT, 44), _subtitle(entries, chosen), 14, fill=SOFT)
    order = sorted(entries, key=lambda entry: entry.name in chosen)
    for i in range(len(PERCENT)):
        _octant(pen, _panel(i), order, chosen, i)
    _kinds(pen, _panel(len(PERCENT)), order, chosen)
    _sizes(pen, (LEFT, TOP + 2 * HIGH + 16))
    return pen.finished()


def _subtitle(entries: Sequence[Entry], chosen: Collection[str]) -> str:
    """Return the line below the title, which explains the dots and their colours."""
    vectors = "Unit vectors of Zernike coefficients (12-term fit, mean of colours, larger of each pair)"
    return f"{vectors}; orange: the {len(chosen)} of {len(entries)} chosen evenly over quality" if chosen else vectors


def _panel(i: int) -> Box:
    """Return the rectangle of panel ``i``, in rows of three."""
    left, top = LEFT + PANEL * (i % 3), TOP + HIGH * (i // 3)
    return left, top, left + PANEL, top + HIGH


def projected(vector: Sequence[float]) -> Point:
    """Project a vector along (1, 1, 1): the three base vectors point up, lower left and lower right, all of length 1."""
    a, b, c = vector
    return (c - b) * math.sqrt(3) / 2, a - (b + c) / 2


def _octant(pen: Pen, box: Box, entries: Sequence[Entry], chosen: Collection[str], field: int) -> None:
    """Draw the coefficient space at one field, with one dot per lens."""
    centre, size = ((box[0] + box[2]) / 2, box[1] + 206), 138

    def at(vector: Sequence[float]) -> Point:
        x, y = projected(vector)
        return centre[0] + size * x, centre[1] - size * y

    rim = [at(vector) for vector in _rim()]
    pen.area(rim, GROUND)
    pen.line([*rim, rim[0]], FAINT)
    for base in (DEFOCUS, ASTIGMATISM, COMA):
        pen.line([centre, at(base)], INK, 1.6)
    places = [coefficient_space(entry.arrays["zernike12"], field) for entry in entries]
    for entry, (vector, length) in zip(entries, places, strict=True):
        pen.dot(at(vector), radius(length), ORANGE if entry.name in chosen else BLUE)
    title = "on the axis" if field == 0 else f"{PERCENT[field]} % of the field"
    pen.text((box[0] + 6, box[1] + 16), title, 15)
    pen.text((centre[0], at(DEFOCUS)[1] - 22), "defocus + spherical", 13, "mm")
    pen.text((at(ASTIGMATISM)[0], at(ASTIGMATISM)[1] + 24), "astigmatism", 13, "mm")
    pen.text((at(COMA)[0], at(COMA)[1] + 24), "coma", 13, "mm")


def _rim() -> list[Sequence[float]]:
    """Return points on the three quarter circles between the base vectors."""
    turns = np.linspace(0, math.pi / 2, 60, endpoint=False)
    quarter = np.stack([np.cos(turns), np.sin(turns), 0 * turns], axis=1)
    return [vector for by in range(3) for vector in np.roll(quarter, by, axis=1).tolist()]


def radius(waves: float) -> float:
    """Return the radius of a dot in px; it grows with the logarithm of the vector's length, from 0.03 waves up."""
    return 2.4 + 3.0 * max(0.0, math.log10(max(waves, 1e-9) / 0.03))


def _kinds(pen: Pen, box: Box, entries: Sequence[Entry], chosen: Collection[str]) -> None:
    """Draw the field of view over the focal length; a larger dot is a wider aperture (figure 16)."""
    left, top, right, bottom = box[0] + 58, box[1] + 46, box[2] - 12, box[3] - 50
    lengths = [float(entry.about["efl_mm"]) for entry in entries]
    low, high = math.floor(math.log10(min(lengths))), math.ceil(math.log10(max(lengths) * 1.001))
    widest = 30 * math.ceil(max(float(entry.about["fov_deg"]) for entry in entries) / 30)

    def at(efl: float, fov: float) -> Point:
        across, up = (math.log10(efl) - low) / (high - low), fov / widest
        return left + PAD + across * (right - left - 2 * PAD), bottom - PAD - up * (bottom - top - 2 * PAD)

    for power in range(low, high + 1):
        x = at(10**power, 0)[0]
        pen.line([(x, top), (x, bottom)], FAINT, 0.6)
        pen.text((x, bottom + 12), f"{10**power:g}", 12, "mm", SOFT)
    for fov in range(0, widest + 1, 30):
        y = at(10**low, fov)[1]
        pen.line([(left, y), (right, y)], FAINT, 0.6)
        pen.text((left - 8, y), f"{fov}", 12, "rm", SOFT)
    for entry, efl in zip(entries, lengths, strict=True):
        place = at(efl, float(entry.about["fov_deg"]))
        pen.dot(place, aperture_radius(float(entry.about["f_number"])), ORANGE if entry.name in chosen else BLUE)
    pen.text((box[0] + 6, box[1] + 16), "field of view (degrees) over focal length (mm)", 15)
    pen.text(((left + right) / 2, bottom + 30), "larger dots: wider apertures", 12, "mm", SOFT)


def aperture_radius(f_number: float) -> float:
    """Return a dot's radius in px, in proportion to the aperture's diameter at one focal length; F/1.4 is the largest."""
    return min(11.0, max(2.0, 15.4 / f_number))


def _sizes(pen: Pen, at: Point) -> None:
    """Draw the legend of the dots' sizes."""
    x, y = at
    pen.text((x, y), "vector length in waves:", 13, "lm", SOFT)
    for i, waves in enumerate(WAVES):
        place = x + 180 + 76 * i
        pen.dot((place, y), radius(waves), SOFT)
        pen.text((place + 15, y), f"{waves:g}", 13, "lm", SOFT)
    pen.text((x + 860, y), "aperture:", 13, "lm", SOFT)
    for i, number in enumerate(APERTURES):
        place = x + 945 + 78 * i
        pen.dot((place, y), aperture_radius(number), SOFT)
        pen.text((place + 15, y), f"F/{number:g}", 13, "lm", SOFT)
