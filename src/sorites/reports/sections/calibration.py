"""The section on calibration: confidence against accuracy, on clean and on shifted pictures."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.parts.charts import PERCENT_AXIS, figure, legend, pen, plot
from sorites.reports.parts.markup import DASH, Html, between, grid, join, percent, safe, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import UNTOUCHED, View

BINS = (10, 5, 4, 3, 2, 1)
"""The numbers of bins to choose from: the first at which half of the bins hold enough pictures."""
ENOUGH = 10
"""So many pictures are enough for one bin."""


@add_section(order=60)
def calibration(view: View) -> Section | None:
    """Reliability curves of clean and of shifted pictures, and the calibration error per shift."""
    errors = view.compute(metrics.calibration_error, by=("model", "shift"))
    if not errors.height:
        return None
    kinds = [("Clean pictures", UNTOUCHED), ("Shifted pictures", ~UNTOUCHED)]
    charts = [
        _reliability(view, title, rows)
        for title, where in kinds
        if (rows := binned(view, where)).height > rows["model"].n_unique()
    ]
    lead = "A calibrated model is right 70 % of the time when its confidence is 70 %"
    if charts:
        lead += ": its points lie on the diagonal. Points below it mean that the model is overconfident. Few pictures are pooled"
        lead += " into few bins, and with too few for two bins there is no curve"
    lead += ". The table shows the expected calibration error (15 bins); 0 is best."
    table = tag("article", _table(view, errors), cls="card")
    drawn = [legend(view), tag("div", *charts, cls="cards two")] if charts else []
    body = join([*drawn, tag("div", table, cls="below" if drawn else None)])
    return Section("Does the model know when it is wrong?", body, "Calibration", lead)


def binned(view: View, where: pl.Expr) -> pl.DataFrame:
    """Return the reliability of these pictures in as many bins as they fill."""
    for bins in BINS:
        rows = view.compute(metrics.reliability, where, bins=bins)
        if rows.is_empty() or float(rows["n"].median() or 0) >= ENOUGH:  # type: ignore[arg-type]
            break
    return rows


def _reliability(view: View, title: str, rows: pl.DataFrame) -> Html:
    axis = {**PERCENT_AXIS, "showgrid": True}
    fig = figure(view, "confidence", "accuracy", xaxis=axis, yaxis=axis)
    fig.add_shape(type="line", x0=0, y0=0, x1=1, y1=1, line={"color": "#8a8a8a", "width": 1, "dash": "dot"}, layer="below")
    for model in view.models:
        model_rows = rows.filter(pl.col("model") == model)
        if model_rows.height:
            fig.add_trace(_curve(view, model, model_rows))
    return tag("article", tag("h3", title), plot(fig, f"{title}: accuracy against confidence"), cls="card")


def _curve(view: View, model: str, rows: pl.DataFrame) -> dict[str, Any]:
    drawn = pen(view, model)
    above, below = rows["high"] - rows["value"], rows["value"] - rows["low"]
    return {
        "type": "scatter",
        "name": safe(model),
        "legendgroup": model,
        "x": rows["conf"].to_list(),
        "y": rows["value"].to_list(),
        "error_y": {
            "array": above.to_list(),
            "arrayminus": below.to_list(),
            "symmetric": False,
            "thickness": 1,
            "width": 0,
            "color": drawn.faint(0.5),
        },
        "customdata": rows["n"].to_list(),
        "mode": "lines+markers",
        "line": {"color": drawn.colour, "width": 1.8, "dash": drawn.dash},
        "marker": {"symbol": drawn.symbol, "size": 7, "color": drawn.colour},
        "hovertemplate": "<b>%{fullData.name}</b><br>confidence %{x:.1%}<br>accuracy %{y:.1%}"
        "<br>n = %{customdata}<extra></extra>",
    }


def _table(view: View, errors: pl.DataFrame) -> Html:
    clean = view.compute(metrics.calibration_error, UNTOUCHED, by=("model", "shift"))
    cells = {(row["model"], row["shift"]): row for row in errors.to_dicts() + clean.to_dicts()}
    shifts = [*clean["shift"].unique(), *(shift for shift in view.shifts if any(key[1] == shift for key in cells))]
    models = [model for model in view.models if any(key[0] == model for key in cells)]
    lines = [[model, *(_cell(cells.get((model, shift))) for shift in shifts)] for model in models]
    return grid(["", *shifts], lines, caption="Expected calibration error, with its 95 % interval and n")


def _cell(row: dict[str, Any] | None) -> object:
    if row is None:
        return DASH
    interval = between(percent(row["low"]), percent(row["high"]))
    return join([percent(row["value"]), tag("small", f"{interval}, n = {row['n']}")])
