"""Sections that compare models: agreement of shifts, lens blur, size, ranks, and accuracy on the line."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.components.charts import (
    PERCENT_AXIS,
    axis_name,
    card,
    figure,
    pen,
    plot,
    severity_labels,
)
from sorites.reports.components.markup import (
    DASH,
    Html,
    between,
    grid,
    join,
    number,
    percent,
    points,
    safe,
    tag,
)
from sorites.reports.section import Section, add_section, multiples
from sorites.reports.view import UNTOUCHED, View

DISK = "defocus_disk"
# With fewer models, rankings and lines are not meaningful and the sections are absent.
MIN_MODELS = 4


@add_section(order=45)
def agreement(view: View) -> Section | None:
    """Kendall's tau between shifts with p-values; absent with fewer than four models or two shifts."""
    if len(view.models) < MIN_MODELS or len(view.shifts) < 2:
        return None
    pairs = view.compute(metrics.rank_agreement).filter(pl.col("value").is_not_null())
    if not pairs.height:
        return None
    lead = (
        "Each cell is Kendall's tau-b between the rankings of the models under two shifts: 1 is the same"
        " ranking, 0 is no association, −1 is the reverse. The small numbers are p-values against no"
        f" association, over {len(view.models)} models."
    )
    return Section(
        "Do the shifts agree on the ranking of the models?",
        tag("article", _matrix(view, pairs), cls="card"),
        "Agreement",
        lead,
    )


def _matrix(view: View, pairs: pl.DataFrame) -> Html:
    cells = {(row["shift"], row["other"]): row for row in pairs.to_dicts()}
    names = ["clean", *view.shifts]
    lines = [
        [
            row_name,
            *(_tau(cells.get((row_name, column_name)), row_name == column_name) for column_name in names),
        ]
        for row_name in names
    ]
    return grid(["", *names], lines, caption="Kendall's tau-b, with its p-value")


def _tau(row: dict[str, Any] | None, same: bool) -> object:
    if row is None:
        return DASH
    return (
        number(row["value"], 2)
        if same
        else join([number(row["value"], 2), tag("small", f"p = {number(row['p'], 2)}")])
    )


@add_section(order=46)
def optics(view: View) -> Section | None:
    """Means over optical shifts with and without the disk; absent unless the run has both."""
    others = [name for name in view.shifts if name in OPTICAL]
    if DISK not in view.shifts or not others:
        return None
    means = view.compute(metrics.mean_accuracy, by=("model", "shift")).drop_nulls("value")
    if means.is_empty():
        return None
    cells = {(row["model"], row["shift"]): row for row in means.to_dicts()}
    subsets = {
        "without the disk": pl.col("shift").is_in(others),
        "with the disk": pl.col("shift").is_in([*others, DISK]),
    }
    pooled = {name: _by_model(view.compute(metrics.mean_accuracy, where)) for name, where in subsets.items()}
    clean = _by_model(view.compute(metrics.accuracy, UNTOUCHED, by=("model",)))
    lines = [
        [
            model,
            _share(clean.get(model)),
            *(_share(cells.get((model, shift))) for shift in [*others, DISK]),
            *(_share(pooled[name].get(model)) for name in subsets),
        ]
        for model in view.models
    ]
    body = grid(
        ["", "clean", *others, DISK, *subsets],
        lines,
        caption="Mean accuracy over severities, with its 95 % interval",
    )
    lead = (
        "Published averages over lens blurs differ in whether they include the disk blur of ImageNet-C; both"
        " are"
        " shown here."
    )
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
    """Accuracy against the number of parameters; absent without three models of known, different size."""
    sizes = {name: n for record in view.records for name, n in record.parameters.items() if n}
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
    lead = "Hollow symbols are clean images, filled ones the mean over shifts. Bars are 95 % intervals."
    body = tag("article", plot(fig, "Accuracy against the number of parameters"), cls="card")
    return Section("Are larger models more robust?", body, "Size", lead)


def _dot(view: View, model: str, millions: float, row: dict[str, Any], hollow: bool) -> dict[str, Any]:
    model_pen = pen(view, model)
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
            "array": [None if row["high"] is None else row["high"] - row["value"]],
            "arrayminus": [None if row["low"] is None else row["value"] - row["low"]],
            "color": model_pen.colour,
            "width": 0,
        },
        "marker": {
            "symbol": f"{model_pen.symbol}-open" if hollow else model_pen.symbol,
            "size": 10,
            "color": model_pen.colour,
        },
        "hovertemplate": f"<b>%{{fullData.name}}</b><br>{hover}<extra></extra>",
    }


# --- Ranks

# Models that share a rank are drawn STEP ranks apart, and within SPREAD of a rank.
STEP, SPREAD = 0.24, 0.8


