"""Parts of the sections on lenses: field maps as SVG rings, searchable tables, CSV links and rankings."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import polars as pl

from sorites import metrics
from sorites.core.messages import command
from sorites.metrics import normal_interval, with_lenses
from sorites.reports.components.markup import (
    DASH,
    EMPTY,
    Html,
    between,
    count,
    css_variable,
    grid,
    join,
    number,
    percent,
    tag,
)
from sorites.reports.components.scorers import estimate
from sorites.reports.view import View

# --- Rings by distance from the image centre, divided into three sectors

# Blue over grey to yellow: safe for colour-blind readers, with rising lightness.
LOW, MIDDLE, HIGH = (29, 79, 145), (139, 141, 134), (253, 224, 71)
# Radius of the outermost ring and position of its centre; the drawing is 300 units wide.
RADIUS, ACROSS, DOWN = 116.0, 150.0, 120.0
# Angle in degrees of the line between two sectors along which the distances are written.
INK = css_variable("ink")
SPOKE = 330

# Rows with value, n, low and high, by field position (a fraction of the half field).
Rows = Mapping[float, Mapping[str, Any]]


@dataclass(frozen=True)
class Sector:
    """One quantity of a map.

    ``start`` is the angle at which its third of the circle starts, ``numbers`` the angle at which its numbers
    are written (degrees from the right, counter-clockwise).
    """

    name: str
    start: int
    numbers: int
    rows: Rows
    share: bool = False
    """True if the values are fractions, shown in percent."""

    def text(self, value: float) -> str:
        """Format a value as it is written on the map."""
        return percent(value, 0) if self.share else f"{value:.2f}"

    def whole(self, field: float, of: str) -> Html:
        """Format the value at a field position with its interval and the number of lenses or samples."""
        row = self.rows.get(field)
        if row is None:
            return join([DASH])
        value, low, high = (
            percent(part) if self.share else DASH if part is None else f"{part:.3f}"
            for part in (row["value"], row["low"], row["high"])
        )
        return join([value, tag("small", f"{between(low, high)}, {count(row['n'])} {of}")])


def edges(fields: Sequence[float]) -> list[tuple[float, float]]:
    """Return the inner and outer edge of each field's ring, half-way to its neighbours."""
    middles = [(low + high) / 2 for low, high in itertools.pairwise(fields)]
    first = middles[0] - fields[0] if middles else 0.1
    last = fields[-1] - middles[-1] if middles else 0.1
    return list(itertools.pairwise([max(0.0, fields[0] - first), *middles, min(1.0, fields[-1] + last)]))


def colour(value: float, low: float, high: float) -> tuple[int, int, int]:
    """Return the colour of a value between blue and yellow; grey if the scale is empty."""
    position = 2 * (value - low) / (high - low) if high > low else 1.0
    first, second = (LOW, MIDDLE) if position < 1 else (MIDDLE, HIGH)
    fraction = position if position < 1 else position - 1
    red, green, blue = (round(a + fraction * (b - a)) for a, b in zip(first, second, strict=True))
    return red, green, blue


def rings(label: str, sectors: Sequence[Sector], scales: Mapping[str, tuple[float, float]]) -> Html:
    """Draw the map: each sector on its own scale, its name outside, and the distances along one line."""
    parts = [part for sector in sectors for part in _sector(sector, scales[sector.name])]
    names = [
        _text(_at(sector.start + 60, RADIUS + 8), sector.name, _anchor(sector.start + 60), 12.5)
        for sector in sectors
    ]
    fields = sorted({field for sector in sectors for field in sector.rows})
    distances = [
        part
        for field, (low, high) in zip(fields, edges(fields), strict=True)
        for part in (_distance(field, (low + high) / 2 * RADIUS) if low > 0 else ())
    ]
    style = f"display:block;width:100%;height:auto;font-family:{css_variable('sans')}"
    return tag(
        "svg", *parts, *names, *distances, viewBox="0 0 300 260", role="img", aria_label=label, style=style
    )


