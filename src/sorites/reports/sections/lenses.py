"""Sections on lenses: accuracy or mAP against sharpness, over the field, and lens rankings."""

from __future__ import annotations

import numpy as np
import polars as pl

from sorites import metrics
from sorites.reports.components.charts import PERCENT_AXIS, figure, fit, legend, pen, plot
from sorites.reports.components.lenses import MAP, field_map, lens_ranking
from sorites.reports.components.markup import DASH, EMPTY, Html, grid, join, number, safe, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import View, box_models


@add_section(order=36)
def lenses(view: View) -> Section | None:
    """A scatter plot of lenses, a curve over the field, correlations and maps; absent without lenses."""
    each = view.compute(metrics.lens_accuracy).drop_nulls(["value", "quality"])
    if each.is_empty():
        return None
    curve = (
        " The curve is a cubic fit."
        if any(_trend(part) is not None for part in each.partition_by("model"))
        else ""
    )
    lead = (
        "Each point is a lens. Its quality is the mean MTF50 of its blur over the field, and its bar is the"
        f" standard error of the accuracy over the field.{curve} Most lenses are less sharp further from the"
        " centre."
    )
    cards = [
        tag("article", tag("h3", "Against lens quality"), _scatter(view, each), cls="card"),
        tag("article", tag("h3", "Against distance from the centre"), _fields(view), cls="card"),
    ]
    rings = field_map(view, view.compute(metrics.lens_field))
    parts = (lens_ranking(view, each, "accuracy"), rings, _correlations(view))
    below = [tag("div", tag("article", part, cls="card"), cls="below") for part in parts if part]
    body = join([legend(view), tag("div", *cards, cls="cards two"), *below])
    return Section("How good must the lens be?", body, "Lenses", lead)


def _scatter(view: View, each: pl.DataFrame) -> Html:
    fig = figure(view, "lens quality (MTF50, cycles/px)", "accuracy", yaxis=PERCENT_AXIS)
    for model in view.models:
        model_rows = each.filter(pl.col("model") == model).sort("quality")
        if model_rows.is_empty():
            continue
        model_pen = pen(view, model)
        quality, value = model_rows["quality"].to_numpy(), model_rows["value"].to_numpy()
        shared = {"legendgroup": model, "name": safe(model), "type": "scatter"}
        fig.add_trace(
            {
                **shared,
                "x": quality.tolist(),
                "y": value.tolist(),
                "error_y": {
                    "array": model_rows["error"].fill_null(0.0).to_list(),
                    "thickness": 1,
                    "width": 0,
                },
                "mode": "markers",
                "marker": {"symbol": model_pen.symbol, "size": 7, "color": model_pen.colour},
                "customdata": [safe(name) for name in model_rows["lens"]],
                "hovertemplate": "<b>%{customdata}</b><br>MTF50 %{x:.3f}<br>accuracy %{y:.1%}<extra></extra>",
            }
        )
        if (trend := _trend(model_rows)) is not None:
            line = {"color": model_pen.colour, "dash": model_pen.dash, "width": 1.5}
            x = np.linspace(quality.min(), quality.max(), 60)
            y = np.clip(trend(x), 0, 1)
            style = {"mode": "lines", "line": line, "showlegend": False, "hoverinfo": "skip"}
            fig.add_trace({**shared, **style, "x": x.tolist(), "y": y.tolist()})
    return plot(fig, "Accuracy against lens quality")


def _trend(model_rows: pl.DataFrame) -> np.polynomial.Polynomial | None:
    return fit(model_rows["quality"].to_numpy(), model_rows["value"].to_numpy())


def _fields(view: View) -> Html:
    fig = figure(view, "distance from the centre (% of the half field)", "accuracy", yaxis=PERCENT_AXIS)
    rows = view.compute(metrics.lens_field)
    for model in view.models:
        model_rows = rows.filter(pl.col("model") == model).sort("lens_field")
        model_pen = pen(view, model)
        value, low, high = (model_rows[name] for name in ("value", "low", "high"))
        fig.add_trace(
            {
                "type": "scatter",
                "legendgroup": model,
                "name": safe(model),
                "x": (100 * model_rows["lens_field"]).to_list(),
                "y": value.to_list(),
                "error_y": {
                    "array": (high - value).to_list(),
                    "arrayminus": (value - low).to_list(),
                    "thickness": 1,
                    "width": 3,
                },
                "mode": "lines+markers",
                "line": {"color": model_pen.colour, "dash": model_pen.dash, "width": 2.2},
                "marker": {"symbol": model_pen.symbol, "size": 7, "color": model_pen.colour},
                "hovertemplate": (
                    "<b>%{fullData.name}</b><br>%{x:.0f} % of the field<br>accuracy %{y:.1%}<extra></extra>"
                ),
            }
        )
    return plot(fig, "Accuracy against distance from the image centre")


def _correlations(view: View) -> Html:
    rows = view.compute(metrics.lens_correlation).drop_nulls("value").to_dicts()
    lines = [[r["model"], _number(r["value"]), _number(r["tau"]), _number(r["p"]), str(r["n"])] for r in rows]
    caption = (
        "Correlation of lens quality and accuracy over lenses: Pearson's r with its p-value, and"
        " Kendall's tau"
    )
    return (
        grid(["", "Pearson", "Kendall", "p (Pearson)", "lenses"], lines, caption=caption) if lines else EMPTY
    )


