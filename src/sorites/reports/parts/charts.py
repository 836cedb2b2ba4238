"""Figures that share one look: a pen a model, transparent ground, colours of text and grid left to the page's theme."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from sorites.reports.parts.markup import EMPTY, THIN, Html, join, number, safe, tag
from sorites.reports.view import View, shift_named, unit

if TYPE_CHECKING:
    import plotly.graph_objects as go

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7d7d7d")
"""Okabe and Ito's palette for all kinds of colour vision, without its black and yellow (unseen on one of the grounds)."""
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "x")
HEIGHT = 268
LEGEND_ROW = 21
"""Pixels."""


@dataclass(frozen=True)
class Pen:
    """How a model is drawn, everywhere on the page: colour and symbol say the same twice."""

    colour: str
    dash: str
    symbol: str

    def faint(self, alpha: float) -> str:
        red, green, blue = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},{alpha})"


def pen(view: View, model: str) -> Pen:
    place = view.models.index(model)
    turn = place // len(COLOURS)
    return Pen(COLOURS[place % len(COLOURS)], DASHES[turn % len(DASHES)], SYMBOLS[place % len(SYMBOLS)])


def axis_name(shift: str) -> str:
    return f"severity ({unit(shift)})" if unit(shift) else "severity"


def figure(view: View, x: str, y: str, **axes: Mapping[str, Any]) -> go.Figure:
    """An empty figure with named axes and room for the legend above it."""
    import plotly.graph_objects as go

    inside = _fits(view.models)
    room = LEGEND_ROW * _legend_rows(view.models) if inside else 0
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
    """One legend for all charts of a section, where there are too many models to name them in each."""
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
    return join([legend(view), tag("div", *cards, cls="cards")])


def along(severities: pl.Series) -> dict[str, Any]:
    """An axis from 0 to the top of the dial, with a margin so that nothing sits on the edge."""
    top = float(severities.max() or 1)  # type: ignore[arg-type]
    return {"range": [-0.04 * top, 1.04 * top], "nticks": 6}


PERCENT_AXIS: Mapping[str, Any] = {"range": [-0.02, 1.02], "tickformat": ".0%", "dtick": 0.25}


def line(fig: go.Figure, view: View, model: str, rows: pl.DataFrame, what: str, shape: str = "linear") -> None:
    """``rows``: severity, value, n, low, high, sorted. The band is drawn under the line and hides with it."""
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
    told = zip(rows["low"], rows["high"], rows["n"], strict=True)
    fig.add_trace(
        {
            **shared,
            "x": x,
            "y": rows["value"].to_list(),
            "customdata": [[f"{100 * a:.1f}", f"{100 * b:.1f}", n] for a, b, n in told],
            "mode": "lines+markers" if shape == "linear" else "lines",
            "line": {"color": drawn.colour, "width": 2.2, "dash": drawn.dash, "shape": shape},
            "marker": {"symbol": drawn.symbol, "size": 7, "color": drawn.colour},
            "hovertemplate": f"<b>%{{fullData.name}}</b><br>severity %{{x:.4~g}}<br>{what} %{{y:.1%}}"
            "<br>95 %: %{customdata[0]} to %{customdata[1]} %<br>n = %{customdata[2]}<extra></extra>",
        }
    )


def _corners(x: list[float], *held: list[float]) -> list[list[float]]:
    """The corners of step curves that hold each value until the next x."""
    across, *levels = ([v for v in values for _ in (0, 1)] for values in (x, *held))
    return [across[1:], *(level[:-1] for level in levels)]


def plot(fig: go.Figure, label: str) -> Html:
    """A figure as markup: a place for the chart, and its data beside it, which no browser runs as a script."""
    data = fig.to_json().replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    place = tag("div", cls="chart", role="img", aria_label=label, style=f"min-height:{fig.layout.height}px")
    return Html(f'{place}<script type="application/json">{data}</script>')


def card(shift: str, *parts: object) -> Html:
    """One of the small multiples, headed by its shift."""
    return tag("article", tag("h3", shift), *parts, cls="card")


def about(shift: str) -> Html:
    """What the shift says of itself, its code words set as such."""
    found = shift_named(shift)
    if found is None or not found.about:
        return EMPTY
    pieces = found.about.split("``")
    return tag("p", *(tag("code", piece) if i % 2 else piece for i, piece in enumerate(pieces)), cls="about")


def stop(shift: str, severity: float | None) -> str:
    """A severity, with its unit where that is a sign to stand behind a number and not a formula."""
    sign = unit(shift)
    return f"{number(severity)}{THIN}{sign}" if 0 < len(sign) <= 3 else number(severity)
