"""Charts in one style: one pen per model, a transparent background, and theme colours for text and grid."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sorites.core import SHIFTS
from sorites.core.types import STAGES
from sorites.reports.components.markup import (
    DASH,
    EMPTY,
    Html,
    between,
    breakable,
    count,
    css_property,
    join,
    number,
    percent,
    safe,
    tag,
)
from sorites.reports.components.severities import reading_of
from sorites.reports.view import View
from sorites.suites.suite import Composition

if TYPE_CHECKING:
    import plotly.graph_objects as go

# The palette of Okabe and Ito, safe for colour-blind readers, without black and yellow, which vanish on
# one of the two backgrounds.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7d7d7d")
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "x")
HEIGHT = 268
# Height of one row of a legend, px.
LEGEND_ROW = 21


@dataclass(frozen=True)
class Pen:
    """The colour, dash and symbol of a model on the whole page; colour and symbol are redundant."""

    colour: str
    dash: str
    symbol: str

    def faint(self, alpha: float) -> str:
        """Return the colour with this opacity, as CSS."""
        red, green, blue = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},{alpha})"


def pen(view: View, model: str) -> Pen:
    """Return the pen of a model, by its position among the models of the view."""
    position = view.models.index(model)
    cycle = position // len(COLOURS)
    return Pen(
        COLOURS[position % len(COLOURS)], DASHES[cycle % len(DASHES)], SYMBOLS[position % len(SYMBOLS)]
    )


def pen_style(view: View, model: str) -> str:
    """Return the CSS declaration that colours an element like the model's curves."""
    return css_property("pen", pen(view, model).colour)


def axis_name(view: View, shift: str) -> str:
    """Return the title of a severity axis: "JPEG quality", "px out of focus", "level … of 5"."""
    return reading_of(view, shift).axis


def severity_labels(
    view: View, shift: str, severities: Iterable[float], before: Sequence[str] = (), after: Sequence[str] = ()
) -> dict[str, Any]:
    """Return an axis of severities as categories, named by ``number`` and labelled in words.

    Args:
        view: The view of the page.
        shift: The shift.
        severities: The severities, lowest first.
        before: Categories before them.
        after: Categories after them.
    """
    reading = reading_of(view, shift)
    labels = {number(severity): reading.value(severity) for severity in severities}
    return {
        "type": "category",
        "tickvals": [*before, *labels, *after],
        "ticktext": [*before, *labels.values(), *after],
    }


def figure(view: View, x: str, y: str, **axes: Mapping[str, Any]) -> go.Figure:
    """Return an empty figure with axis titles and room for a legend of the models."""
    return figure_of(view.models, x, y, **axes)


def figure_of(names: Sequence[str], x: str, y: str, **axes: Mapping[str, Any]) -> go.Figure:
    """Return an empty figure with axis titles and room for a legend of ``names``."""
    import plotly.graph_objects as go

    inside = len(names) > 1 and _fits(names)
    room = LEGEND_ROW * _legend_rows(names) if inside else 0
    plain: dict[str, Any] = {
        "zeroline": False,
        "showline": False,
        "ticks": "",
        "automargin": True,
        "fixedrange": True,
    }
    layout = {
        "template": "none",
        "height": HEIGHT + room,
        "margin": {"l": 52, "r": 10, "t": 12 + room, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 12},
        "xaxis": {
            **plain,
            "showgrid": False,
            "title": {"text": safe(x), "standoff": 8},
            **axes.get("xaxis", {}),
        },
        "yaxis": {**plain, "title": {"text": safe(y), "standoff": 6}, **axes.get("yaxis", {})},
        "showlegend": inside,
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.03,
            "yanchor": "bottom",
            "font": {"size": 12},
        },
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
    """Return one legend for all charts of a section, if there are too many models for one in each chart."""
    if _fits(view.models):
        return EMPTY
    keys = [
        tag(
            "button",
            tag("i", style=_key(pen(view, model))),
            model,
            type="button",
            aria_pressed="true",
            data_model=model,
        )
        for model in view.models
    ]
    return tag("div", *keys, cls="legend-bar", role="group", aria_label="Models shown")


def _key(drawn: Pen) -> str:
    return (
        "border-top:3px"
        f" {'solid' if drawn.dash == 'solid' else 'dotted' if drawn.dash == 'dot' else 'dashed'}"
        f" {drawn.colour}"
    )


