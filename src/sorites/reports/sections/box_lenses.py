"""The section on detectors under lenses: mAP against lens quality (OpticsBench, figure 12) and over the field (table XIII)."""

from __future__ import annotations

import polars as pl

from sorites import metrics
from sorites.reports.parts.box_models import box_models
from sorites.reports.parts.charts import figure, legend, pen, plot
from sorites.reports.parts.field_map import MAP, field_map
from sorites.reports.parts.lens_ranking import lens_ranking
from sorites.reports.parts.markup import Html, join, safe, tag
from sorites.reports.parts.trend import fit
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

UPRIGHT = {"tickformat": ".0%", "rangemode": "tozero", "nticks": 6}


@add_section(order=37)
def box_lenses(view: View) -> Section | None:
    """A scatter plot of lenses, a curve over field positions and a map of rings; absent without detectors or without lenses."""
    if not box_models(view) or not {"lens", "lens_whole"} & set(view.shifts):
        return None
    each, over = view.compute(map_by_lens).drop_nulls(["value", "quality"]), view.compute(map_by_field).drop_nulls("value")
    if each.is_empty():
        return None
    cards = [tag("article", tag("h3", "Against lens quality"), _scatter(view, each), cls="card")]
    if over.height:
        cards.append(tag("article", tag("h3", "Against distance from the middle"), _fields(view, over), cls="card"))
    lead = (
        "Each point is a lens: its quality is the mean MTF50 of its blur over the field, and its mAP that of all its pictures at "
        f"all field positions together, with the 95 % interval over pictures.{_curve(each)}"
    )
    parts = (lens_ranking(view, each, MAP), field_map(view, over, MAP))
    below = [tag("div", tag("article", part, cls="card"), cls="below") for part in parts if part]
    body = join([legend(view), tag("div", *cards, cls="cards two"), *below])
    return Section("How good must the lens be for the detector?", body, "Lenses", lead)


def _curve(each: pl.DataFrame) -> str:
    parts = (fit(mine["quality"].to_numpy(), mine["value"].to_numpy()) for mine in each.partition_by("model"))
    return " The curve is a third-order fit." if any(trend is not None for trend in parts) else ""


def map_by_lens(table: pl.LazyFrame) -> pl.DataFrame:
    """Return the mAP of each lens over all its pictures, with its quality."""
    rows = metrics.with_lenses(table)
    quality = rows.group_by("model", "lens").agg(pl.col("quality").mean()).collect()
    return metrics.map(rows, by=("model", "lens"), resamples=200).join(quality, on=["model", "lens"], how="left")


def map_by_field(table: pl.LazyFrame) -> pl.DataFrame:
    """Return the mAP at each field position over all lenses together."""
    return metrics.map(metrics.with_lenses(table).filter(pl.col("lens_field").is_not_null()), by=("model", "lens_field"))


def _scatter(view: View, each: pl.DataFrame) -> Html:
    fig = figure(view, "lens quality (MTF50, cycles/px)", "mAP", yaxis=UPRIGHT)
    for model in view.models:
        mine = each.filter(pl.col("model") == model).sort("quality")
        if mine.is_empty():
            continue
        _points(fig, view, model, mine, "quality", [safe(name) for name in mine["lens"]], lines=False)
        trend = fit(mine["quality"].to_numpy(), mine["value"].to_numpy())
        if trend is not None:
            x, y = trend.linspace(60)
            drawn = {"mode": "lines", "line": {"color": pen(view, model).colour, "width": 1.5}, "showlegend": False}
            fig.add_trace(
                {"type": "scatter", "legendgroup": model, "x": x.tolist(), "y": y.tolist(), "hoverinfo": "skip", **drawn}
            )
    return plot(fig, "mAP against lens quality")


def _fields(view: View, over: pl.DataFrame) -> Html:
    fig = figure(view, "distance from the middle (fraction of the half field)", "mAP", yaxis=UPRIGHT)
    for model in view.models:
        mine = over.filter(pl.col("model") == model).sort("lens_field")
        if mine.height:
            _points(fig, view, model, mine, "lens_field", [f"field {value:g}" for value in mine["lens_field"]], lines=True)
    return plot(fig, "mAP against distance from the middle of the picture")


def _points(fig: object, view: View, model: str, rows: pl.DataFrame, across: str, names: list[str], lines: bool) -> None:
    drawn = pen(view, model)
    up, down = ((rows[end] - rows["value"]).abs().fill_null(0.0).to_list() for end in ("high", "low"))
    fig.add_trace(  # type: ignore[attr-defined]
        {
            "type": "scatter",
            "legendgroup": model,
            "name": safe(model),
            "x": rows[across].to_list(),
            "y": rows["value"].to_list(),
            "error_y": {"array": up, "arrayminus": down, "thickness": 1, "width": 0, "color": drawn.faint(0.4)},
            "mode": "lines+markers" if lines else "markers",
            "line": {"color": drawn.colour, "dash": drawn.dash, "width": 2.2},
            "marker": {"symbol": drawn.symbol, "size": 7, "color": drawn.colour},
            "customdata": names,
            "hovertemplate": "<b>%{fullData.name}</b><br>%{customdata}<br>mAP %{y:.1%}<extra></extra>",
        }
    )
