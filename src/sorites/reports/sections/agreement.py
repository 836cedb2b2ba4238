"""Sections that compare models: do shifts agree on their order, does the ImageNet-C disk matter, does size help?"""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.parts.charts import PERCENT_AXIS, figure, pen, plot
from sorites.reports.parts.markup import DASH, Html, between, grid, join, number, percent, safe, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import UNTOUCHED, View

DISK = "defocus_disk"
FEWEST = 4
"""With fewer models than this, an order means little and the section is absent."""


@add_section(order=45)
def agreement(view: View) -> Section | None:
    """Kendall's tau between shifts as a matrix with its p-values; absent with fewer than four models or two shifts."""
    if len(view.models) < FEWEST or len(view.shifts) < 2:
        return None
    pairs = view.compute(metrics.rank_agreement).filter(pl.col("value").is_not_null())
    if not pairs.height:
        return None
    lead = (
        "Each cell is Kendall's tau-b between the orders of the models under two shifts: 1 is the same order, 0 is no relation, "
        f"−1 is the reverse order. The small figures are p-values against no relation, over {len(view.models)} models."
    )
    return Section(
        "Do the shifts agree on the order of the models?", tag("article", _matrix(view, pairs), cls="card"), "Agreement", lead
    )


def _matrix(view: View, pairs: pl.DataFrame) -> Html:
    cells = {(row["shift"], row["other"]): row for row in pairs.to_dicts()}
    names = ["clean", *view.shifts]
    lines = [[one, *(_tau(cells.get((one, two)), one == two) for two in names)] for one in names]
    return grid(["", *names], lines, caption="Kendall's tau-b, with its p-value")


def _tau(row: dict[str, Any] | None, same: bool) -> object:
    if row is None:
        return DASH
    return number(row["value"], 2) if same else join([number(row["value"], 2), tag("small", f"p = {number(row['p'], 2)}")])


@add_section(order=46)
def optics(view: View) -> Section | None:
    """Averages over the optical shifts with and without the disk; absent unless the run has the disk and other optical shifts."""
    others = [name for name in view.shifts if name in OPTICAL]
    if DISK not in view.shifts or not others:
        return None
    means = view.compute(metrics.mean_accuracy, by=("model", "shift")).drop_nulls("value")
    if means.is_empty():
        return None
    cells = {(row["model"], row["shift"]): row for row in means.to_dicts()}
    kept = {
        "without the disk": pl.col("shift").is_in(others),
        "with the disk": pl.col("shift").is_in([*others, DISK]),
    }
    pooled = {name: _by_model(view.compute(metrics.mean_accuracy, where)) for name, where in kept.items()}
    clean = _by_model(view.compute(metrics.accuracy, UNTOUCHED, by=("model",)))
    lines = [
        [
            model,
            _share(clean.get(model)),
            *(_share(cells.get((model, shift))) for shift in [*others, DISK]),
            *(_share(pooled[name].get(model)) for name in kept),
        ]
        for model in view.models
    ]
    body = grid(["", "clean", *others, DISK, *kept], lines, caption="Mean accuracy over severities, with its 95 % interval")
    lead = "Published averages over lens blurs differ in whether they include the disk blur of ImageNet-C; here are both."
    return Section("Lens blur with and without the disk", tag("article", body, cls="card"), "Lens blur", lead)


OPTICAL = ("astigmatism", "coma", "defocus_spherical", "trefoil")


def _by_model(frame: pl.DataFrame) -> dict[str, dict[str, Any]]:
    return {row["model"]: row for row in frame.to_dicts()}


def _share(row: dict[str, Any] | None) -> object:
    if row is None or row["value"] is None:
        return DASH
    return join([percent(row["value"]), tag("small", between(percent(row["low"]), percent(row["high"])))])


@add_section(order=47)
def size(view: View) -> Section | None:
    """Accuracy against the number of parameters, where it is known for at least three models of different size."""
    sizes = {name: n for run in view.runs for name, n in (run.info.get("parameters") or {}).items() if n}
    if len({sizes[m] for m in view.models if m in sizes}) < 3 or not view.shifts:
        return None
    across = {"type": "log", "title": {"text": "parameters (millions)"}}
    fig = figure(view, "parameters (millions)", "accuracy", xaxis=across, yaxis=dict(PERCENT_AXIS))
    clean = _by_model(view.compute(metrics.accuracy, UNTOUCHED, by=("model",)))
    shifted = _by_model(view.compute(metrics.mean_accuracy))
    for model in (m for m in view.models if m in sizes):
        for row, hollow in ((clean.get(model), True), (shifted.get(model), False)):
            if row is not None and row["value"] is not None:
                fig.add_trace(_dot(view, model, sizes[model] / 1e6, row, hollow))
    lead = "Hollow symbols are clean pictures, filled ones are the mean over the shifts. Bars are 95 % intervals."
    body = tag("article", plot(fig, "Accuracy against the number of parameters"), cls="card")
    return Section("Are larger models more robust?", body, "Size", lead)


def _dot(view: View, model: str, millions: float, row: dict[str, Any], hollow: bool) -> dict[str, Any]:
    drawn = pen(view, model)
    hover = f"{'clean' if hollow else 'under shift'} %{{y:.1%}}<br>%{{x:.3~g}} M parameters<br>n = {row['n']}"
    return {
        "type": "scatter",
        "mode": "markers",
        "name": safe(model),
        "legendgroup": model,
        "showlegend": not hollow,
        "x": [millions],
        "y": [row["value"]],
        "error_y": {
            "array": [row["high"] - row["value"]],
            "arrayminus": [row["value"] - row["low"]],
            "color": drawn.colour,
            "width": 0,
        },
        "marker": {"symbol": f"{drawn.symbol}-open" if hollow else drawn.symbol, "size": 10, "color": drawn.colour},
        "hovertemplate": f"<b>%{{fullData.name}}</b><br>{hover}<extra></extra>",
    }
