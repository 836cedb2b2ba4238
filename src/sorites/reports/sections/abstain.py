"""The section on abstaining: how many mistakes remain if the model answers only the least strange pictures."""

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
    """Risk-coverage curves per model, one line per scorer or a shaded table of many, and the areas under them."""
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
        "A model that may abstain answers the least strange pictures first. On the left it answers few pictures, and a useful "
        "score leaves few mistakes among them; on the right it answers all. A random score has the same share wrong everywhere."
    )
    body = tag("div", tag("div", *cards, cls="cards two wide"), _table(view, areas), cls="stack")
    return Section("When should the model abstain?", body, "Abstaining", lead)


def _cards(view: View, areas: pl.DataFrame) -> list[Html]:
    model = areas["model"][0]
    if areas.height <= MOST_LINES:
        return [tag("article", tag("h3", model), _curves(view, model), cls="card")]
    best = areas.sort("value", maintain_order=True)
    parts = {"mean over all coverages": _dots(model, best), "by coverage": _coverages(view, best)}
    return [tag("article", tag("h3", f"{model} · {what}"), part, cls="card") for what, part in parts.items()]


def _curves(view: View, model: str) -> Html:
    names = scorers(view)
    rows = view.compute(metrics.risk_coverage).filter(pl.col("model") == model)
    lines = {name: _line(scorer_rows) for name in names if (scorer_rows := rows.filter(pl.col("scorer") == name)).height}
    risk = rows.filter(pl.col("coverage") == 1)["value"].mean()
    top = max(float(rows["value"].max() or 0), 0.05) * 1.08  # type: ignore[arg-type]
    axes = {"xaxis": {**PERCENT_AXIS, "showgrid": True}, "yaxis": {"range": [0, top], "tickformat": ".0%"}}
    random = {"x": [0, 1], "y": [risk, risk], "mode": "lines", "line": {"color": "#8a8a8a", "width": 1, "dash": "dot"}}
    return chart(
        view, [*names, "random"], ("pictures answered", "share wrong"), {**lines, "random": {**random, "hoverinfo": "skip"}},
        label=f"Share wrong against share answered, {model}", **axes,
    )  # fmt: skip


def _line(rows: pl.DataFrame) -> dict[str, Any]:
    hover = rows.select("n", pl.col("low") * 100, pl.col("high") * 100).rows()
    return {
        "x": rows["coverage"].to_list(),
        "y": rows["value"].to_list(),
        "mode": "lines",
        "customdata": [list(row) for row in hover],
        "hovertemplate": "<b>%{fullData.name}</b><br>answered %{x:.0%}, n = %{customdata[0]}<br>wrong %{y:.1%}"
        "<br>95 %: %{customdata[1]:.1f} to %{customdata[2]:.1f} %<extra></extra>",
    }


def _dots(model: str, areas: pl.DataFrame) -> Html:
    """Draw the areas with their intervals, between the best possible score and a random one."""
    found = {row["scorer"]: {"AURC": Dot.of(row, f"n = {row['n']}")} for row in areas.to_dicts()}
    lines = {"the best possible score": float(areas["best"].min()), "a random score": float(areas["risk"].max())}  # type: ignore[arg-type]
    ends = [end for scorer_rows in found.values() for dot in scorer_rows.values() for end in dot.ends()]
    label = f"Area under the risk-coverage curve of each scorer, {model}: {', '.join(found)}"
    drawn = dot_chart(found, {"AURC": Key(0, f"{same(areas['n'])} pictures")}, scale([*ends, *lines.values()]), lines, label)
    return join(
        [
            tag(
                "p",
                "Area under the risk-coverage curve in %, with 95 % intervals; the lowest, which is the best, comes first.",
                cls="about",
            ),
            drawn,
        ]
    )


def _coverages(view: View, areas: pl.DataFrame) -> Html:
    """Return the share wrong at each tenth of coverage, shaded by comparison with answering all pictures."""
    risks = dict(areas.select("scorer", "risk").iter_rows())
    rows = view.compute(metrics.risk_coverage, points=TENTHS).filter(pl.col("model") == areas["model"][0])
    cells = {(row["scorer"], round(TENTHS * row["coverage"])): row for row in rows.to_dicts()}
    steps = range(1, TENTHS + 1)
    lines = [(name, [_cell(cells.get((name, step)), risk) for step in steps]) for name, risk in risks.items()]
    counts = {step: [row["n"] for (_, at), row in cells.items() if at == step] for step in steps}
    heads = [join([f"{100 * step // TENTHS}", tag("small", same(counts[step]))]) for step in steps]
    caption = (
        "Share wrong in % among the least strange pictures, with n; blue is fewer mistakes than a random score makes, orange more"
    )
    return heat("answered, %\u00a0→", heads, lines, caption, named=True)


def _cell(row: Mapping[str, Any] | None, risk: float) -> Html:
    if row is None:
        return NONE
    interval = f"95 %: {percent(row['low'])} to {percent(row['high'])}"
    hover = f"{row['scorer']}, {percent(row['coverage'], 0)} answered: {percent(row['value'])} wrong, {interval}, n = {row['n']}"
    return shaded(f"{100 * row['value']:.0f}", (risk - row["value"]) / risk, hover)


def _table(view: View, areas: pl.DataFrame) -> Html:
    cells = {(row["model"], row["scorer"]): row for row in areas.to_dicts()}
    lines = [
        [model, scorer, estimate(row), percent(row["best"]), percent(row["risk"]), count(row["n"])]
        for model in view.models
        for scorer in scorers(view)
        if (row := cells.get((model, scorer)))
    ]
    head = ["", "scorer", "AURC", "best possible", "random score", "n"]
    caption = "Area under the risk-coverage curve (AURC): the mean share wrong over all coverages, with its 95 % interval"
    return folded(
        "Area under the risk-coverage curve (AURC) of each scorer", grid(head, lines, text=2, caption=caption), len(lines)
    )
