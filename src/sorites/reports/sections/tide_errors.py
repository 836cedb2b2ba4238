"""The section on what errors cost a detector, by TIDE's six kinds, as severity rises."""

from __future__ import annotations

import polars as pl

from sorites import metrics
from sorites.reports.parts.box_models import box_models
from sorites.reports.parts.charts import COLOURS, SYMBOLS, Pen, along, axis_name, figure, plot
from sorites.reports.parts.markup import Html, between, grid, join, percent, safe, tag
from sorites.reports.parts.picker import picked
from sorites.reports.section import Section, add_section
from sorites.reports.view import UNTOUCHED, View

KINDS = {
    "Cls": "wrong class", "Loc": "badly placed", "Both": "wrong class and badly placed", "Dupe": "found twice",
    "Bkg": "nothing there", "Miss": "not found",
}  # fmt: skip
"""TIDE's kinds of error, and what they are."""
PENS = {kind: Pen(colour, "solid", symbol) for kind, colour, symbol in zip(KINDS, COLOURS, SYMBOLS, strict=False)}


@add_section(order=24)
def tide_errors(view: View) -> Section | None:
    """Per detector, one chart per shift with a line per kind of error; the table below sets clean beside shifted pictures."""
    found = box_models(view)
    if not found:
        return None
    rows = view.compute(tide_from_clean).drop_nulls(["severity", "value"]).filter(pl.col("error").is_in(list(KINDS)))
    drawn = {model: _charts(view, rows.filter(pl.col("model") == model)) for model in found}
    lead = (
        "What each kind of error costs: the average precision at IoU 0.50 that would be won if all errors of that kind, and no "
        "others, were mended (TIDE). Kinds overlap, so costs do not add up. "
        + "; ".join(f"{kind}: {what}" for kind, what in KINDS.items())
        + "."
    )
    body = join([picked("tide", "Detector", drawn), tag("article", _table(view, found), cls="card below")])
    return Section("Why are things lost?", body, "Errors by kind", lead)


def tide_from_clean(table: pl.LazyFrame) -> pl.DataFrame:
    """Return TIDE's costs with clean pictures at severity 0 of every shift."""
    return metrics.tide(metrics.with_clean(table))


def _charts(view: View, rows: pl.DataFrame) -> Html:
    top = float(rows["value"].max() or 0.01)  # type: ignore[arg-type]
    cards = [
        tag("article", tag("h3", shift), _chart(view, shift, part, top), cls="card")
        for shift in view.shifts
        if (part := rows.filter(pl.col("shift") == shift)).height
    ]
    return tag("div", *cards, cls="cards")


def _chart(view: View, shift: str, rows: pl.DataFrame, top: float) -> Html:
    upright = {"range": [-0.03 * top, 1.06 * top], "tickformat": ".0%", "nticks": 5}
    fig = figure(view, axis_name(view, shift), "cost (AP at 0.50)", yaxis=upright, xaxis=along(rows["severity"]))
    fig.update_layout(showlegend=True, height=310, margin_t=54)
    for kind, drawn in PENS.items():
        mine = rows.filter(pl.col("error") == kind).sort("severity")
        ends = zip(mine["low"], mine["high"], mine["n"], strict=True)
        fig.add_trace(
            {
                "type": "scatter",
                "name": safe(kind),
                "x": mine["severity"].to_list(),
                "y": mine["value"].to_list(),
                "customdata": [[percent(low), percent(high), n] for low, high, n in ends],
                "mode": "lines+markers",
                "line": {"color": drawn.colour, "width": 2},
                "marker": {"symbol": drawn.symbol, "size": 7, "color": drawn.colour},
                "hovertemplate": f"<b>{kind}</b>: {KINDS[kind]}<br>severity %{{x:.4~g}}<br>costs %{{y:.1%}}"
                "<br>95 %: %{customdata[0]} to %{customdata[1]}<br>n = %{customdata[2]}<extra></extra>",
            }
        )
    return plot(fig, f"Cost of each kind of error against the severity of {shift}")


def _table(view: View, found: list[str]) -> Html:
    clean, shifted = (view.compute(metrics.tide, where, by=("model",)) for where in (UNTOUCHED, ~UNTOUCHED))
    lines = [
        [model, name, *(_cell(frame, model, kind) for kind in KINDS)]
        for model in found
        for name, frame in (("clean", clean), ("shifted", shifted))
    ]
    caption = "Cost of each kind of error in average precision at IoU 0.50, with its 95 % interval; all shifted pictures together"
    return grid(["", "pictures", *KINDS], lines, text=2, caption=caption)


def _cell(frame: pl.DataFrame, model: str, kind: str) -> Html:
    row = next(iter(frame.filter((pl.col("model") == model) & (pl.col("error") == kind)).to_dicts()), None)
    if row is None or row["value"] is None:
        return join([percent(None)])
    return join([percent(row["value"]), tag("small", between(percent(row["low"]), percent(row["high"])))])