def small_multiples(view: View, cards: Sequence[Html]) -> Html:
    """Return the cards side by side, under one legend if the charts have none."""
    return join([legend(view), tag("div", *cards, cls="cards")])


def along(view: View, shift: str, severities: pl.Series) -> dict[str, Any]:
    """Return an axis from 0 to the greatest severity with a margin, its ticks in the words of the shift."""
    top = float(severities.max() or 1)  # type: ignore[arg-type]
    reading = reading_of(view, shift)
    step = next(step for step in _steps(top / TICKS) if step * TICKS >= top)
    ticks = [i * step for i in range(TICKS + 1) if i * step <= 1.02 * top]
    return {
        "range": [-0.04 * top, 1.04 * top],
        "tickvals": ticks,
        "ticktext": [reading.value(tick) for tick in ticks],
    }


# Maximum number of intervals between the ticks of an axis.
TICKS = 5


def _steps(least: float) -> Iterable[float]:
    """Yield round numbers near ``least`` and above."""
    power = 10.0 ** math.floor(math.log10(least))
    return (power * factor for factor in (1, 2, 2.5, 5, 10))


PERCENT_AXIS: Mapping[str, Any] = {"range": [-0.02, 1.02], "tickformat": ".0%", "dtick": 0.25}


def line(
    fig: go.Figure, view: View, model: str, shift: str, rows: pl.DataFrame, what: str, shape: str = "linear"
) -> None:
    """Draw the line of a model with its interval as a band.

    Args:
        fig: The figure to draw on.
        view: The view of the page.
        model: The model.
        shift: The shift.
        rows: The columns severity, value, n, low and high, sorted by severity.
        what: The name of the value on hovering.
        shape: Plotly's line shape; ``"hv"`` draws steps.
    """
    model_pen = pen(view, model)
    x = rows["severity"].to_list()
    band_x, low, high = (
        rows.drop_nulls(["low", "high"])[name].to_list() for name in ("severity", "low", "high")
    )
    if shape == "hv":
        band_x, low, high = _corners(band_x, low, high)
    shared = {"legendgroup": model, "name": safe(model), "type": "scatter"}
    fig.add_trace(
        {
            **shared,
            "x": band_x + band_x[::-1],
            "y": high + low[::-1],
            "fill": "toself",
            "fillcolor": model_pen.faint(max(0.05, min(0.16, 0.5 / len(view.models)))),
            "line": {"width": 0},
            "mode": "lines",
            "hoverinfo": "skip",
            "showlegend": False,
        }
    )
    reading = reading_of(view, shift)
    hover = zip(rows["low"], rows["high"], rows["n"], rows["severity"], strict=True)
    fig.add_trace(
        {
            **shared,
            "x": x,
            "y": rows["value"].to_list(),
            "customdata": [
                [share_text(low), share_text(high), n, safe(reading.text(severity) if severity else "clean")]
                for low, high, n, severity in hover
            ],
            "mode": "lines+markers" if shape == "linear" else "lines",
            "line": {"color": model_pen.colour, "width": 2.2, "dash": model_pen.dash, "shape": shape},
            "marker": {"symbol": model_pen.symbol, "size": 7, "color": model_pen.colour},
            "hovertemplate": (
                f"<b>%{{fullData.name}}</b><br>severity %{{x:.4~g}} (%{{customdata[3]}})<br>{what} %{{y:.1%}}"
                "<br>95 %:"
                " %{customdata[0]} to %{customdata[1]} %<br>n = %{customdata[2]}<extra></extra>"
            ),
        }
    )


def share_text(value: float | None) -> str:
    """Format a bound in percent without its sign; a missing one is a dash."""
    return DASH if value is None else f"{100 * value:.1f}"


def _corners(x: list[float], *curves: list[float]) -> list[list[float]]:
    """Return the corners of step curves that hold each value until the next x."""
    across, *heights = ([v for v in values for _ in (0, 1)] for values in (x, *curves))
    return [across[1:], *(height[:-1] for height in heights)]


def plot(fig: go.Figure, label: str) -> Html:
    """Return a figure as markup: an element for the chart, and its data as inert JSON."""
    data = fig.to_json().replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    element = tag(
        "div", cls="chart", role="figure", aria_label=label, style=f"min-height:{fig.layout.height}px"
    )
    return Html(f'{element}<script type="application/json">{data}</script>')


