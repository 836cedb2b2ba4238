"""Charts in one style: one pen per model, a transparent background, and colours of text and grid from the page's theme."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from sorites.reports.parts.markup import EMPTY, THIN, Html, breakable, join, number, safe, tag
from sorites.reports.view import View

if TYPE_CHECKING:
    import plotly.graph_objects as go

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7d7d7d")
"""Okabe and Ito's palette for all kinds of colour vision, without black and yellow, which vanish on one of the backgrounds."""
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "x")
HEIGHT = 268
LEGEND_ROW = 21
"""The height of one row of a legend in pixels."""


@dataclass(frozen=True)
class Pen:
    """The colour, dash and symbol of a model everywhere on the page; colour and symbol carry the same information."""

    colour: str
    dash: str
    symbol: str

    def faint(self, alpha: float) -> str:
        """Return the colour with this opacity, as CSS."""
        red, green, blue = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},{alpha})"


def pen(view: View, model: str) -> Pen:
    """Return the pen of a model, by its place among the models of the view."""
    place = view.models.index(model)
    turn = place // len(COLOURS)
    return Pen(COLOURS[place % len(COLOURS)], DASHES[turn % len(DASHES)], SYMBOLS[place % len(SYMBOLS)])


def axis_name(view: View, shift: str) -> str:
    """Return the title of a severity axis, with the unit of the shift where it has one."""
    return f"severity ({unit})" if (unit := view.unit(shift)) else "severity"


def figure(view: View, x: str, y: str, **axes: Mapping[str, Any]) -> go.Figure:
    """Return an empty figure with axis titles and room for the legend of the models above it."""
    return figure_of(view.models, x, y, **axes)


def figure_of(names: Sequence[str], x: str, y: str, **axes: Mapping[str, Any]) -> go.Figure:
    """Return an empty figure with axis titles and room for a legend of some names above it."""
    import plotly.graph_objects as go

    inside = len(names) > 1 and _fits(names)
    room = LEGEND_ROW * _legend_rows(names) if inside else 0
    plain: dict[str, Any] = {"zeroline": False, "showline": False, "ticks": "", "automargin": True, "fixedrange": True}
    layout = {
        "template": "none",
        "height": HEIGHT + room,
        "margin": {"l": 52, "r": 10, "t": 12 + room, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 12},
        "xaxis": {**plain, "showgrid": False, "title": {"text": safe(x), "standoff": 8}, **axes.get("xaxis", {})},
        "yaxis": {**plain, "title": {"text": safe(y), "standoff": 6}, **axes.get("yaxis", {})},
        "showlegend": inside,
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.03, "yanchor": "bottom", "font": {"size": 12}},
        "hovermode": "closest",
        "hoverlabel": {"align": "left"},
    }
    return go.Figure(layout=layout)