def _number(value: float | None) -> str:
    return DASH if value is None else "< 0.001" if 0 <= value < 0.001 else number(value, 2)


# --- Detectors: mAP against lens quality (OpticsBench, figure 12) and over the field (table XIII)

Y_AXIS = {"tickformat": ".0%", "rangemode": "tozero", "nticks": 6}


@add_section(order=37)
def box_lenses(view: View) -> Section | None:
    """A scatter plot of lenses, a curve over field positions and maps; absent without detectors or lenses."""
    if not box_models(view) or not {"lens", "lens_whole"} & set(view.shifts):
        return None
    each, over = (
        view.compute(map_by_lens).drop_nulls(["value", "quality"]),
        view.compute(map_by_field).drop_nulls("value"),
    )
    if each.is_empty():
        return None
    cards = [tag("article", tag("h3", "Against lens quality"), _box_lenses_scatter(view, each), cls="card")]
    if over.height:
        cards.append(
            tag(
                "article",
                tag("h3", "Against distance from the centre"),
                _box_lenses_fields(view, over),
                cls="card",
            )
        )
    lead = (
        "Each point is a lens: its quality is the mean MTF50 of its blur over the field, and its mAP is"
        " computed"
        " on all its images at all field positions, with the 95 % interval over images."
        f"{_curve(each)}"
    )
    parts = (lens_ranking(view, each, MAP), field_map(view, over, MAP))
    below = [tag("div", tag("article", part, cls="card"), cls="below") for part in parts if part]
    body = join([legend(view), tag("div", *cards, cls="cards two"), *below])
    return Section("How good must the lens be for the detector?", body, "Lenses", lead)


def _curve(each: pl.DataFrame) -> str:
    parts = (fit(rows["quality"].to_numpy(), rows["value"].to_numpy()) for rows in each.partition_by("model"))
    return " The curve is a cubic fit." if any(trend is not None for trend in parts) else ""


def map_by_lens(table: pl.LazyFrame) -> pl.DataFrame:
    """Return the mAP of each lens over all its images, with its quality."""
    rows = metrics.with_lenses(table)
    quality = rows.group_by("model", "lens").agg(pl.col("quality").mean()).collect()
    return metrics.map(rows, by=("model", "lens"), resamples=200).join(
        quality, on=["model", "lens"], how="left"
    )


def map_by_field(table: pl.LazyFrame) -> pl.DataFrame:
    """Return the mAP at each field position over all lenses together."""
    return metrics.map(
        metrics.with_lenses(table).filter(pl.col("lens_field").is_not_null()), by=("model", "lens_field")
    )


def _box_lenses_scatter(view: View, each: pl.DataFrame) -> Html:
    fig = figure(view, "lens quality (MTF50, cycles/px)", "mAP", yaxis=Y_AXIS)
    for model in view.models:
        rows = each.filter(pl.col("model") == model).sort("quality")
        if rows.is_empty():
            continue
        _points(fig, view, model, rows, "quality", [safe(name) for name in rows["lens"]], lines=False)
        trend = fit(rows["quality"].to_numpy(), rows["value"].to_numpy())
        if trend is not None:
            x, y = trend.linspace(60)
            style = {
                "mode": "lines",
                "line": {"color": pen(view, model).colour, "width": 1.5},
                "showlegend": False,
            }
            fig.add_trace(
                {
                    "type": "scatter",
                    "legendgroup": model,
                    "x": x.tolist(),
                    "y": y.tolist(),
                    "hoverinfo": "skip",
                    **style,
                }
            )
    return plot(fig, "mAP against lens quality")


def _box_lenses_fields(view: View, over: pl.DataFrame) -> Html:
    fig = figure(view, "distance from the centre (fraction of the half field)", "mAP", yaxis=Y_AXIS)
    for model in view.models:
        rows = over.filter(pl.col("model") == model).sort("lens_field")
        if rows.height:
            _points(
                fig,
                view,
                model,
                rows,
                "lens_field",
                [f"field {value:g}" for value in rows["lens_field"]],
                lines=True,
            )
    return plot(fig, "mAP against distance from the image centre")


def _points(
    fig: object, view: View, model: str, rows: pl.DataFrame, across: str, names: list[str], lines: bool
) -> None:
    model_pen = pen(view, model)
    up, down = ((rows[end] - rows["value"]).abs().fill_null(0.0).to_list() for end in ("high", "low"))
    fig.add_trace(  # type: ignore[attr-defined]
        {
            "type": "scatter",
            "legendgroup": model,
            "name": safe(model),
            "x": rows[across].to_list(),
            "y": rows["value"].to_list(),
            "error_y": {
                "array": up,
                "arrayminus": down,
                "thickness": 1,
                "width": 0,
                "color": model_pen.faint(0.4),
            },
            "mode": "lines+markers" if lines else "markers",
            "line": {"color": model_pen.colour, "dash": model_pen.dash, "width": 2.2},
            "marker": {"symbol": model_pen.symbol, "size": 7, "color": model_pen.colour},
            "customdata": names,
            "hovertemplate": "<b>%{fullData.name}</b><br>%{customdata}<br>mAP %{y:.1%}<extra></extra>",
        }
    )