def card(shift: str, *parts: object) -> Html:
    """Return one of the small multiples, headed by its shift."""
    return tag("article", tag("h3", breakable(shift)), *parts, cls="card")


def about(view: View, shift: str) -> Html:
    """Return the description of a shift, with names in double backquotes set as code."""
    if shift in view.cameras:
        return tag("p", _camera_parts(view.cameras[shift]), cls="about")
    registered = view.shift_named(shift)
    if registered is None or not registered.about:
        return EMPTY
    pieces = re.sub(r"\bum\b", "µm", registered.about).split("``")
    return tag("p", *(tag("code", piece) if i % 2 else piece for i, piece in enumerate(pieces)), cls="about")


def _camera_parts(camera: Composition) -> str:
    """Describe a named camera by its stages and the range of each over the levels."""
    stages = [(dial, SHIFTS.get(dial.name) if dial.name in SHIFTS else None) for dial in camera.shifts]
    ordered = sorted(stages, key=lambda stage: STAGES.index(stage[1].stage) if stage[1] else 0)
    parts = []
    for dial, registered in ordered:
        values = dial.severities or (registered.levels if registered else ())
        span = f" {values[0]:g} to {values[-1]:g}" if values else ""
        parts.append(f"{dial.name}{span}")
    count = min((len(dial.severities) for dial in camera.shifts if dial.severities), default=0)
    return f"{' → '.join(parts)}, together from level 1 to {count or 'the last'}."


def fit(quality: np.ndarray, value: np.ndarray) -> np.polynomial.Polynomial | None:
    """Fit a cubic by least squares; None with fewer than five lenses of different quality."""
    if len(np.unique(quality)) < 5:
        return None
    return np.polynomial.Polynomial.fit(quality, value, 3)


# --- Dot charts of estimates with intervals, one row per name, drawn without JavaScript

# Number of marks in the style sheet, each with its own colour and shape.
MARKS = 6
STEPS = (0.01, 0.02, 0.05, 0.1, 0.25)
MAX_STEPS = 7


@dataclass(frozen=True)
class Scale:
    """A range of shares between two ticks, which adjacent charts can share."""

    step: float
    first: int
    """The number of steps from 0 to the first tick."""
    last: int

    def at(self, value: float) -> float:
        """Return the position of a value in percent of the scale."""
        return 100 * (value / self.step - self.first) / (self.last - self.first)

    def ticks(self) -> list[float]:
        """Return the values of the ticks."""
        return [i * self.step for i in range(self.first, self.last + 1)]


def scale(values: Iterable[float]) -> Scale:
    """Return the narrowest scale that covers these shares in a few round steps."""
    shares = list(values)
    candidates = (Scale(step, *_ends(min(shares), max(shares), step)) for step in STEPS)
    return next(candidate for candidate in candidates if candidate.last - candidate.first <= MAX_STEPS)


def _ends(low: float, high: float, step: float) -> tuple[int, int]:
    first = math.floor(low / step + 1e-9)
    return first, max(first + 1, math.ceil(high / step - 1e-9))


@dataclass(frozen=True)
class Dot:
    """A share, its interval if there is one, and its number of images as text."""

    value: float
    low: float | None
    high: float | None
    n: str

    @classmethod
    def of(cls, row: Mapping[str, Any], n: str) -> Dot:
        """Make a dot from the row of a metric."""
        return cls(row["value"], row["low"], row["high"], n)

    def ends(self) -> tuple[float, float]:
        """Return the ends of the interval, or the value twice if there is none."""
        return (self.value, self.value) if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True)
class Key:
    """The key of a series: its mark (0 to ``MARKS`` - 1) and its number of images as text."""

    mark: int
    n: str


# Dots by name (a row of the chart) and series.
Dots = Mapping[str, Mapping[str, Dot]]


def ordered(dots: Dots, highest: bool = True) -> list[str]:
    """Return the names sorted by the mean over their series, best first; ties keep their order."""
    mean = {
        name: math.fsum(dot.value for dot in by_series.values()) / len(by_series)
        for name, by_series in dots.items()
        if by_series
    }
    return sorted(mean, key=mean.__getitem__, reverse=highest)


