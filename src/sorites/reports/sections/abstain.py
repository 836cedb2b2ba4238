"""When should the model abstain? Mistakes left among the pictures it answers, the least strange first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.parts.charts import PERCENT_AXIS
from sorites.reports.parts.dots import Dot, Key, dot_chart, scale
from sorites.reports.parts.heat import NONE, heat, same, shaded
from sorites.reports.parts.markup import Html, count, folded, grid, join, percent, tag
from sorites.reports.parts.scorers import MOST_LINES, chart, estimate, scorers
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

TENTHS = 10


@add_section(order=64)
def abstain(view: View) -> Section | None:
    """Risk-coverage curves a model, one line a scorer or a shaded table of many, and the areas under them."""
    areas = view.ask(metrics.aurc)
    told = areas.filter((pl.col("risk") > 0) & (pl.col("risk") < 1))
    cards = [card for model in view.models if (own := told.filter(pl.col("model") == model)).height for card in _cards(view, own)]
    if not cards:
        return None
    lead = (
        "A model that may decline answers the least strange pictures first. With few answers, to the left, a useful score leaves "
        "few mistakes; to the right it answers all. A blind score, which knows nothing, has the same share wrong everywhere."
    )
    body = tag("div", tag("div", *cards, cls="cards two wide"), _table(view, areas), cls="stack")
    return Section("When should it abstain?", body, "Abstaining", lead)


def _cards(view: View, areas: pl.DataFrame) -> list[Html]:
    model = areas["model"][0]
    if areas.height <= MOST_LINES:
        return [tag("article", tag("h3", model), _curves(view, model), cls="card")]
    best = areas.sort("value", maintain_order=True)
    said = {"mean over all coverages": _dots(model, best), "by coverage": _coverages(view, best)}
    return [tag("article", tag("h3", f"{model} · {what}"), part, cls="card") for what, part in said.items()]


def _curves(view: View, model: str) -> Html:
    names = scorers(view)
    rows = view.ask(metrics.risk_coverage).filter(pl.col("model") == model)
    lines = {name: _line(own) for name in names if (own := rows.filter(pl.col("scorer") == name)).height}
    everything = rows.filter(pl.col("coverage") == 1)["value"].mean()
    top = max(float(rows["value"].max() or 0), 0.05) * 1.08  # type: ignore[arg-type]
    axes = {"xaxis": {**PERCENT_AXIS, "showgrid": True}, "yaxis": {"range": [0, top], "tickformat": ".0%"}}
    blind = {"x": [0, 1], "y": [everything, everything], "mode": "lines", "line": {"color": "#8a8a8a", "width": 1, "dash": "dot"}}
    return chart(
        view, [*names, "blind"], ("pictures answered", "wrong among them"), {**lines, "blind": {**blind, "hoverinfo": "skip"}},
        label=f"Share wrong against share answered, {model}", **axes,
    )  # fmt: skip


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


def _dots(model: str, areas: pl.DataFrame) -> Html:
    """The areas with their intervals, between the best that is possible and a blind score."""
    found = {row["scorer"]: {"AURC": Dot.of(row, f"n = {row['n']}")} for row in areas.to_dicts()}
    lines = {"at best": float(areas["best"].min()), "a blind score": float(areas["risk"].max())}  # type: ignore[arg-type]
    ends = [end for own in found.values() for dot in own.values() for end in dot.ends()]
    label = f"Area under the risk-coverage curve of each scorer, {model}: {', '.join(found)}"
    drawn = dot_chart(found, {"AURC": Key(0, f"{same(areas['n'])} pictures")}, scale([*ends, *lines.values()]), lines, label)
    return join([tag("p", "Area under the risk-coverage curve in %, the lowest first, with 95 % intervals.", cls="about"), drawn])


def _coverages(view: View, areas: pl.DataFrame) -> Html:
    """The share wrong at each tenth of coverage, held against answering all."""
    risks = dict(areas.select("scorer", "risk").iter_rows())
    rows = view.ask(metrics.risk_coverage, points=TENTHS).filter(pl.col("model") == areas["model"][0])
    cells = {(row["scorer"], round(TENTHS * row["coverage"])): row for row in rows.to_dicts()}
    steps = range(1, TENTHS + 1)
    lines = [(name, [_cell(cells.get((name, step)), risk) for step in steps]) for name, risk in risks.items()]
    counts = {step: [row["n"] for (_, at), row in cells.items() if at == step] for step in steps}
    heads = [join([f"{100 * step // TENTHS}", tag("small", same(counts[step]))]) for step in steps]
    caption = "Wrong, in %, among the least strange pictures, with n; blue has fewer mistakes than a blind score, orange more"
    return heat("answered, %\u00a0→", heads, lines, caption, named=True)


def _cell(row: Mapping[str, Any] | None, risk: float) -> Html:
    if row is None:
        return NONE
    interval = f"95 %: {percent(row['low'])} to {percent(row['high'])}"
    said = f"{row['scorer']}, {percent(row['coverage'], 0)} answered: {percent(row['value'])} wrong, {interval}, n = {row['n']}"
    return shaded(f"{100 * row['value']:.0f}", (risk - row["value"]) / risk, said)


def _table(view: View, areas: pl.DataFrame) -> Html:
    cells = {(row["model"], row["scorer"]): row for row in areas.to_dicts()}
    lines = [
        [model, scorer, estimate(row), percent(row["best"]), percent(row["risk"]), count(row["n"])]
        for model in view.models
        for scorer in scorers(view)
        if (row := cells.get((model, scorer)))
    ]
    head = ["", "scorer", "AURC", "at best", "answering all", "n"]
    caption = "Area under the risk-coverage curve: the mean share wrong over all coverages"
    return folded("The areas under the curves: AURC of each scorer", grid(head, lines, text=2, caption=caption), len(lines))
