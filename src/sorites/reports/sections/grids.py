"""The section on grids of shifts: surfaces with the failure contour, and the interaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from sorites import metrics
from sorites.core.compositions import TIMES
from sorites.metrics.detection.at_confidence import CONFIDENCE
from sorites.metrics.grids import BEYOND
from sorites.reports.components.charts import figure_of, plot, share_text
from sorites.reports.components.markup import (
    DASH,
    EMPTY,
    THIN,
    Html,
    between,
    count,
    grid,
    join,
    number,
    percent,
    picked,
    points,
    tag,
)
from sorites.reports.components.severities import reading_of, severity_text
from sorites.reports.section import Section, add_section
from sorites.reports.view import View, box_models

# From white (0 %) to dark blue (100 %).
SCALE = [[0.0, "#f7fbff"], [0.5, "#6baed6"], [1.0, "#08306b"]]
CONTOUR = "#d55e00"
# The share of the darkest colour from which the text of a cell is white.
LIGHT_TEXT_FROM = 0.45
# The p-value below which an interaction is called significant.
ALPHA = 0.05


@dataclass(frozen=True)
class Surface:
    """A number at each combination of severities.

    Attributes:
        quantity: What the number is, as a heading.
        cells: The answer of a metric of grids.
        top: The value of the darkest colour.
    """

    quantity: str
    cells: pl.DataFrame
    top: float = 1.0


@dataclass(frozen=True)
class Maps:
    """The numbers of the grids of classifiers, or of detectors.

    Attributes:
        surfaces: The surfaces; the first is drawn with the contour.
        contour: The failure contour.
        named: What happens at the contour.
        excess: The interaction.
        joint: The quantity of the interaction, as a column of it.
    """

    surfaces: tuple[Surface, ...]
    contour: pl.DataFrame
    named: str
    excess: pl.DataFrame
    joint: str

    def of(self, shift: str, model: str) -> Maps:
        """Return the numbers of one shift and model."""

        def own(frame: pl.DataFrame) -> pl.DataFrame:
            return frame.filter(pl.col("shift") == shift, pl.col("model") == model)

        surfaces = tuple(replace(surface, cells=own(surface.cells)) for surface in self.surfaces)
        return replace(self, surfaces=surfaces, contour=own(self.contour), excess=own(self.excess))

    def __bool__(self) -> bool:
        return self.surfaces[0].cells.height > 0


@add_section(order=33)
def shift_grids(view: View) -> Section | None:
    """Surface, contour and interaction of each grid and model; absent without a grid."""
    kinds = [maps for maps in (_of_classifiers(view), _of_detectors(view)) if maps]
    if not kinds:
        return None
    shifts = pl.concat([maps.surfaces[0].cells["shift"] for maps in kinds]).unique(maintain_order=True)
    blocks: list[Html] = []
    for shift in shifts:
        cards, said = {}, []
        for maps in kinds:
            for model in view.models:
                own = maps.of(shift, model)
                if own:
                    cards[model] = _cards(view, shift, own)
                    said += _sentences(own)
        title, sentences = tag("h3", shift), tag("ul", *said) if said else EMPTY
        blocks.append(join([title, sentences, picked(f"grid-{len(blocks)}", "Model", cards)]))
    lead = (
        "Two or three shifts at once. Each cell is the value at one combination of severities, on the same"
        " images; darker is better, and hovering shows the interval and n. The orange line is the failure"
        f" contour: {' '.join(_CONTOURS[maps.joint] for maps in kinds)} Its 95 % interval is a bootstrap over"
        " samples. The interaction is the joint loss minus the sum of the losses of each shift alone, in"
        " points, paired over samples."
    )
    return Section("What if two things go wrong at once?", join(blocks), "Shift grids", lead)


_CONTOURS = {
    "accuracy": "for classifiers, the severity at which accuracy is half-way from clean accuracy to chance.",
    "recall": (
        "for detectors, the severity at which half of the objects that are found in the clean image are"
        f" lost (IoU 0.50, confidence from {CONFIDENCE:g} on)."
    ),
}


def _of_classifiers(view: View) -> Maps | None:
    surface = view.compute(metrics.grid_accuracy)
    if not surface.height:
        return None
    return Maps(
        (Surface("accuracy", surface),),
        view.compute(metrics.failure_contour),
        "half accuracy",
        view.compute(metrics.interaction),
        "accuracy",
    )


def _of_detectors(view: View) -> Maps | None:
    if not box_models(view):
        return None
    kept = view.compute(metrics.grid_kept)
    if not kept.height:
        return None
    mean_ap = view.compute(metrics.grid_map)
    best: Any = mean_ap["value"].max()
    return Maps(
        (Surface("objects still found", kept), Surface("mAP", mean_ap, top=float(best or 1))),
        view.compute(metrics.box_failure_contour),
        "half of the objects lost",
        view.compute(metrics.box_interaction),
        "recall",
    )


def _cards(view: View, shift: str, maps: Maps) -> Html:
    """Return one surface per severity of the third shift, if there is one, and the table of interactions."""
    cards = []
    for k, surface in enumerate(maps.surfaces):
        for third in surface.cells["third"].unique().sort().to_list():
            same = pl.col("third").eq_missing(pl.lit(third, pl.Float64))
            named = "" if third is None else _named(view, shift.split(TIMES)[2], third)
            cells = replace(surface, cells=surface.cells.filter(same))
            contour = maps if third is None and not k else None
            cards.append(_surface(view, shift, cells, contour, named))
    table = tag("article", _table(view, shift, maps), cls="card")
    return tag("div", *cards, table, cls="cards two")


def _named(view: View, shift: str, severity: float) -> str:
    return f"{shift}: {severity_text(view, shift, severity)}"


def _surface(view: View, shift: str, surface: Surface, contour: Maps | None, named: str) -> Html:
    """Return the heat map of two severities, with the contour of the second at each of the first."""
    first, second = shift.split(TIMES)[:2]
    rows = surface.cells.to_dicts()
    xs, ys = (sorted({row[axis] for row in rows}) for axis in ("first", "second"))
    by_cell = {(row["first"], row["second"]): row for row in rows}
    names = (f"{name}: {reading_of(view, name).axis}" for name in (first, second))
    drawn = figure_of([], *names, xaxis=_ticks(view, first, xs), yaxis=_ticks(view, second, ys))
    values = [[_value(by_cell.get((x, y))) for x in xs] for y in ys]
    hover = [[_hover(by_cell.get((x, y))) for x in xs] for y in ys]
    drawn.add_trace(
        {
            "type": "heatmap",
            "x": list(range(len(xs))),
            "y": list(range(len(ys))),
            "z": values,
            "customdata": hover,
            "zmin": 0,
            "zmax": surface.top,
            "colorscale": SCALE,
            "showscale": False,
            "xgap": 2,
            "ygap": 2,
            "hovertemplate": "%{customdata}<extra></extra>",
        }
    )
    heading, label = surface.quantity, f"{surface.quantity} at each severity of {first} and {second}"
    if named:
        heading = f"{heading} · {named}"
    if contour is not None:
        _draw_contour(drawn, contour.contour.sort("first"), contour.named, xs, ys)
        heading, label = f"{heading} and failure contour", f"{label}, with the contour of {contour.named}"
    written = [
        _cell_text(x, y, value, value / surface.top)
        for y, line in enumerate(values)
        for x, value in enumerate(line)
        if value is not None
    ]
    drawn.update_layout(height=420, showlegend=False, annotations=written)
    beyond = EMPTY if contour is None else _beyond(view, contour, first, second, ys[-1])
    return tag("article", tag("h4", heading), plot(drawn, label), beyond, cls="card")


def _beyond(view: View, maps: Maps, first: str, second: str, last: float) -> Html:
    """Say where the contour is not reached."""
    missed = maps.contour.filter(pl.col("status") == BEYOND).sort("first")["first"].to_list()
    if not missed:
        return EMPTY
    where = ", ".join(severity_text(view, first, severity) for severity in missed)
    end = _named(view, second, last)
    text = f"{maps.named.capitalize()}: not reached up to {end}, at {first}: {where}."
    return tag("p", text, cls="note")


def _cell_text(x: int, y: int, value: float, dark: float) -> dict[str, object]:
    """Return the number of a cell in its lower left corner, where the contour seldom runs."""
    colour = "#ffffff" if dark > LIGHT_TEXT_FROM else "#20242a"
    where: dict[str, object] = {"x": x - 0.47, "y": y - 0.46, "xanchor": "left", "yanchor": "bottom"}
    return where | {"text": percent(value, 0), "showarrow": False, "font": {"color": colour, "size": 12}}


def _value(row: dict[str, float] | None) -> float | None:
    return None if row is None else row["value"]


def _hover(row: dict[str, float] | None) -> str:
    if row is None:
        return "not evaluated"
    value, low, high = (share_text(row[name]) for name in ("value", "low", "high"))
    return f"{value} % [{low}, {high}]<br>n = {row['n']:g}"


def _ticks(view: View, shift: str, severities: list[float]) -> dict[str, object]:
    """Return an axis of equal steps, labelled with severities in the words of the shift."""
    reading = reading_of(view, shift)
    return {
        "tickmode": "array",
        "tickvals": list(range(len(severities))),
        "ticktext": [reading.value(severity) for severity in severities],
        "range": [-0.5, len(severities) - 0.5],
        "showgrid": False,
    }


def _draw_contour(drawn: object, contour: pl.DataFrame, named: str, xs: list[float], ys: list[float]) -> None:
    """Draw the failure contour; bounds beyond the map end at its edge."""
    import numpy as np

    known = contour.filter(pl.col("value").is_not_null())
    if not known.height:
        return

    def position(value: float | None) -> float:
        """Return the place of a severity on an axis of equal steps."""
        return len(ys) - 0.5 if value is None else float(np.interp(value, ys, range(len(ys))))

    x = [xs.index(first) for first in known["first"]]
    y = [position(value) for value in known["value"]]
    up = [position(high) - at for high, at in zip(known["high"], y, strict=True)]
    down = [at - position(low) for low, at in zip(known["low"], y, strict=True)]
    hover = [
        f"{named} at {number(row['value'])}"
        f" [{number(row['low']) if row['low'] is not None else DASH},"
        f" {number(row['high']) if row['high'] is not None else 'beyond'}]"
        for row in known.to_dicts()
    ]
    drawn.add_trace(  # type: ignore[attr-defined]
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": x,
            "y": y,
            "error_y": {"type": "data", "array": up, "arrayminus": down, "color": CONTOUR, "thickness": 1.5},
            "line": {"color": CONTOUR, "width": 3},
            "marker": {"color": CONTOUR, "size": 7},
            "customdata": hover,
            "hovertemplate": "%{customdata}<extra></extra>",
        }
    )


def _table(view: View, shift: str, maps: Maps) -> Html:
    """Return the interaction at each combination, largest first."""
    names = shift.split(TIMES)
    lines = []
    for row in (
        maps.excess.filter(pl.col("first").is_not_null()).sort("value", descending=True).head(12).to_dicts()
    ):
        severities = " · ".join(
            severity_text(view, name, row[axis])
            for name, axis in zip(names, ("first", "second", "third"), strict=False)
        )
        interval = between(_points(row["low"]), _points(row["high"])) if row["low"] is not None else DASH
        lines.append(
            [
                severities,
                percent(row[maps.joint]),
                percent(row["expected"]),
                join([_points(row["value"]), tag("small", interval)]),
                _p_value(row["p_adjusted"]),
                count(row["n"]),
            ]
        )
    caption = (
        "Interaction: joint loss minus the sum of the losses, in points, with its 95 % interval; p is"
        " corrected for all combinations (Holm). Severe shifts cannot add up: their values are negative."
    )
    heads = [" · ".join(names), maps.joint, "if additive", "interaction, points", "p", "n"]
    # Beside the table, not in it: a narrow page scrolls tables.
    return join([tag("p", caption, cls="note"), grid(heads, lines, text=1)]) if lines else EMPTY


def _points(value: float | None) -> str:
    """Format a difference in percentage points without its unit, which the heading names."""
    return points(value).removesuffix(f"{THIN}points")


def _p_value(p: float | None) -> str:
    if p is None:
        return DASH
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _sentences(maps: Maps) -> list[Html]:
    """Say whether the shifts cost more together than the sum of their losses."""
    texts = []
    for row in maps.excess.filter(pl.col("first").is_null()).to_dicts():
        cells = maps.excess.filter(pl.col("first").is_not_null(), pl.col("p_adjusted") < ALPHA)
        more, less = (int((sign * cells["value"] > 0).sum()) for sign in (1, -1))
        texts.append(
            tag(
                "li",
                tag("b", row["model"]),
                f": {points(row['value'])} on average over the combinations whose losses can add"
                f" up; {_significant(more, less)}",
            )
        )
    return texts


def _significant(more: int, less: int) -> str:
    if not more and not less:
        return "no combination differs significantly from the sum"
    return f"of all combinations, {more} cost significantly more than the sum and {less} less"