def dot_chart(
    dots: Dots, series: Mapping[str, Key], on: Scale, lines: Mapping[str, float], label: str
) -> Html:
    """Draw one row per name.

    Args:
        dots: The dots by name, in the order of the rows, and by series.
        series: How each series is drawn.
        on: The scale.
        lines: Reference values by name.
        label: The accessible name of the chart.
    """
    rules = [tag("u", style=f"left:{on.at(value):.1f}%") for value in lines.values()]
    rows = [
        part
        for name, by_series in dots.items()
        for part in (tag("b", name), tag("div", *rules, *_row(name, by_series, series, on), cls="row"))
    ]
    ticks = [tag("span", f"{100 * tick:.0f}", style=f"left:{on.at(tick):.1f}%") for tick in on.ticks()]
    step = css_property("step", f"{100 / (on.last - on.first):.3f}%")
    drawn = tag(
        "div", *rows, tag("div", *ticks, cls="ticks"), cls="dots", role="img", aria_label=label, style=step
    )
    return join([_keys(series, lines), drawn])


def _keys(series: Mapping[str, Key], lines: Mapping[str, float]) -> Html:
    marks = [tag("span", tag("i", cls=f"m{key.mark}"), f"{name} ({key.n})") for name, key in series.items()]
    return tag(
        "p",
        *marks,
        *(tag("span", tag("u"), f"{name}, {percent(at)}") for name, at in lines.items()),
        cls="keys",
    )


def _row(name: str, by_series: Mapping[str, Dot], series: Mapping[str, Key], on: Scale) -> list[Html]:
    return [
        _dot(f"{name}, {series_name}", key.mark, by_series.get(series_name), on)
        for series_name, key in series.items()
    ]


def _dot(name: str, mark: int, dot: Dot | None, on: Scale) -> Html:
    if dot is None:
        return tag("span")
    low, high = (on.at(end) for end in dot.ends())
    inside = 100 * (on.at(dot.value) - low) / (high - low) if high > low else 0
    interval = (
        EMPTY
        if dot.low is None or dot.high is None
        else f", 95 %: {between(percent(dot.low), percent(dot.high))}"
    )
    hover = f"{name}: {percent(dot.value)}{interval}, {dot.n}"
    bar = f"margin-left:{low:.1f}%;width:{high - low:.1f}%"
    return tag("span", tag("i", style=f"left:{inside:.0f}%"), cls=f"m{mark}", style=bar, title=hover)


# --- Tables with shaded cells: blue if better than a reference, orange if worse, hatched if too few images

# A cell without images.
NONE = tag("td", cls="none")


def shaded(text: str, good: float, hover: str, small: object = None) -> Html:
    """Return a shaded cell; ``good`` runs from -1 to 1 (0: random score), ``hover`` is the tooltip."""
    strength = round(65 * min(1.0, abs(good)))
    below = EMPTY if small is None else tag("small", small)
    return tag("td", text, below, cls="up" if good >= 0 else "down", style=f"--s:{strength}%", title=hover)


def thin(n: int) -> Html:
    """Return a hatched cell, for too few images."""
    return tag("td", DASH, tag("small", count(n)), cls="thin", title=f"{n} images are too few")


def heat(
    corner: str,
    columns: Sequence[object],
    rows: Iterable[tuple[object, Sequence[Html]]],
    caption: str,
    named: bool = False,
) -> Html:
    """Return a horizontally scrollable table.

    Args:
        corner: The text of the upper left cell.
        columns: The column headings.
        rows: The heading and cells of each row.
        caption: The caption, if not empty.
        named: Whether the row headings are names instead of levels.
    """
    top = tag("tr", tag("th", corner, scope="col"), *(tag("th", column, scope="col") for column in columns))
    body = [tag("tr", tag("th", head, scope="row"), *cells) for head, cells in rows]
    titled = tag("caption", caption) if caption else EMPTY
    table = tag(
        "table", titled, tag("thead", top), tag("tbody", *body), cls="heat named" if named else "heat level"
    )
    return tag("div", table, cls="scroll", tabindex="0")


def same(numbers: Iterable[int]) -> str:
    """Format counts: one number if all are equal, else the range."""
    distinct = sorted(set(numbers))
    return count(distinct[0]) if len(distinct) == 1 else f"{count(distinct[0])} to {count(distinct[-1])}"