@add_section(order=40)
def ranks(view: View) -> Section | None:
    """One bump chart per shift; absent with fewer than two models, or if they have no common samples."""
    if len(view.models) < 2 or not view.comparable:
        return None
    ranked = view.compute(metrics.rank).filter(
        pl.col("value").is_not_null() & pl.col("severity").is_not_null()
    )
    by_shift = {
        shift: rows for shift in view.shifts if (rows := ranked.filter(pl.col("shift") == shift)).height
    }
    tied = [shift for shift, rows in by_shift.items() if rows["value"].n_unique() == 1]
    cards = [_card(view, shift, rows) for shift, rows in by_shift.items() if shift not in tied]
    lead = (
        "The best model is at the top. A model is ranked below another only if their paired difference on the"
        " same images is clear: its interval over samples, corrected for all pairs of models, excludes 0."
        " Other models share a rank and are drawn close together, the more accurate one above."
        + (f" All models share one rank at every severity of {', '.join(tied)}." if tied else "")
    )
    return multiples(view, cards, "Does the ranking of the models change?", "Ranks", lead)


def _card(view: View, shift: str, rows: pl.DataFrame) -> Html:
    severities = sorted(rows["severity"].unique())
    last = len(view.models)
    steps = {"range": [last + 0.45, 0.55], "tickvals": list(range(1, last + 1)), "showgrid": True}
    across = {
        **severity_labels(view, shift, severities),
        "categoryorder": "array",
        "categoryarray": [number(severity) for severity in severities],
    }
    fig = figure(view, axis_name(view, shift), "rank", yaxis=steps, xaxis=across)
    fig.update_layout(height=fig.layout.height + 16 * max(0, last - 4))
    placed = _apart(rows, view.models)
    for model in view.models:
        model_rows = placed.filter(pl.col("model") == model).sort("severity")
        if model_rows.height:
            fig.add_trace(_bump(view, model, model_rows))
    return card(shift, plot(fig, f"Rank of each model against the severity of {shift}"))


def _apart(rows: pl.DataFrame, models: tuple[str, ...]) -> pl.DataFrame:
    """Add the column ``at``: the rank, offset if several models share it so that each is visible.

    Tied models are sorted by accuracy, and equally accurate ones in the order of the suite.
    """
    order = pl.col("model").replace_strict(list(models), list(range(len(models))), return_dtype=pl.Int64)
    shared = ("severity", "value")
    best_first = pl.struct(-pl.col("accuracy"), order.alias("order")).rank("ordinal")
    offset = best_first.over(shared).cast(pl.Float64) - (pl.len().over(shared) + 1) / 2
    step = (SPREAD / (pl.len().over(shared) - 1).clip(1)).clip(upper_bound=STEP)
    return rows.with_columns(at=pl.col("value") + offset * step)


def _bump(view: View, model: str, rows: pl.DataFrame) -> dict[str, object]:
    model_pen = pen(view, model)
    return {
        "type": "scatter",
        "name": safe(model),
        "legendgroup": model,
        "x": [number(s) for s in rows["severity"]],
        "y": rows["at"].to_list(),
        "customdata": [list(hover) for hover in rows.select("value", "accuracy", "n").iter_rows()],
        "mode": "lines+markers",
        "line": {"color": model_pen.colour, "width": 2.6, "dash": model_pen.dash},
        "marker": {"symbol": model_pen.symbol, "size": 11, "color": model_pen.colour},
        "hovertemplate": (
            "<b>%{fullData.name}</b><br>severity %{x}<br>rank %{customdata[0]}"
            "<br>accuracy %{customdata[1]:.1%}<br>n = %{customdata[2]}<extra></extra>"
        ),
    }


# --- Accuracy on the line


@add_section(order=48)
def on_line(view: View) -> Section | None:
    """Slope, r and p per shift and severity, and gains over the line; absent below four models."""
    if len(view.models) < MIN_MODELS:
        return None
    lines = view.compute(metrics.on_the_line).filter(
        pl.col("value").is_not_null() & pl.col("severity").is_not_null()
    )
    if not lines.height:
        return None
    lead = (
        f"A line is fitted through {len(view.models)} models, with clean accuracy on the x-axis and accuracy"
        " under"
        " the shift on the y-axis. A slope above 1 means that models with higher clean accuracy are further"
        " ahead under the shift. The gain of a model is its accuracy minus that of the line."
    )
    body = join(
        [
            tag("article", _slopes(lines), cls="card"),
            tag("div", tag("article", _gains(view), cls="card"), cls="below"),
        ]
    )
    return Section("Does accuracy under shift follow clean accuracy?", body, "On the line", lead)


def _slopes(lines: pl.DataFrame) -> Html:
    rows = [
        [r["shift"], number(r["severity"]), _estimate(r), number(r["r"], 2), number(r["p"], 2), r["n"]]
        for r in lines.to_dicts()
    ]
    return grid(
        ["shift", "severity", "slope", "r", "p", "models"],
        rows,
        caption="Least-squares lines over models, with the 95 % interval of the slope",
    )


def _estimate(row: dict[str, Any]) -> object:
    if row["low"] is None:
        return number(row["value"])
    return join([number(row["value"]), tag("small", f"{number(row['low'])} to {number(row['high'])}")])


def _gains(view: View) -> Html:
    gains = view.compute(metrics.line_gain, by=("model", "shift"))
    cells = {(row["model"], row["shift"]): row["value"] for row in gains.to_dicts()}
    shifts = [name for name in view.shifts if any(key[1] == name for key in cells)]
    lines = [[model, *(_gain(cells.get((model, shift))) for shift in shifts)] for model in view.models]
    return grid(["", *shifts], lines, caption="Gain over the line, as the mean over severities")


def _gain(value: float | None) -> str:
    return DASH if value is None else points(value)
