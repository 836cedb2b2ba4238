"""When should the model abstain? Mistakes left among the pictures it answers, the least strange first."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.charts import PERCENT_AXIS
from sorites.reports.markup import Html, count, grid, join, percent, tag
from sorites.reports.scorers import chart, estimate, scorers
from sorites.reports.section import Section, add_section
from sorites.reports.view import View


@add_section(order=64)
def abstain(view: View) -> Section | None:
    """Risk-coverage curves a model, one line a scorer, and the areas under them."""
    areas = view.ask(metrics.aurc)
    told = areas.filter((pl.col("risk") > 0) & (pl.col("risk") < 1))
    cards = [_card(view, model) for model in view.models if told.filter(pl.col("model") == model).height]
    if not cards:
        return None
    lead = (
        "A model that may decline answers the least strange pictures first. To the left it answers few, to the right all: a "
        "useful score keeps the curve low for long. The dotted line is a score that knows nothing."
    )
    table = tag("article", _table(view, areas), cls="card")
    body = join([tag("div", *cards, cls="cards two"), tag("div", table, cls="below")])
    return Section("When should it abstain?", body, "Abstaining", lead)


def _card(view: View, model: str) -> Html:
    names = scorers(view)
    rows = view.ask(metrics.risk_coverage).filter(pl.col("model") == model)
    lines = {name: _line(own) for name in names if (own := rows.filter(pl.col("scorer") == name)).height}
    everything = rows.filter(pl.col("coverage") == 1)["value"].mean()
    top = max(float(rows["value"].max() or 0), 0.05) * 1.08  # type: ignore[arg-type]
    axes = {"xaxis": {**PERCENT_AXIS, "showgrid": True}, "yaxis": {"range": [0, top], "tickformat": ".0%"}}
    blind = {"x": [0, 1], "y": [everything, everything], "mode": "lines", "line": {"color": "#8a8a8a", "width": 1, "dash": "dot"}}
    drawn = chart(
        view, [*names, "blind"], ("pictures answered", "wrong among them"), {**lines, "blind": {**blind, "hoverinfo": "skip"}},
        label=f"Share wrong against share answered, {model}", **axes,
    )  # fmt: skip
    return tag("article", tag("h3", model), drawn, cls="card")


def _line(rows: pl.DataFrame) -> dict[str, Any]:
    told = rows.select("n", pl.col("low") * 100, pl.col("high") * 100).rows()
    return {
        "x": rows["coverage"].to_list(),
        "y": rows["value"].to_list(),
        "mode": "lines",
        "customdata": [list(row) for row in told],
        "hovertemplate": "<b>%{fullData.name}</b><br>answered %{x:.0%}, n = %{customdata[0]}<br>wrong %{y:.1%}"
        "<br>95 %: %{customdata[1]:.1f} to %{customdata[2]:.1f} %<extra></extra>",
    }


def _table(view: View, areas: pl.DataFrame) -> Html:
    cells = {(row["model"], row["scorer"]): row for row in areas.to_dicts()}
    lines = [
        [model, scorer, estimate(row), percent(row["best"]), percent(row["risk"]), count(row["n"])]
        for model in view.models
        for scorer in scorers(view)
        if (row := cells.get((model, scorer)))
    ]
    head = ["", "scorer", "AURC", "at best", "answering all", "n"]
    return grid(head, lines, text=2, caption="Area under the risk-coverage curve: the mean share wrong over all coverages")
