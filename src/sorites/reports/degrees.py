"""Strangeness by degree: the map of semantic by covariate level, its two axes, and what a level is worth."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.charts import PERCENT_AXIS
from sorites.reports.markup import DASH, EMPTY, Html, count, grid, join, number, percent, tag
from sorites.reports.scorers import chart, estimate, picked, scorers
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

AXES = ("semantic", "covariate")


@add_section(order=63)
def degrees(view: View) -> Section | None:
    """Heat maps with n in each cell, curves over each axis, correlation and sensitivity; absent without levels."""
    cells = view.ask(metrics.level_map)
    maps = {name: tag("div", *drawn, cls="cards two") for name in scorers(view) if (drawn := _maps(view, name, cells))}
    if not maps:
        return None
    lead = (
        "Each cell is held against the same untouched pictures of known classes. Blue is above 50 %, orange below. Hatched cells "
        "have too few pictures to be fair and enter no mean; empty ones have none. A good score rises with the meaning "
        "(downwards) and does not care for the appearance (to the right)."
    )
    curves = [card for model in view.models for axis in AXES if (card := _curve(view, model, axis))]
    below = [tag("div", *curves, cls="cards two"), tag("article", _table(view), cls="card")]
    body = join([picked("degrees", "Scorer", maps), *(tag("div", part, cls="below") for part in below)])
    return Section("Strange by degree", body, "Degrees", lead)


def _maps(view: View, scorer: str, cells: pl.DataFrame) -> list[Html]:
    found = []
    for model in view.models:
        own = cells.filter(pl.col("model") == model, pl.col("scorer") == scorer)
        if own.height:
            found.append(tag("article", tag("h3", f"{model} · {scorer}"), _map(own), cls="card"))
    return found


def _map(cells: pl.DataFrame) -> Html:
    held = {(row["sem_level"], row["cov_level"]): row for row in cells.to_dicts()}
    rows, columns = (range(min(levels), max(levels) + 1) for levels in zip(*held, strict=True))
    top = tag("tr", tag("th", "meaning ↓ appearance →", scope="col"), *(tag("th", column, scope="col") for column in columns))
    body = [tag("tr", tag("th", row, scope="row"), *(_cell(held.get((row, column))) for column in columns)) for row in rows]
    caption = tag("caption", f"AUROC in % by level, with n; {count(cells['familiar'].max() or 0)} familiar pictures")  # type: ignore[arg-type]
    return tag("div", tag("table", caption, tag("thead", top), tag("tbody", *body), cls="heat"), cls="scroll", tabindex="0")


def _cell(row: dict[str, Any] | None) -> Html:
    if row is None:
        return tag("td", cls="none")
    many = tag("small", count(row["n"]))
    if row["value"] is None:
        return tag("td", DASH, many, cls="thin", title=f"{row['n']} pictures are too few")
    said = f"{percent(row['value'])}, 95 %: {percent(row['low'])} to {percent(row['high'])}, n = {row['n']}"
    colour, strength = ("#0072b2" if row["value"] >= 0.5 else "#e69f00"), round(130 * abs(row["value"] - 0.5))
    shade = f"background:color-mix(in srgb,{colour} {strength}%,var(--card))"
    return tag("td", f"{100 * row['value']:.0f}", many, title=said, style=shade)


def _curve(view: View, model: str, axis: str) -> Html:
    names = scorers(view)
    rows = view.ask(metrics.level_curve).filter(pl.col("model") == model, pl.col("axis") == axis)
    lines = {name: _line(own) for name in names if (own := rows.filter(pl.col("scorer") == name)).height}
    if not lines:
        return EMPTY
    scale = {"dtick": 1, "range": [rows["level"].min() - 0.3, rows["level"].max() + 0.3]}  # type: ignore[operator]
    label = f"AUROC of each scorer against the {axis} level, {model}"
    drawn = chart(
        view, names, (f"{axis} level", "mean AUROC"), lines, xaxis=scale, yaxis={**PERCENT_AXIS, "dtick": 0.25}, label=label
    )
    return tag("article", tag("h3", f"{model} · {axis} axis"), drawn, cls="card")


def _line(rows: pl.DataFrame) -> dict[str, Any]:
    told = rows.select("cells", "n", pl.col("least") * 100, pl.col("most") * 100).rows()
    return {
        "x": rows["level"].to_list(),
        "y": rows["value"].to_list(),
        "customdata": [list(row) for row in told],
        "hovertemplate": "<b>%{fullData.name}</b><br>level %{x}<br>AUROC %{y:.1%}<br>cells %{customdata[0]}, from "
        "%{customdata[2]:.0f} to %{customdata[3]:.0f} %<br>n = %{customdata[1]}<extra></extra>",
    }


def _table(view: View) -> Html:
    """Correlation and sensitivity along both axes, with the levels they rest on."""
    asked = {"correlation": view.ask(metrics.correlation), "sensitivity": view.ask(metrics.sensitivity)}
    cells = {(r["model"], r["scorer"], r["axis"], name): r for name, frame in asked.items() for r in frame.to_dicts()}
    lines = []
    for model, scorer in ((model, scorer) for model in view.models for scorer in scorers(view)):
        own = [cells.get((model, scorer, axis, name)) for axis in AXES for name in asked]
        if any(own):
            lines.append([model, scorer, *(_number(row, "sens" if i % 2 else "") for i, row in enumerate(own))])
    head = ["", "scorer", *(f"{axis} {name}" for axis in AXES for name in asked)]
    caption = (
        "Correlation of the mean AUROC with the level, and its change a level (sensitivity, in points), over the levels seen"
    )
    return grid(head, lines, text=2, caption=caption)


def _number(row: dict[str, Any] | None, kind: str) -> Html:
    if row is None or row["value"] is None:
        return estimate(None)
    text = number(100 * row["value"]) if kind else number(row["value"], 2)
    return join([text, tag("small", f"{row['levels']} levels, n = {count(row['n'])}")])
