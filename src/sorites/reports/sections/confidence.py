"""Sections on confidence: risk-coverage curves for abstaining, and calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from sorites import metrics
from sorites.metrics.abstention import CONFIDENCE
from sorites.reports.components.charts import (
    NONE,
    PERCENT_AXIS,
    Dot,
    Key,
    dot_chart,
    figure,
    heat,
    legend,
    pen,
    plot,
    same,
    scale,
    shaded,
)
from sorites.reports.components.markup import (
    DASH,
    Html,
    between,
    count,
    folded,
    grid,
    join,
    percent,
    safe,
    tag,
)
from sorites.reports.components.scorers import MAX_LINES, chart, estimate, scorers
from sorites.reports.section import Section, add_section
from sorites.reports.view import UNTOUCHED, View

TENTHS = 10


@add_section(order=64)
def abstain(view: View) -> Section | None:
    """Risk-coverage curves per model, or a shaded table for many scorers, and the areas under them."""
    areas = view.compute(metrics.aurc)
    mixed = areas.filter((pl.col("risk") > 0) & (pl.col("risk") < 1))
    cards = [
        card
        for model in view.models
        if (scorer_rows := mixed.filter(pl.col("model") == model)).height
        for card in _cards(view, scorer_rows)
    ]
    if not cards:
        return None
    lead = (
        "A model that may abstain answers the least OOD images first. On the left it answers few images, and"
        " a"
        " useful score leaves few errors among them; on the right it answers all. A random score has the same"
        " error everywhere."
    )
    if CONFIDENCE in areas["scorer"]:
        lead += (
            " Models without OOD scores are ranked by their confidence (the scorer msp), shown as"
            f" {CONFIDENCE}."
        )
    body = tag("div", tag("div", *cards, cls="cards two wide"), _table(view, areas), cls="stack")
    return Section("When should the model abstain?", body, "Abstaining", lead)


def _names(view: View) -> tuple[str, ...]:
    """Return the scorers of the section: those of the table, and confidence where it replaces them."""
    return tuple(dict.fromkeys([*scorers(view), *view.compute(metrics.aurc)["scorer"]]))


def _cards(view: View, areas: pl.DataFrame) -> list[Html]:
    model = areas["model"][0]
    if areas.height <= MAX_LINES:
        return [tag("article", tag("h3", model), _curves(view, model), cls="card")]
    best = areas.sort("value", maintain_order=True)
    parts = {"mean over all coverages": _dots(model, best), "by coverage": _coverages(view, best)}
    return [tag("article", tag("h3", f"{model} · {what}"), part, cls="card") for what, part in parts.items()]


def _curves(view: View, model: str) -> Html:
    names = _names(view)
    rows = view.compute(metrics.risk_coverage).filter(pl.col("model") == model)
    lines = {
        name: _line(scorer_rows)
        for name in names
        if (scorer_rows := rows.filter(pl.col("scorer") == name)).height
    }
    risk = rows.filter(pl.col("coverage") == 1)["value"].mean()
    top = max(float(rows["value"].max() or 0), 0.05) * 1.08  # type: ignore[arg-type]
    axes = {"xaxis": {**PERCENT_AXIS, "showgrid": True}, "yaxis": {"range": [0, top], "tickformat": ".0%"}}
    random = {
        "x": [0, 1],
        "y": [risk, risk],
        "mode": "lines",
        "line": {"color": "#8a8a8a", "width": 1, "dash": "dot"},
    }
    return chart(
        view,
        [*names, "random"],
        ("images answered", "error"),
        {**lines, "random": {**random, "hoverinfo": "skip"}},
        label=f"Error against share answered, {model}",
        **axes,
    )


def _line(rows: pl.DataFrame) -> dict[str, Any]:
    hover = rows.select("n", "low", "high").iter_rows()
    return {
        "x": rows["coverage"].to_list(),
        "y": rows["value"].to_list(),
        "mode": "lines",
        "customdata": [[n, between(percent(low), percent(high))] for n, low, high in hover],
        "hovertemplate": (
            "<b>%{fullData.name}</b><br>answered %{x:.0%}, n = %{customdata[0]}<br>error %{y:.1%}"
            "<br>95 %: %{customdata[1]}<extra></extra>"
        ),
    }


def _dots(model: str, areas: pl.DataFrame) -> Html:
    """Draw the areas with their intervals, between the best possible and a random score."""
    dots = {row["scorer"]: {"AURC": Dot.of(row, f"n = {row['n']}")} for row in areas.to_dicts()}
    lines = {
        "the best possible score": float(areas["best"].min()),  # type: ignore[arg-type]
        "a random score": float(areas["risk"].max()),  # type: ignore[arg-type]
    }
    ends = [end for scorer_rows in dots.values() for dot in scorer_rows.values() for end in dot.ends()]
    label = f"Area under the risk-coverage curve of each scorer, {model}: {', '.join(dots)}"
    drawn = dot_chart(
        dots, {"AURC": Key(0, f"{same(areas['n'])} images")}, scale([*ends, *lines.values()]), lines, label
    )
    return join(
        [
            tag(
                "p",
                "Area under the risk-coverage curve in %, with 95 % intervals; the lowest is best and comes"
                " first.",
                cls="about",
            ),
            drawn,
        ]
    )


def _coverages(view: View, areas: pl.DataFrame) -> Html:
    """Return the error at each tenth of coverage, shaded relative to the error on all images."""
    risks = dict(areas.select("scorer", "risk").iter_rows())
    rows = view.compute(metrics.risk_coverage, points=TENTHS).filter(pl.col("model") == areas["model"][0])
    cells = {(row["scorer"], round(TENTHS * row["coverage"])): row for row in rows.to_dicts()}
    steps = range(1, TENTHS + 1)
    lines = [(name, [_cell(cells.get((name, step)), risk) for step in steps]) for name, risk in risks.items()]
    counts = {step: [row["n"] for (_, at), row in cells.items() if at == step] for step in steps}
    heads = [join([f"{100 * step // TENTHS}", tag("small", same(counts[step]))]) for step in steps]
    caption = (
        "Error in % among the least OOD images, with n; blue is fewer errors than a random score, orange more"
    )
    return heat("answered, %\u00a0→", heads, lines, caption, named=True)


def _cell(row: Mapping[str, Any] | None, risk: float) -> Html:
    if row is None:
        return NONE
    interval = f"95 %: {between(percent(row['low']), percent(row['high']))}"
    hover = (
        f"{row['scorer']}, {percent(row['coverage'], 0)} answered: {percent(row['value'])} error, {interval},"
        f" n = {row['n']}"
    )
    return shaded(f"{100 * row['value']:.0f}", (risk - row["value"]) / risk, hover)


def _table(view: View, areas: pl.DataFrame) -> Html:
    cells = {(row["model"], row["scorer"]): row for row in areas.to_dicts()}
    lines = [
        [model, scorer, estimate(row), percent(row["best"]), percent(row["risk"]), count(row["n"])]
        for model in view.models
        for scorer in _names(view)
        if (row := cells.get((model, scorer)))
    ]
    head = ["", "scorer", "AURC", "best possible", "random score", "images"]
    caption = (
        "Area under the risk-coverage curve (AURC): the mean error over all coverages, with its 95 % interval"
    )
    return folded(
        "Area under the risk-coverage curve (AURC) of each scorer",
        grid(head, lines, text=2, caption=caption),
        len(lines),
    )


# Candidate numbers of bins; the first with enough images in half of the bins is used.
BINS = (10, 5, 4, 3, 2, 1)
# Number of images that are enough for one bin.
IMAGES_PER_BIN = 10


@add_section(order=60)
def calibration(view: View) -> Section | None:
    """Reliability curves of clean and shifted images, and the calibration error per shift."""
    errors = view.compute(metrics.calibration_error, by=("model", "shift"))
    if not errors.height:
        return None
    kinds = [("Clean images", UNTOUCHED), ("Shifted images", ~UNTOUCHED)]
    charts = [
        _reliability(view, title, rows)
        for title, where in kinds
        if (rows := binned(view, where)).height > rows["model"].n_unique()
    ]
    lead = "A calibrated model is correct 70 % of the time when its confidence is 70 %"
    if charts:
        lead += (
            ": its points are on the diagonal. Points below it mean that the model is overconfident. Few"
            " images"
            " are pooled into few bins, and with too few for two bins there is no curve"
        )
    lead += (
        ". The table shows the expected calibration error (15 bins); 0 is best. Random gaps raise it: a"
        " perfectly calibrated model would be expected to show the second number."
    )
    table = tag("article", _calibration_table(view, errors), cls="card")
    drawn = [legend(view), tag("div", *charts, cls="cards two")] if charts else []
    body = join([*drawn, tag("div", table, cls="below" if drawn else None)])
    return Section("Does the model know when it is wrong?", body, "Calibration", lead)


def binned(view: View, where: pl.Expr) -> pl.DataFrame:
    """Return the reliability of these images, with as many bins as they fill."""
    for bins in BINS:
        rows = view.compute(metrics.reliability, where, bins=bins)
        if rows.is_empty() or float(rows["n"].median() or 0) >= IMAGES_PER_BIN:  # type: ignore[arg-type]
            break
    return rows


def _reliability(view: View, title: str, rows: pl.DataFrame) -> Html:
    axis = {**PERCENT_AXIS, "showgrid": True}
    fig = figure(view, "confidence", "accuracy", xaxis=axis, yaxis=axis)
    fig.add_shape(
        type="line",
        x0=0,
        y0=0,
        x1=1,
        y1=1,
        line={"color": "#8a8a8a", "width": 1, "dash": "dot"},
        layer="below",
    )
    for model in view.models:
        model_rows = rows.filter(pl.col("model") == model)
        if model_rows.height:
            fig.add_trace(_curve(view, model, model_rows))
    return tag("article", tag("h3", title), plot(fig, f"{title}: accuracy against confidence"), cls="card")


def _curve(view: View, model: str, rows: pl.DataFrame) -> dict[str, Any]:
    model_pen = pen(view, model)
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
            "color": model_pen.faint(0.5),
        },
        "customdata": rows["n"].to_list(),
        "mode": "lines+markers",
        "line": {"color": model_pen.colour, "width": 1.8, "dash": model_pen.dash},
        "marker": {"symbol": model_pen.symbol, "size": 7, "color": model_pen.colour},
        "hovertemplate": (
            "<b>%{fullData.name}</b><br>confidence %{x:.1%}<br>accuracy %{y:.1%}"
            "<br>n = %{customdata}<extra></extra>"
        ),
    }


def _calibration_table(view: View, errors: pl.DataFrame) -> Html:
    clean = view.compute(metrics.calibration_error, UNTOUCHED, by=("model", "shift"))
    cells = {(row["model"], row["shift"]): row for row in errors.to_dicts() + clean.to_dicts()}
    shifts = [
        *clean["shift"].unique(),
        *(shift for shift in view.shifts if any(key[1] == shift for key in cells)),
    ]
    models = [model for model in view.models if any(key[0] == model for key in cells)]
    lines = [[model, *(_calibration_cell(cells.get((model, shift))) for shift in shifts)] for model in models]
    caption = "Expected calibration error, that of a calibrated model, and the number n of images"
    return grid(["", *shifts], lines, caption=caption)


def _calibration_cell(row: dict[str, Any] | None) -> object:
    if row is None:
        return DASH
    return join([percent(row["value"]), tag("small", f"{percent(row['chance'])}, n = {row['n']}")])