def _sector(sector: Sector, scale: tuple[float, float]) -> list[Html]:
    parts = []
    for (field, row), (low, high) in zip(sector.rows.items(), edges(list(sector.rows)), strict=True):
        shade = colour(row["value"], *scale)
        words = sector.text(row["value"])
        title = tag("title", f"{sector.name} at {percent(field, 0)} of the field: {words}, n = {row['n']}")
        path = _path(sector.start, low * RADIUS, high * RADIUS)
        parts.append(
            tag("path", title, d=path, fill=f"rgb{shade}", stroke=css_variable("card"), stroke_width=1.2)
        )
        if low > 0:
            parts.append(
                _text(_at(sector.numbers, (low + high) / 2 * RADIUS), words, "middle", 10.5, _ink(shade))
            )
    return parts


def _ink(shade: tuple[int, int, int]) -> str:
    red, green, blue = shade
    return "#16181b" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 120 else "#ffffff"


def _distance(field: float, radius: float) -> tuple[Html, Html]:
    x, y = _at(SPOKE, radius)
    plate = tag(
        "rect", x=f"{x - 10.5:.1f}", y=f"{y - 5.5:.1f}", width=21, height=11, rx=3, fill=css_variable("card")
    )
    return plate, _text((x, y + 0.5), f"{100 * field:.0f}%", "middle", 8.5, css_variable("soft"))


def _at(degrees: float, radius: float) -> tuple[float, float]:
    angle = math.radians(degrees)
    return ACROSS + radius * math.cos(angle), DOWN - radius * math.sin(angle)


def _path(start: int, inner: float, outer: float) -> str:
    """Return the path of a third of a ring: counter-clockwise along the rim, and back along the inside."""
    (ax, ay), (bx, by) = _at(start, outer), _at(start + 120, outer)
    (cx, cy), (dx, dy) = _at(start + 120, inner), _at(start, inner)
    rim = f"M{ax:.2f} {ay:.2f}A{outer:.2f} {outer:.2f} 0 0 0 {bx:.2f} {by:.2f}L{cx:.2f} {cy:.2f}"
    return f"{rim}A{inner:.2f} {inner:.2f} 0 0 1 {dx:.2f} {dy:.2f}Z" if inner > 0 else f"{rim}Z"


def _anchor(degrees: float) -> str:
    side = math.cos(math.radians(degrees))
    return "middle" if abs(side) < 0.3 else "start" if side > 0 else "end"


def _text(at: tuple[float, float], words: str, anchor: str, size: float, fill: str = INK) -> Html:
    position = {"x": f"{at[0]:.1f}", "y": f"{at[1]:.1f}"}
    return tag(
        "text", words, **position, text_anchor=anchor, dominant_baseline="central", font_size=size, fill=fill
    )


# --- The field map: MTF50, SSIM, and accuracy or mAP, by distance from the image centre

SIMILARITY = command("similarity", "RUN", measures=["ssim"])
# The sector of classifiers and of detectors.
RIGHT, MAP = "correct", "mAP"
SCALES = {
    "MTF50": "MTF50, cycles/px",
    "SSIM": "SSIM to the clean image",
    RIGHT: "accuracy, all models on one scale",
    MAP: "mAP, all detectors on one scale",
}


