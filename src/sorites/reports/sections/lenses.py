"""Lenses: accuracy against the lens's sharpness with its trend, against the distance from the middle, and the field map."""

from __future__ import annotations

import numpy as np
import polars as pl

from sorites import metrics
from sorites.reports.parts.charts import PERCENT_AXIS, figure, legend, pen, plot
from sorites.reports.parts.field_map import field_map
from sorites.reports.parts.markup import DASH, EMPTY, Html, grid, join, safe, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import View


@add_section(order=36)
def lenses(view: View) -> Section | None:
    """A scatter over lenses, a curve over fields, the correlations, and a map of rings. Absent without lenses."""
    each = view.ask(metrics.lens_accuracy).drop_nulls(["value", "quality"])
    if each.is_empty():
        return None
    curve = "; the curve is a third-order fit" if any(_trend(part) is not None for part in each.partition_by("model")) else ""
    lead = (
        "Each point is a lens: its quality is the mean MTF50 of its blur over the field, its bar the standard error over the "
        f"field{curve}. Further from the middle a lens is less sharp."
    )
    cards = [
        tag("article", tag("h3", "Against lens quality"), _scatter(view, each), cls="card"),
        tag("article", tag("h3", "Against distance from the middle"), _fields(view), cls="card"),
    ]
    below = [tag("div", tag("article", part, cls="card"), cls="below") for part in (field_map(view), _related(view)) if part]
    body = join([legend(view), tag("div", *cards, cls="cards two"), *below])
    return Section("How good must the lens be?", body, "Lenses", lead)


def _scatter(view: View, each: pl.DataFrame) -> Html:
    fig = figure(view, "lens quality (MTF50, cycles/px)", "right", yaxis=PERCENT_AXIS)
    for model in view.models:
        own = each.filter(pl.col("model") == model).sort("quality")
        if own.is_empty():
            continue
        drawn, quality, value = pen(view, model), own["quality"].to_numpy(), own["value"].to_numpy()
        shared = {"legendgroup": model, "name": safe(model), "type": "scatter"}
        fig.add_trace(
            {
                **shared,
                "x": quality.tolist(),
                "y": value.tolist(),
                "error_y": {"array": own["error"].fill_null(0.0).to_list(), "thickness": 1, "width": 0},
                "mode": "markers",
                "marker": {"symbol": drawn.symbol, "size": 7, "color": drawn.colour},
                "customdata": [safe(name) for name in own["lens"]],
                "hovertemplate": "<b>%{customdata}</b><br>MTF50 %{x:.3f}<br>right %{y:.1%}<extra></extra>",
            }
        )
        if (trend := _trend(own)) is not None:
            line = {"color": drawn.colour, "dash": drawn.dash, "width": 1.5}
            x = np.linspace(quality.min(), quality.max(), 60)
            y = np.clip(trend(x), 0, 1)
            drawn_as = {"mode": "lines", "line": line, "showlegend": False, "hoverinfo": "skip"}
            fig.add_trace({**shared, **drawn_as, "x": x.tolist(), "y": y.tolist()})
    return plot(fig, "Accuracy against lens quality")


def _trend(own: pl.DataFrame) -> np.polynomial.Polynomial | None:
    return fit(own["quality"].to_numpy(), own["value"].to_numpy())


def fit(quality: np.ndarray, value: np.ndarray) -> np.polynomial.Polynomial | None:
    """The third-order least-squares curve; none with fewer than five lenses of different quality."""
    if len(np.unique(quality)) < 5:
        return None
    return np.polynomial.Polynomial.fit(quality, value, 3)


def _fields(view: View) -> Html:
    fig = figure(view, "distance from the middle (% of the half field)", "right", yaxis=PERCENT_AXIS)
    rows = view.ask(metrics.lens_field)
    for model in view.models:
        own = rows.filter(pl.col("model") == model).sort("lens_field")
        drawn = pen(view, model)
        low, high = (own[end].to_numpy() for end in ("low", "high"))
        value = own["value"].to_numpy()
        fig.add_trace(
            {
                "type": "scatter",
                "legendgroup": model,
                "name": safe(model),
                "x": (100 * own["lens_field"]).to_list(),
                "y": value.tolist(),
                "error_y": {"array": (high - value).tolist(), "arrayminus": (value - low).tolist(), "thickness": 1, "width": 3},
                "mode": "lines+markers",
                "line": {"color": drawn.colour, "dash": drawn.dash, "width": 2.2},
                "marker": {"symbol": drawn.symbol, "size": 7, "color": drawn.colour},
                "hovertemplate": "<b>%{fullData.name}</b><br>%{x:.0f} % of the field<br>right %{y:.1%}<extra></extra>",
            }
        )
    return plot(fig, "Accuracy against distance from the middle of the picture")


def _related(view: View) -> Html:
    rows = view.ask(metrics.lens_correlation).to_dicts()
    said = [[r["model"], _number(r["value"]), _number(r["tau"]), _number(r["p"]), str(r["n"])] for r in rows]
    caption = "Lens quality and accuracy: Pearson's correlation, Kendall's tau, the chance of the former without a relation"
    return grid(["", "Pearson", "Kendall", "p", "lenses"], said, caption=caption) if said else EMPTY


def _number(value: float | None) -> str:
    return DASH if value is None else f"{value:.2g}"
