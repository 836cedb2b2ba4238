"""Rings by distance from the middle, divided into three sectors, as inline SVG; yellow is high and blue is low."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sorites.reports.parts.markup import DASH, Html, between, count, join, percent, tag

LOW, MIDDLE, HIGH = (29, 79, 145), (139, 141, 134), (253, 224, 71)
"""Blue over grey to yellow: distinct for any kind of colour vision, with lightness rising all the way."""
RADIUS, ACROSS, DOWN = 116.0, 150.0, 120.0
"""The radius of the outermost ring and the position of its centre, in units of the drawing, which is 300 wide."""
SPOKE = 330
"""The angle in degrees of the line between two sectors along which the distances are written."""

Rows = Mapping[float, Mapping[str, Any]]
"""A row of value, n, low and high by field position (a fraction of the half field)."""


@dataclass(frozen=True)
class Sector:
    """One quantity of a map: its name, the angles at which its third of the circle starts and at which its numbers are written
    (degrees from the right, counter-clockwise), and its rows."""

    name: str
    start: int
    numbers: int
    rows: Rows
    share: bool = False
    """True for fractions, which are shown in percent."""

    def text(self, value: float) -> str:
        """Return a value as it is written on the map."""
        return percent(value, 0) if self.share else f"{value:.2f}"

    def whole(self, field: float, of: str) -> Html:
        """Return the value at a field position, its interval, and how many lenses or samples it rests on."""
        row = self.rows.get(field)
        if row is None:
            return join([DASH])
        value, low, high = (
            percent(one) if self.share else DASH if one is None else f"{one:.3f}"
            for one in (row["value"], row["low"], row["high"])
        )
        return join([value, tag("small", f"{between(low, high)}, {count(row['n'])} {of}")])


def edges(fields: Sequence[float]) -> list[tuple[float, float]]:
    """Return the inner and outer edge of each field's ring, which are half way to its neighbours."""
    middles = [(low + high) / 2 for low, high in itertools.pairwise(fields)]
    first = middles[0] - fields[0] if middles else 0.1
    last = fields[-1] - middles[-1] if middles else 0.1
    return list(itertools.pairwise([max(0.0, fields[0] - first), *middles, min(1.0, fields[-1] + last)]))


def colour(value: float, low: float, high: float) -> tuple[int, int, int]:
    """Return the colour of a value on the scale from blue to yellow; it is the middle where the scale has no length."""
    place = 2 * (value - low) / (high - low) if high > low else 1.0
    first, second = (LOW, MIDDLE) if place < 1 else (MIDDLE, HIGH)
    part = place if place < 1 else place - 1
    red, green, blue = (round(a + part * (b - a)) for a, b in zip(first, second, strict=True))
    return red, green, blue


def rings(label: str, sectors: Sequence[Sector], scales: Mapping[str, tuple[float, float]]) -> Html:
    """Draw the map: each sector on its own scale, its name outside, and the distances along one line."""
    parts = [part for sector in sectors for part in _sector(sector, scales[sector.name])]
    names = [_text(_at(sector.start + 60, RADIUS + 8), sector.name, _anchor(sector.start + 60), 12.5) for sector in sectors]
    fields = sorted({field for sector in sectors for field in sector.rows})
    distances = [
        part
        for field, (low, high) in zip(fields, edges(fields), strict=True)
        for part in (_distance(field, (low + high) / 2 * RADIUS) if low > 0 else ())
    ]
    style = "display:block;width:100%;height:auto;font-family:var(--sans)"
    return tag("svg", *parts, *names, *distances, viewBox="0 0 300 260", role="img", aria_label=label, style=style)


def _sector(sector: Sector, scale: tuple[float, float]) -> list[Html]:
    parts = []
    for (field, row), (low, high) in zip(sector.rows.items(), edges(list(sector.rows)), strict=True):
        shade = colour(row["value"], *scale)
        words = sector.text(row["value"])
        title = tag("title", f"{sector.name} at {percent(field, 0)} of the field: {words}, n = {row['n']}")
        path = _path(sector.start, low * RADIUS, high * RADIUS)
        parts.append(tag("path", title, d=path, fill=f"rgb{shade}", stroke="var(--card)", stroke_width=1.2))
        if low > 0:
            parts.append(_text(_at(sector.numbers, (low + high) / 2 * RADIUS), words, "middle", 10.5, _ink(shade)))
    return parts


def _ink(shade: tuple[int, int, int]) -> str:
    red, green, blue = shade
    return "#16181b" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 120 else "#ffffff"


def _distance(field: float, radius: float) -> tuple[Html, Html]:
    x, y = _at(SPOKE, radius)
    plate = tag("rect", x=f"{x - 10.5:.1f}", y=f"{y - 5.5:.1f}", width=21, height=11, rx=3, fill="var(--card)")
    return plate, _text((x, y + 0.5), f"{100 * field:.0f}%", "middle", 8.5, "var(--soft)")


def _at(degrees: float, radius: float) -> tuple[float, float]:
    turn = math.radians(degrees)
    return ACROSS + radius * math.cos(turn), DOWN - radius * math.sin(turn)


def _path(start: int, inner: float, outer: float) -> str:
    """Return the path of a third of a ring: counter-clockwise along the rim and back along the inside."""
    (ax, ay), (bx, by) = _at(start, outer), _at(start + 120, outer)
    (cx, cy), (dx, dy) = _at(start + 120, inner), _at(start, inner)
    rim = f"M{ax:.2f} {ay:.2f}A{outer:.2f} {outer:.2f} 0 0 0 {bx:.2f} {by:.2f}L{cx:.2f} {cy:.2f}"
    return f"{rim}A{inner:.2f} {inner:.2f} 0 0 1 {dx:.2f} {dy:.2f}Z" if inner > 0 else f"{rim}Z"


def _anchor(degrees: float) -> str:
    side = math.cos(math.radians(degrees))
    return "middle" if abs(side) < 0.3 else "start" if side > 0 else "end"


def _text(at: tuple[float, float], words: str, anchor: str, size: float, fill: str = "var(--ink)") -> Html:
    place = {"x": f"{at[0]:.1f}", "y": f"{at[1]:.1f}"}
    return tag("text", words, **place, text_anchor=anchor, dominant_baseline="central", font_size=size, fill=fill)