def field_map(view: View, over: pl.DataFrame, name: str = RIGHT) -> Html:
    """Return one map per model, their scales, and all numbers as a table; empty without lenses.

    ``over`` is the accuracy (or mAP, as ``name`` says) of each model at each field position.
    """
    optics = [
        Sector("MTF50", 210, 270, _by_field(_sharpness(view))),
        Sector("SSIM", 90, 132, _by_field(view.compute(metrics.lens_degree))),
    ]
    optics_sectors = [sector for sector in optics if sector.rows]
    own = {model: _by_field(over.filter(pl.col("model") == model)) for model in view.models}
    model_sectors = {model: Sector(name, -30, 48, rows, share=True) for model, rows in own.items() if rows}
    if not model_sectors:
        return EMPTY
    scales = {sector.name: _range([sector]) for sector in optics_sectors} | {
        name: _range(list(model_sectors.values()))
    }
    without = tag(
        "p", "SSIM was not measured for this run. To measure it: ", tag("code", SIMILARITY), cls="note"
    )
    return join(
        [
            tag("h3", "Field map"),
            tag(
                "p",
                "Each ring is a distance from the image centre; the values are means over all lenses"
                + (", and mAP is computed on the images of all lenses together." if name == MAP else "."),
                cls="about",
            ),
            _maps(optics_sectors, model_sectors, scales),
            _legend([*optics_sectors, next(iter(model_sectors.values()))], scales),
            EMPTY if "SSIM" in scales else without,
            _table(optics_sectors, model_sectors, "accuracy" if name == RIGHT else name),
        ]
    )


def _sharpness(view: View) -> pl.DataFrame:
    """Return the mean MTF50 of the lenses at each field position, with intervals over lenses."""
    each = (
        with_lenses(view.table)
        .select("lens", "lens_field", "mtf50")
        .drop_nulls()
        .unique(["lens", "lens_field"])
    )
    value, n = pl.col("mtf50"), pl.len()
    means = each.group_by("lens_field").agg(value=value.mean(), n=n.cast(pl.Int64), variance=value.var() / n)
    return means.with_columns(**normal_interval(pl.col("value"), pl.col("variance"))).collect()


def _by_field(rows: pl.DataFrame) -> Rows:
    complete = rows.drop_nulls(["lens_field", "value"]).sort("lens_field")
    return {row["lens_field"]: row for row in complete.to_dicts()}


def _range(sectors: Sequence[Sector]) -> tuple[float, float]:
    values = [row["value"] for sector in sectors for row in sector.rows.values()]
    return min(values), max(values)


def _maps(
    optics_sectors: Sequence[Sector],
    model_sectors: Mapping[str, Sector],
    scales: Mapping[str, tuple[float, float]],
) -> Html:
    figures = []
    for model, sector in model_sectors.items():
        sectors = [*optics_sectors, sector]
        label = (
            f"Field map of {model}: {', '.join(part.name for part in sectors)} by distance from the centre"
        )
        head = tag("h4", model, style="text-align:center")
        figures.append(
            tag("figure", head, rings(label, sectors, scales), style="flex:1 1 14rem;max-width:20rem")
        )
    return tag("div", *figures, style="display:flex;flex-wrap:wrap;gap:0.5rem 1.5rem;justify-content:center")


def _legend(sectors: Sequence[Sector], scales: Mapping[str, tuple[float, float]]) -> Html:
    stops = ",".join(f"rgb{colour}" for colour in (LOW, MIDDLE, HIGH))
    bar = tag("i", style=f"height:0.7rem;border-radius:3px;background:linear-gradient(90deg,{stops})")
    cells = []
    for sector in sectors:
        low, high = (tag("span", sector.text(end)) for end in scales[sector.name])
        cells += [tag("span", SCALES[sector.name]), low, bar, high]
    style = (
        "display:grid;grid-template-columns:auto auto minmax(5rem,14rem) auto;gap:0.15rem"
        " 0.7rem;align-items:center;justify-content:center;margin:0.6rem 0 1rem;print-color-adjust:exact"
    )
    return tag("div", *cells, cls="note", style=style)


def _table(optics_sectors: Sequence[Sector], model_sectors: Mapping[str, Sector], shown: str) -> Html:
    fields = sorted({field for sector in [*optics_sectors, *model_sectors.values()] for field in sector.rows})
    counted = {"MTF50": "lenses", MAP: "images"}
    columns = [
        (sector, counted.get(sector.name, "samples")) for sector in [*optics_sectors, *model_sectors.values()]
    ]
    lines = [[percent(field, 0), *(sector.whole(field, of) for sector, of in columns)] for field in fields]
    caption = (
        "Mean, 95 % interval and n at each distance from the centre (in % of the half field); models show"
        f" {shown}"
    )
    return grid(["", *(sector.name for sector in optics_sectors), *model_sectors], lines, caption=caption)


