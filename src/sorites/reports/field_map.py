"""The field map: rings by distance from the middle of a lens's picture, a sector each for MTF50, SSIM and accuracy.

After figure 18 of Mueller, Braun and Keuper: yellow is high and blue is low, every sector on a scale of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from sorites import metrics
from sorites.metrics.intervals import normal
from sorites.metrics.lenses import with_lenses
from sorites.reports.markup import DASH, EMPTY, Html, between, count, grid, join, percent, tag
from sorites.reports.view import View

LOW, MIDDLE, HIGH = (29, 79, 145), (139, 141, 134), (253, 224, 71)
"""Blue over grey to yellow: told apart with any kind of colour vision, lightness rising all the way."""
RADIUS, ACROSS, DOWN = 116.0, 150.0, 132.0
"""Of the map and its middle, in the units of the drawing, which is 300 wide."""
GET = "sorites degrees RUN --measure ssim"

Rows = Mapping[float, Mapping[str, Any]]
"""Field to a row of value, n, low, high."""


@dataclass(frozen=True)
class Sector:
    """One quantity of a map: what it is, where it lies (degrees from the right, upwards) and its rows by field."""

    name: str
    start: int
    rows: Rows
    share: bool = False
    """A fraction shown in percent."""

    def said(self, value: float) -> str:
        return percent(value, 0) if self.share else f"{value:.2f}"

    def whole(self, row: Mapping[str, Any] | None, of: str) -> Html:
        """The value, its interval and what ``n`` counts."""
        if row is None or row["value"] is None:
            return join([DASH])
        value, low, high = (percent(v) if self.share else DASH if v is None else f"{v:.3f}" for v in map(row.get, KEYS))
        return join([value, tag("small", f"{between(low, high)}, {count(row['n'])} {of}")])


KEYS = ("value", "low", "high")


def field_map(view: View) -> Html:
    """A map a model, their scales, and all numbers as a table; nothing without lenses."""
    sharp = Sector("MTF50", 210, _by_field(_sharpness(view)))
    alike = Sector("SSIM", 90, _by_field(view.ask(metrics.lens_degree)))
    found = view.ask(metrics.lens_field)
    right = {model: Sector("right", -30, _by_field(found.filter(pl.col("model") == model)), True) for model in view.models}
    right = {model: sector for model, sector in right.items() if sector.rows}
    if not right:
        return EMPTY
    held = [sharp, alike] if alike.rows else [sharp]
    scales = {sector.name: _range([sector.rows]) for sector in held} | {"right": _range([s.rows for s in right.values()])}
    maps = [
        tag("figure", tag("h4", model), _drawn(model, [*held, own], scales), style="flex:1 1 14rem;max-width:20rem")
        for model, own in right.items()
    ]
    missing = EMPTY if alike.rows else tag("p", "SSIM is not measured in this run. To have it: ", tag("code", GET), cls="note")
    return join(
        [
            tag("h3", "Field map"),
            tag("p", "Rings by distance from the middle of the lens's picture, all lenses together.", cls="about"),
            tag("div", *maps, style="display:flex;flex-wrap:wrap;gap:0.5rem 1.5rem;justify-content:center"),
            _scales([*held, next(iter(right.values()))], scales),
            missing,
            _table(held, right),
        ]
    )


def _sharpness(view: View) -> pl.DataFrame:
    """Mean MTF50 of the lenses at each field; ``n`` counts lenses, and the interval is over them."""
    each = with_lenses(view.table).select("lens", "lens_field", "mtf50").drop_nulls().unique(["lens", "lens_field"])
    value, n = pl.col("mtf50"), pl.len()
    means = each.group_by("lens_field").agg(value=value.mean(), n=n.cast(pl.Int64), variance=value.var() / n)
    return means.with_columns(**normal(pl.col("value"), pl.col("variance"))).collect()


def _by_field(rows: pl.DataFrame) -> Rows:
    known = rows.drop_nulls(["lens_field", "value"]).sort("lens_field")
    return {row["lens_field"]: row for row in known.to_dicts()}


def _range(several: Sequence[Rows]) -> tuple[float, float]:
    values = [row["value"] for rows in several for row in rows.values()]
    return min(values), max(values)


def edges(fields: Sequence[float]) -> list[tuple[float, float]]:
    """From where to where each field's ring reaches: half way to its neighbours."""
    middles = [(low + high) / 2 for low, high in itertools.pairwise(fields)]
    first = middles[0] - fields[0] if middles else 0.1
    last = fields[-1] - middles[-1] if middles else 0.1
    ends = [max(0.0, fields[0] - first), *middles, min(1.0, fields[-1] + last)]
    return list(itertools.pairwise(ends))


def colour(value: float, low: float, high: float) -> tuple[int, int, int]:
    """On the scale from blue to yellow; the middle where the scale has no length."""
    place = 2 * (value - low) / (high - low) if high > low else 1.0
    first, second = (LOW, MIDDLE) if place < 1 else (MIDDLE, HIGH)
    part = place if place < 1 else place - 1
    red, green, blue = (round(a + part * (b - a)) for a, b in zip(first, second, strict=True))
    return red, green, blue