def _legend_rows(names: Sequence[str], width: float = 330) -> int:
    widest = max((44 + 7 * len(name) for name in names), default=0)
    return math.ceil(len(names) / max(1, int(width // max(widest, 1)))) if names else 0


def _fits(models: Sequence[str]) -> bool:
    return _legend_rows(models) <= 2


def legend(view: View) -> Html:
    """Return one legend for all charts of a section, where there are too many models for a legend in each chart."""
    if _fits(view.models):
        return EMPTY
    keys = [
        tag("button", tag("i", style=_key(pen(view, model))), model, type="button", aria_pressed="true", data_model=model)
        for model in view.models
    ]
    return tag("div", *keys, cls="legend-bar", role="group", aria_label="Models shown")


def _key(drawn: Pen) -> str:
    return f"border-top:3px {'solid' if drawn.dash == 'solid' else 'dotted' if drawn.dash == 'dot' else 'dashed'} {drawn.colour}"


def small_multiples(view: View, cards: Sequence[Html]) -> Html:
    """Return the cards side by side, under one legend where the charts have none."""
    return join([legend(view), tag("div", *cards, cls="cards")])


def along(severities: pl.Series) -> dict[str, Any]:
    """Return an axis from 0 to the greatest severity, with a margin so that no point lies on the edge."""
    top = float(severities.max() or 1)  # type: ignore[arg-type]
    return {"range": [-0.04 * top, 1.04 * top], "nticks": 6}


PERCENT_AXIS: Mapping[str, Any] = {"range": [-0.02, 1.02], "tickformat": ".0%", "dtick": 0.25}


def line(fig: go.Figure, view: View, model: str, rows: pl.DataFrame, what: str, shape: str = "linear") -> None:
    """Draw a model's line and its interval as a band under it; the band is hidden together with the line.

    ``rows`` has the columns severity, value, n, low and high, sorted by severity; ``what`` names the value on hovering.
    """
    drawn = pen(view, model)
    x = rows["severity"].to_list()
    band_x, low, high = (x, rows["low"].to_list(), rows["high"].to_list())
    if shape == "hv":
        band_x, low, high = _corners(band_x, low, high)
    shared = {"legendgroup": model, "name": safe(model), "type": "scatter"}
    fig.add_trace(
        {
            **shared,
            "x": band_x + band_x[::-1],
            "y": high + low[::-1],
            "fill": "toself",
            "fillcolor": drawn.faint(max(0.05, min(0.16, 0.5 / len(view.models)))),
            "line": {"width": 0},
            "mode": "lines",
            "hoverinfo": "skip",
            "showlegend": False,
        }
    )
    hover = zip(rows["low"], rows["high"], rows["n"], strict=True)
    fig.add_trace(
        {
            **shared,
            "x": x,
            "y": rows["value"].to_list(),
            "customdata": [[f"{100 * a:.1f}", f"{100 * b:.1f}", n] for a, b, n in hover],
            "mode": "lines+markers" if shape == "linear" else "lines",
            "line": {"color": drawn.colour, "width": 2.2, "dash": drawn.dash, "shape": shape},
            "marker": {"symbol": drawn.symbol, "size": 7, "color": drawn.colour},
            "hovertemplate": f"<b>%{{fullData.name}}</b><br>severity %{{x:.4~g}}<br>{what} %{{y:.1%}}"
            "<br>95 %: %{customdata[0]} to %{customdata[1]} %<br>n = %{customdata[2]}<extra></extra>",
        }
    )


def _corners(x: list[float], *curves: list[float]) -> list[list[float]]:
    """Return the corners of step curves that keep each value until the next x."""
    across, *heights = ([v for v in values for _ in (0, 1)] for values in (x, *curves))
    return [across[1:], *(height[:-1] for height in heights)]


def plot(fig: go.Figure, label: str) -> Html:
    """Return a figure as markup: an element for the chart and its data as JSON, which no browser runs as a script."""
    data = fig.to_json().replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    place = tag("div", cls="chart", role="figure", aria_label=label, style=f"min-height:{fig.layout.height}px")
    return Html(f'{place}<script type="application/json">{data}</script>')


def card(shift: str, *parts: object) -> Html:
    """Return one of the small multiples, with its shift as the heading."""
    return tag("article", tag("h3", breakable(shift)), *parts, cls="card")


def about(view: View, shift: str) -> Html:
    """Return the description of the shift, with names in double backquotes set as code."""
    found = view.shift_named(shift)
    if found is None or not found.about:
        return EMPTY
    pieces = re.sub(r"\bum\b", "µm", found.about).split("``")
    return tag("p", *(tag("code", piece) if i % 2 else piece for i, piece in enumerate(pieces)), cls="about")


def severity_text(view: View, shift: str, severity: float | None) -> str:
    """Return a severity as text, with its unit where the unit is short enough to follow a number."""
    sign = view.unit(shift)
    return f"{number(severity)}{THIN}{sign}" if 0 < len(sign) <= 3 else number(severity)