# --- Long tables: the first rows are shown, a search finds others, and a CSV file has all

# Number of rows shown before a search; the style sheet has the same number.
SHOWN_ROWS = 40
# Maximum number of rows in the page.
MAX_ROWS = 1200


def long_table(
    head: Sequence[object],
    rows: Sequence[Sequence[object]],
    caption: str,
    text: int = 1,
    what: str = "rows",
    most: int = MAX_ROWS,
) -> Html:
    """Return a table of which the first rows are shown; JavaScript adds a search to longer ones."""
    table = grid(
        head, rows[:most], text=text, caption=caption, cls="long" if len(rows) > SHOWN_ROWS else None
    )
    if len(rows) <= SHOWN_ROWS:
        return table
    note = f"The first {SHOWN_ROWS} of {count(len(rows))} {what} are shown; a search finds "
    note += "any." if len(rows) <= most else f"one of the first {count(most)}; the CSV file has all."
    return tag(
        "div", table, tag("p", note, cls="note"), cls="findable", data_what=f"{count(len(rows))} {what}"
    )


def csv_link(name: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> Html:
    """Return a link to all rows as an embedded CSV file."""
    if not rows:
        return EMPTY
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([head, *rows])
    address = f"data:text/csv;charset=utf-8,{quote(buffer.getvalue())}"
    link = tag(
        "a", "CSV", href=address, download=f"{name}.csv", aria_label=f"{count(len(rows))} rows as CSV: {name}"
    )
    return tag("div", join([link]), cls="tools")


# --- Lenses ranked by the mean over models
HEAD = ("place", "lens", "mtf50", "model", "value", "low", "high", "n")


def lens_ranking(view: View, each: pl.DataFrame, what: str) -> Html:
    """Return the lenses ranked by their mean ``what`` over models; empty with one lens.

    ``each`` has the columns model, lens, quality, value, low, high and n.
    """
    if each["lens"].n_unique() < 2:
        return EMPTY
    means = each.group_by("lens").agg(pl.col("value").mean().alias("mean"), pl.col("quality").mean())
    # Equal means may differ in their last digits, which depend on the order of summation.
    place = pl.col("mean").round(10).rank("min", descending=True)
    ranked = means.with_columns(place=place).sort("place", "lens").to_dicts()
    cells = {(row["lens"], row["model"]): row for row in each.to_dicts()}
    models = [model for model in view.models if any(key[1] == model for key in cells)]
    lines = [
        [
            row["lens"],
            str(row["place"]),
            number(row["quality"]),
            *(_cell(cells.get((row["lens"], m))) for m in models),
        ]
        for row in ranked
    ]
    mean = "" if len(models) == 1 else ", mean over the models"
    caption = (
        f"Lenses by {what}{mean}, with 95 % intervals and n. Lenses whose intervals overlap may swap ranks."
    )
    table = long_table(["lens", "place", "MTF50", *models], lines, caption, what="lenses")
    return join(
        [tag("h3", "Lens ranking"), table, csv_link("lenses", HEAD, _csv_rows(ranked, cells, models))]
    )


def _cell(row: dict[str, object] | None) -> Html | str:
    return DASH if row is None else estimate(row, f"n = {row['n']}")


def _csv_rows(
    ranked: list[dict[str, object]], cells: dict[tuple[str, str], dict[str, object]], models: list[str]
) -> list[list[object]]:
    pairs = [
        (lens, cells[str(lens["lens"]), model])
        for lens in ranked
        for model in models
        if (lens["lens"], model) in cells
    ]
    return [
        [lens["place"], lens["lens"], lens["quality"], *(row[name] for name in HEAD[3:])]
        for lens, row in pairs
    ]
