"""The section on lenses: accuracy against sharpness with its trend and in order, over the field, and the field map."""

from __future__ import annotations

import numpy as np
import polars as pl

from sorites import metrics
from sorites.reports.parts.charts import PERCENT_AXIS, figure, legend, pen, plot
from sorites.reports.parts.field_map import field_map
from sorites.reports.parts.lens_ranking import lens_ranking
from sorites.reports.parts.markup import DASH, EMPTY, Html, grid, join, number, safe, tag
from sorites.reports.parts.trend import fit
from sorites.reports.section import Section, add_section
from sorites.reports.view import View


@add_section(order=36)
def lenses(view: View) -> Section | None:
    """A scatter plot of lenses, a curve over field positions, correlations, and a map of rings; absent without lenses."""
    each = view.compute(metrics.lens_accuracy).drop_nulls(["value", "quality"])
    if each.is_empty():
        return None
    curve = " The curve is a third-order fit." if any(_trend(part) is not None for part in each.partition_by("model")) else ""
    lead = (
        "Each point is a lens. Its quality is the mean MTF50 of its blur over the field, and its bar is the standard error of "
        f"the accuracy over the field.{curve} Most lenses are less sharp further from the middle."
    )
    cards = [
        tag("article", tag("h3", "Against lens quality"), _scatter(view, each), cls="card"),
        tag("article", tag("h3", "Against distance from the middle"), _fields(view), cls="card"),
    ]
    rings = field_map(view, view.compute(metrics.lens_field))
    parts = (lens_ranking(view, each, "accuracy"), rings, _related(view))
    below = [tag("div", tag("article", part, cls="card"), cls="below") for part in parts if part]
    body = join([legend(view), tag("div", *cards, cls="cards two"), *below])
    return Section("How good must the lens be?", body, "Lenses", lead)


def _scatter(view: View, each: pl.DataFrame) -> Html:
    fig = figure(view, "lens quality (MTF50, cycles/px)", "accuracy", yaxis=PERCENT_AXIS)
    for model in view.models:
        model_rows = each.filter(pl.col("model") == model).sort("quality")
        if model_rows.is_empty():
            continue
        drawn, quality, value = pen(view, model), model_rows["quality"].to_numpy(), model_rows["value"].to_numpy()
        shared = {"legendgroup": model, "name": safe(model), "type": "scatter"}
        fig.add_trace(
            {
                **shared,
                "x": quality.tolist(),
                "y": value.tolist(),
                "error_y": {"array": model_rows["error"].fill_null(0.0).to_list(), "thickness": 1, "width": 0},
                "mode": "markers",
                "marker": {"symbol": drawn.symbol, "size": 7, "color": drawn.colour},
                "customdata": [safe(name) for name in model_rows["lens"]],
                "hovertemplate": "<b>%{customdata}</b><br>MTF50 %{x:.3f}<br>accuracy %{y:.1%}<extra></extra>",
            }
        )
        if (trend := _trend(model_rows)) is not None:
            line = {"color": drawn.colour, "dash": drawn.dash, "width": 1.5}
            x = np.linspace(quality.min(), quality.max(), 60)
            y = np.clip(trend(x), 0, 1)
            drawn_as = {"mode": "lines", "line": line, "showlegend": False, "hoverinfo": "skip"}
            fig.add_trace({**shared, **drawn_as, "x": x.tolist(), "y": y.tolist()})
    return plot(fig, "Accuracy against lens quality")


def _trend(model_rows: pl.DataFrame) -> np.polynomial.Polynomial | None:
    return fit(model_rows["quality"].to_numpy(), model_rows["value"].to_numpy())


def _fields(view: View) -> Html:
    fig = figure(view, "distance from the middle (% of the half field)", "accuracy", yaxis=PERCENT_AXIS)
    rows = view.compute(metrics.lens_field)
    for model in view.models:
        model_rows = rows.filter(pl.col("model") == model).sort("lens_field")
        drawn = pen(view, model)
        low, high = (model_rows[end].to_numpy() for end in ("low", "high"))
        value = model_rows["value"].to_numpy()
        fig.add_trace(
            {
                "type": "scatter",
                "legendgroup": model,
                "name": safe(model),
                "x": (100 * model_rows["lens_field"]).to_list(),
                "y": value.tolist(),
                "error_y": {"array": (high - value).tolist(), "arrayminus": (value - low).tolist(), "thickness": 1, "width": 3},
                "mode": "lines+markers",
                "line": {"color": drawn.colour, "dash": drawn.dash, "width": 2.2},
                "marker": {"symbol": drawn.symbol, "size": 7, "color": drawn.colour},
                "hovertemplate": "<b>%{fullData.name}</b><br>%{x:.0f} % of the field<br>accuracy %{y:.1%}<extra></extra>",
            }
        )
    return plot(fig, "Accuracy against distance from the middle of the picture")


def _related(view: View) -> Html:
    rows = view.compute(metrics.lens_correlation).drop_nulls("value").to_dicts()
    lines = [[r["model"], _number(r["value"]), _number(r["tau"]), _number(r["p"]), str(r["n"])] for r in rows]
    caption = "Correlation of lens quality and accuracy over lenses: Pearson's r with its p-value, and Kendall's tau"
    return grid(["", "Pearson", "Kendall", "p (Pearson)", "lenses"], lines, caption=caption) if lines else EMPTY


def _number(value: float | None) -> str:
    return DASH if value is None else "< 0.001" if 0 <= value < 0.001 else number(value, 2)