def _drawn(model: str, sectors: Sequence[Sector], scales: Mapping[str, tuple[float, float]]) -> Html:
    parts = [part for sector in sectors for part in _rings(sector, scales[sector.name])]
    names = [_text(_at(sector.start + 60, RADIUS + 8), sector.name, _anchor(sector.start + 60), 12.5) for sector in sectors]
    fields = sorted({field for sector in sectors for field in sector.rows})
    rings = [
        _text(_at(90, (low + high) / 2 * RADIUS), f"{100 * field:.0f}%", "middle", 8.5, halo=True)
        for field, (low, high) in zip(fields, edges(fields), strict=True)
        if low > 0
    ]
    label = f"Field map of {model}: " + ", ".join(sector.name for sector in sectors) + " by distance from the middle"
    style = "display:block;width:100%;height:auto;font-family:var(--sans)"
    return tag("svg", *parts, *names, *rings, viewBox="0 0 300 274", role="img", aria_label=label, style=style)


def _rings(sector: Sector, scale: tuple[float, float]) -> list[Html]:
    made = []
    for (field, row), (low, high) in zip(sector.rows.items(), edges(list(sector.rows)), strict=True):
        red, green, blue = colour(row["value"], *scale)
        told = f"{sector.name} at {100 * field:.0f} % of the field: {sector.said(row['value'])}, n = {row['n']}"
        path = _path(sector.start, low * RADIUS, high * RADIUS)
        made.append(
            tag("path", tag("title", told), d=path, fill=f"rgb({red},{green},{blue})", stroke="var(--card)", stroke_width=1.2)
        )
        if (high - low) * RADIUS > 12 and low > 0:
            ink = "#16181b" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 120 else "#ffffff"
            words = sector.said(row["value"])
            made.append(_text(_at(sector.start + 60, (low + high) / 2 * RADIUS), words, "middle", 10.5, ink))
    return made


def _at(degrees: float, radius: float) -> tuple[float, float]:
    turn = math.radians(degrees)
    return ACROSS + radius * math.cos(turn), DOWN - radius * math.sin(turn)


def _path(start: int, inner: float, outer: float) -> str:
    """A third of a ring, counter-clockwise outside and back inside."""
    (ax, ay), (bx, by) = _at(start, outer), _at(start + 120, outer)
    (cx, cy), (dx, dy) = _at(start + 120, inner), _at(start, inner)
    out = f"M{ax:.2f} {ay:.2f}A{outer:.2f} {outer:.2f} 0 0 0 {bx:.2f} {by:.2f}L{cx:.2f} {cy:.2f}"
    return f"{out}A{inner:.2f} {inner:.2f} 0 0 1 {dx:.2f} {dy:.2f}Z" if inner > 0 else f"{out}Z"


def _anchor(degrees: float) -> str:
    side = math.cos(math.radians(degrees))
    return "middle" if abs(side) < 0.3 else "start" if side > 0 else "end"


def _text(at: tuple[float, float], words: str, anchor: str, size: float, fill: str = "var(--ink)", halo: bool = False) -> Html:
    around = {"stroke": "var(--card)", "stroke_width": 2.5, "paint_order": "stroke"} if halo else {}
    plain: dict[str, object] = {"text_anchor": anchor, "dominant_baseline": "central", "font_size": size, "fill": fill}
    return tag("text", words, x=f"{at[0]:.1f}", y=f"{at[1]:.1f}", **plain, **around)


def _scales(sectors: Sequence[Sector], scales: Mapping[str, tuple[float, float]]) -> Html:
    stops = ",".join(f"rgb{one}" for one in (LOW, MIDDLE, HIGH))
    bar = tag("i", style=f"height:0.7rem;border-radius:3px;background:linear-gradient(90deg,{stops})")
    units = {"MTF50": "MTF50, cycles/px", "SSIM": "SSIM to the clean picture", "right": "right, all models on one scale"}
    cells = [
        cell
        for sector in sectors
        for cell in (
            tag("span", units[sector.name]),
            tag("span", sector.said(scales[sector.name][0])),
            bar,
            tag("span", sector.said(scales[sector.name][1])),
        )
    ]
    style = (
        "display:grid;grid-template-columns:auto auto minmax(5rem,14rem) auto;gap:0.15rem 0.7rem;align-items:center;"
        "justify-content:center;margin:0.6rem 0 1rem"
    )
    return tag("div", *cells, cls="note", style=style)


def _table(held: Sequence[Sector], right: Mapping[str, Sector]) -> Html:
    fields = sorted({field for sector in [*held, *right.values()] for field in sector.rows})
    counted = {"MTF50": "lenses"}
    lines = [
        [
            f"{100 * field:.0f} %",
            *(sector.whole(sector.rows.get(field), counted.get(sector.name, "samples")) for sector in held),
            *(sector.whole(sector.rows.get(field), "samples") for sector in right.values()),
        ]
        for field in fields
    ]
    caption = "By distance from the middle (part of the half field): mean, 95 % interval, and over how many"
    return grid(["", *(sector.name for sector in held), *right], lines, caption=caption)
