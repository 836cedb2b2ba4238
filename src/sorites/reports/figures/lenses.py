"""Draw sets of lenses, and the sheet of one lens, as images.

The drawing of a set follows Mueller, Braun and Keuper, figures 4a, 16 and 17: a lens is a unit vector of its
coefficients for defocus with spherical aberration, astigmatism and coma; the size of its dot is the logarithm
of the vector's length.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from sorites.core.errors import SoritesError
from sorites.lenses.store import Entry, LensRecord, coefficient_space
from sorites.optics.tracing.blur import AZIMUTHS, PERCENT

# Supersampling: images are drawn this many times larger and scaled down, for smooth edges.
SCALE = 3
PANEL, HIGH, TOP, LEFT = 380, 352, 78, 20
INK, SOFT, FAINT, GROUND = (35, 38, 43), (105, 110, 118), (205, 205, 205), (247, 246, 243)
BLUE, ORANGE = (0, 114, 178), (213, 94, 0)
# Vector lengths in the legend, in waves.
WAVES = (0.1, 1.0, 10.0)
DEFOCUS, ASTIGMATISM, COMA = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
APERTURES = (1.4, 2.8, 5.6)
# Margin in px between the ends of an axis and the edge of its chart; the largest dot stays inside.
PAD = 13
Point = tuple[float, float]
Box = tuple[float, float, float, float]


class Pen:
    """Draws in coordinates of the final image on a larger one.

    Dots are translucent, so that overlapping ones look darker.
    """

    def __init__(self, width: int, height: int) -> None:
        self.page = Pillow.new("RGB", (SCALE * width, SCALE * height), (255, 255, 255))
        self._draw = ImageDraw.Draw(self.page, "RGBA")

    def text(
        self, at: Point, words: str, size: int = 13, anchor: str = "la", fill: tuple[int, int, int] = INK
    ) -> None:
        """Write text at a point; ``anchor`` is Pillow's."""
        self._draw.text(
            (SCALE * at[0], SCALE * at[1]), words, fill, ImageFont.load_default(SCALE * size), anchor=anchor
        )

    def line(self, points: Iterable[Point], fill: tuple[int, int, int] = INK, width: float = 1) -> None:
        """Draw a line through points."""
        self._draw.line(
            [(SCALE * x, SCALE * y) for x, y in points], fill, round(SCALE * width), joint="curve"
        )

    def area(self, points: Iterable[Point], fill: tuple[int, int, int]) -> None:
        """Fill a polygon."""
        self._draw.polygon([(SCALE * x, SCALE * y) for x, y in points], fill)

    def dot(self, at: Point, radius: float, colour: tuple[int, int, int]) -> None:
        """Draw a translucent dot with a darker rim."""
        x, y, r = SCALE * at[0], SCALE * at[1], SCALE * radius
        self._draw.ellipse((x - r, y - r, x + r, y + r), (*colour, 150))
        self._draw.ellipse((x - r, y - r, x + r, y + r), None, tuple(part * 3 // 4 for part in colour), SCALE)

    def finished(self) -> Pillow.Image:
        """Return the image scaled down to its final size."""
        return self.page.resize(
            (self.page.width // SCALE, self.page.height // SCALE), Pillow.Resampling.LANCZOS
        )


def space(entries: Sequence[Entry], chosen: Collection[str] = ()) -> Pillow.Image:
    """Draw the coefficient space, one panel per field, and field of view over focal length.

    Lenses in ``chosen`` are orange.
    """
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
    """Return the line that explains the dots and their colours."""
    vectors = "Unit vectors of Zernike coefficients (12-term fit, mean of colours, larger of each pair)"
    return (
        f"{vectors}; orange: the {len(chosen)} of {len(entries)} chosen evenly over quality"
        if chosen
        else vectors
    )


def _panel(i: int) -> Box:
    """Return the rectangle of panel ``i``, in rows of three."""
    left, top = LEFT + PANEL * (i % 3), TOP + HIGH * (i // 3)
    return left, top, left + PANEL, top + HIGH


def projected(vector: Sequence[float]) -> Point:
    """Project a vector along (1, 1, 1); the base vectors point up, lower left and lower right."""
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
    """Return the radius of a dot in px: the logarithm of the vector's length, from 0.03 waves up."""
    return 2.4 + 3.0 * max(0.0, math.log10(max(waves, 1e-9) / 0.03))


def _kinds(pen: Pen, box: Box, entries: Sequence[Entry], chosen: Collection[str]) -> None:
    """Draw field of view over focal length; larger dots are wider apertures (figure 16)."""
    left, top, right, bottom = box[0] + 58, box[1] + 46, box[2] - 12, box[3] - 50
    known = [_size(entry) for entry in entries]
    lengths = [efl for efl, _, _ in known]
    low, high = math.floor(math.log10(min(lengths))), math.ceil(math.log10(max(lengths) * 1.001))
    widest = 30 * math.ceil(max(fov for _, fov, _ in known) / 30)

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
    for entry, (efl, field, f_number) in zip(entries, known, strict=True):
        pen.dot(at(efl, field), aperture_radius(f_number), ORANGE if entry.name in chosen else BLUE)
    pen.text((box[0] + 6, box[1] + 16), "field of view (degrees) over focal length (mm)", 15)
    pen.text(((left + right) / 2, bottom + 30), "larger dots: wider apertures", 12, "mm", SOFT)


def _size(entry: Entry) -> tuple[float, float, float]:
    """Return focal length (mm), field of view (degrees) and F-number of a traced lens."""
    about = entry.about
    if about.efl_mm is None or about.fov_deg is None or about.f_number is None:
        raise SoritesError(f"{entry.name} was measured: its focal length and field of view are not known")
    return about.efl_mm, about.fov_deg, about.f_number


def aperture_radius(f_number: float) -> float:
    """Return the radius of a dot in px, proportional to the aperture's diameter; F/1.4 is the largest."""
    return min(11.0, max(2.0, 15.4 / f_number))


def _sizes(pen: Pen, at: Point) -> None:
    """Draw the legend of dot sizes."""
    x, y = at
    pen.text((x, y), "vector length in waves:", 13, "lm", SOFT)
    for i, waves in enumerate(WAVES):
        position = x + 180 + 76 * i
        pen.dot((position, y), radius(waves), SOFT)
        pen.text((position + 15, y), f"{waves:g}", 13, "lm", SOFT)
    pen.text((x + 860, y), "aperture:", 13, "lm", SOFT)
    for i, number in enumerate(APERTURES):
        position = x + 945 + 78 * i
        pen.dot((position, y), aperture_radius(number), SOFT)
        pen.text((position + 15, y), f"F/{number:g}", 13, "lm", SOFT)


# --- Charts of a lens sheet: MTF and Zernike coefficients at five fields

# Height of the charts with their labels, px.
HEIGHT = 284
# Frequency in cycles per mm at which a stored curve ends.
REACH = 500.0
# Colours of the fields, from the centre outward.
COLOURS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (240, 170, 20))
# Names of the terms that are drawn, by Fringe number.
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
Array = NDArray[np.float32]


def panels(entry: Entry, width: int) -> Pillow.Image:
    """Draw the MTF on the left and the Zernike coefficients on the right, one colour per field."""
    pen = Pen(width, HEIGHT)
    _fields(pen, (16, 12))
    nyquist = 500 / entry.about.pitch_um
    known = nyquist if entry.about.measured else math.inf
    _curves(pen, entry.arrays["mtf"], nyquist, (56, 68, width * 0.48, HEIGHT - 44), known)
    if "zernike12" in entry.arrays:
        _wavefront(pen, entry.arrays["zernike12"], (width * 0.56, 68, width - 16, HEIGHT - 44))
    return pen.finished()


def _fields(pen: Pen, at: Point) -> None:
    """Draw the legend of both charts: the colour of each field."""
    pen.text(at, "below, by distance from the centre:", 13, "lm")
    for i, (field, colour) in enumerate(zip(PERCENT, COLOURS, strict=True)):
        x = at[0] + 236 + 128 * i
        pen.line([(x, at[1]), (x + 20, at[1])], colour, 4)
        pen.text((x + 26, at[1]), f"{field} % of the field", 12, "lm")


def right_edge(nyquist: float) -> float:
    """Return the frequency at the right edge: twice the Nyquist frequency, or less if no curve reaches it."""
    return min(2 * nyquist, max(REACH, 1.1 * nyquist))


def ticks(low: float, high: float, most: int = 8) -> list[float]:
    """Return round numbers (steps of 1, 2 or 5 times a power of ten) in a range, at most ``most`` steps."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(times * power for times in (1, 2, 5, 10) if times * power >= rough * (1 - 1e-9))
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def curve(values: Array, end: float) -> tuple[Array, Array]:
    """Return frequencies and contrasts of a stored curve, cut exactly at ``end`` cycles per mm."""
    stored = np.linspace(0, REACH, len(values))
    x = np.append(stored[stored < end], min(end, REACH))
    return x.astype(np.float32), np.interp(x, stored, values).astype(np.float32)


def _curves(pen: Pen, mtf: Array, nyquist: float, box: Box, known: float) -> None:
    """Draw the contrast in percent over cycles per mm at each field, averaged over colours, up to the
    frequency ``known``.
    """
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
        pen.line(
            [
                at(x, y)
                for x, y in zip(*(part.tolist() for part in curve(values, end)), strict=True)
                if x <= known
            ],
            colour,
            1.8,
        )


def _wavefront(pen: Pen, zernike: Array, box: Box) -> None:
    """Draw the Fringe coefficients of a 12-term fit in waves, averaged over colours, one bar per field."""
    left, top, right, bottom = box
    mean = zernike.mean(1)[:, [term - 1 for term in TERMS]]
    most = 1.06 * max(float(np.abs(mean).max()), 1e-9)
    step = (right - left) / len(TERMS)

    def at(value: float) -> float:
        return (top + bottom) / 2 - value / most * (bottom - top) / 2

    pen.text((left - 40, top - 36), "Zernike coefficients in waves, mean of the colours", 14)
    for value in ticks(-most, most):
        pen.line(
            [(left, at(value)), (right, at(value))], SOFT if value == 0 else FAINT, 1 if value == 0 else 0.6
        )
        pen.text((left - 6, at(value)), f"{value:g}", 12, "rm", SOFT)
    for t, name in enumerate(TERMS.values()):
        start = left + t * step
        pen.text((start + step / 2, bottom + 13 + 15 * (t % 2)), name, 11, "mm", INK)
        for i, value in enumerate(mean[:, t].tolist()):
            x0, x1 = (start + 4 + (i + end) * (step - 8) / len(PERCENT) for end in (0.06, 0.94))
            pen.area([(x0, at(0)), (x1, at(0)), (x1, at(value)), (x0, at(value))], COLOURS[i])


# --- The sheet of a lens: layout, kernels over the field, MTF curves and wavefront terms

WIDTH, LENS_SHEET_LEFT, GAP, TILE = 920, 16, 12, 120
LENS_SHEET_INK, LENS_SHEET_FAINT = (40, 40, 40), (190, 190, 190)
RAYS = {"on the axis": (40, 70, 200), "at 70 % of the field": (20, 140, 60)}


def sheet(entry: Entry) -> Pillow.Image:
    """Draw the layout at the top, kernels (fields across, azimuths down), MTF and Zernike coefficients."""
    page = Pillow.new("RGB", (WIDTH, 716 + HEIGHT), (255, 255, 255))
    draw = ImageDraw.Draw(page)
    about = entry.about
    draw.text((LENS_SHEET_LEFT, 10), entry.name, LENS_SHEET_INK, ImageFont.load_default(20))
    draw.text((LENS_SHEET_LEFT, 36), summary_line(about), LENS_SHEET_INK, ImageFont.load_default(14))
    _layout(draw, entry, (LENS_SHEET_LEFT, 64, WIDTH - LENS_SHEET_LEFT, 284))
    _kernels(page, draw, entry.arrays["kernels"], 300)
    page.paste(panels(entry, WIDTH), (0, page.height - HEIGHT))
    return page


def summary_line(about: LensRecord) -> str:
    """Return the data of a lens as one line."""
    quality = f"quality {about.quality:.3f} cycles/px"
    if about.efl_mm is None or about.f_number is None or about.fov_deg is None or about.pixels is None:
        return f"measured ({about.measured})   pixel {about.pitch_um:.2f} um   {quality}"
    size = f"EFL {about.efl_mm:.2f} mm   F/{about.f_number:.2f}   field {about.fov_deg:.0f} deg"
    pixels = f"pixel {about.pitch_um:.2f} um   {about.pixels:,} pixels across"
    return f"{size}   {pixels}   {quality}"


def _layout(draw: ImageDraw.ImageDraw, entry: Entry, box: tuple[int, int, int, int]) -> None:
    """Draw surfaces and rays in the yz plane, with one scale for both axes."""
    stored = entry.about.layout
    if stored is None:
        return
    rays = [[np.array(path) for path in bundle] for bundle in stored.rays]
    paths = [path for bundle in rays for path in bundle]
    every = np.concatenate(paths)
    (z0, y0), (z1, y1) = every.min(0), every.max(0)
    scale = min((box[2] - box[0]) / max(z1 - z0, 1e-9), (box[3] - box[1]) / max(y1 - y0, 1e-9)) * 0.96

    def at(z: float, y: float) -> tuple[float, float]:
        return box[0] + (z - z0) * scale, (box[1] + box[3]) / 2 - (y - (y0 + y1) / 2) * scale

    for i, (bundle, (name, colour)) in enumerate(zip(rays, RAYS.items(), strict=True)):
        draw.text((box[2], 15 + 21 * i), f"rays {name}", colour, ImageFont.load_default(13), anchor="ra")
        for path in bundle:
            draw.line([at(z, y) for z, y in path], fill=colour)
    surfaces = stored.surfaces
    for i, (vertex, radius, _) in enumerate(surfaces):
        reach = max(abs(float(path[i, 1])) for path in paths) * 1.05 + 1e-9
        heights = np.linspace(max(-reach, y0), min(reach, y1), 41)
        profile = [at(vertex + s, h) for s, h in zip(_sag(heights, radius), heights, strict=True)]
        shade = LENS_SHEET_INK if _is_solid(surfaces, i) else LENS_SHEET_FAINT
        draw.line(profile, fill=shade, width=2 if i != stored.stop else 1)


def _sag(heights: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """Return the sag of a spherical surface; radius 0 is a plane."""
    if radius == 0:
        return 0 * heights
    return np.asarray(radius - np.sign(radius) * np.sqrt(np.maximum(radius**2 - heights**2, 0)))


def _is_solid(surfaces: Sequence[Sequence[Any]], i: int) -> bool:
    """Return whether a surface borders glass on either side, or is the image plane."""
    return bool(surfaces[i][2] or i + 1 == len(surfaces) or surfaces[i - 1][2])


def _kernels(page: Pillow.Image, draw: ImageDraw.ImageDraw, kernels: Array, top: int) -> None:
    """Draw the kernels on a square-root scale, with each colour scaled to its brightest tap."""
    for column, field in enumerate(PERCENT):
        left = LENS_SHEET_LEFT + 90 + column * (TILE + GAP)
        draw.text((left, top), f"{field} % of the field", LENS_SHEET_INK, ImageFont.load_default(13))
        for row in range(3 if column else 1):
            taps = kernels[0 if column == 0 else 1 + 3 * (column - 1) + row]
            scaled = np.rint(255 * np.sqrt(taps / taps.max((1, 2), keepdims=True))).astype(np.uint8)
            tile = Pillow.fromarray(np.ascontiguousarray(np.moveaxis(scaled, 0, -1))).resize(
                (TILE, TILE), Pillow.Resampling.NEAREST
            )
            page.paste(tile, (left, top + 20 + row * (TILE + GAP)))
    for row, azimuth in enumerate(AZIMUTHS):
        draw.text(
            (LENS_SHEET_LEFT, top + 70 + row * (TILE + GAP)),
            f"{azimuth} degrees",
            LENS_SHEET_INK,
            ImageFont.load_default(13),
        )
