"""Every scorer at a glance: AUROC as dots with intervals, a card a model, under each way of saying who is strange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.parts.dots import MARKS, Dot, Dots, Key, Scale, dot_chart, ordered, scale
from sorites.reports.parts.heat import same
from sorites.reports.parts.markup import EMPTY, Html, tag
from sorites.reports.parts.scorers import scorers
from sorites.reports.view import View

VIEWS = {"semantic": "by label", "model-specific": "by verdict"}
BLIND = 0.5

Rows = Mapping[str, pl.DataFrame]
"""What a view is called, to its AUROC with model and scorer."""


@dataclass(frozen=True)
class Chart:
    """What it shows, of which number, each view's rows, and the mark of the first view."""

    title: str
    number: str
    rows: Rows
    first: int


def strange_dots(view: View) -> Html:
    """One chart of both frameworks and one of the kinds of strange pictures; nothing without two scorers to compare."""
    if len(scorers(view)) < 2:
        return EMPTY
    charts = [Chart("all strange pictures", "AUROC in %", _frameworks(view), 0)]
    charts += [Chart("kind by kind", "AUROC in % against untouched pictures that are right", kinds(view), len(VIEWS))]
    drawn = [chart for chart in charts if 0 < len(chart.rows) <= MARKS - chart.first]
    on = _shared(drawn)
    cards = [card for model in view.models for chart in drawn if (card := _card(view, model, chart, on))]
    return tag("div", *cards, cls="cards two wide") if cards else EMPTY


def _frameworks(view: View) -> Rows:
    found = {name: view.ask(metrics.ood, framework=framework) for framework, name in VIEWS.items()}
    sound = {name: rows.filter(pl.col("value").is_not_null() & (pl.col("metric") == "auroc")) for name, rows in found.items()}
    return {name: rows for name, rows in sound.items() if rows.height}


def kinds(view: View) -> Rows:
    """Right untouched pictures against each kind of strange one, near before far and moved ones last; empty without two kinds."""
    asked = view.ask(metrics.auroc, framework="combined", by=("model", "scorer", "kind", "group"))
    found = asked.filter(pl.col("value").is_not_null() & pl.col("kind").is_not_null())
    if found["kind"].n_unique() < 2:
        return {}
    held = found.select("kind", "group").unique().rows()
    held.sort(key=lambda kind: (kind[0] == "C-OOD", kind[1] is None, kind[1] != "near", kind[1]))
    same_kind = {(kind, group): (pl.col("kind") == kind) & pl.col("group").eq_missing(group) for kind, group in held}
    return {f"{group} {kind}" if group else kind: found.filter(mine) for (kind, group), mine in same_kind.items()}


def _shared(charts: Sequence[Chart]) -> Scale:
    frames = [rows.select("value", "low", "high") for chart in charts for rows in chart.rows.values()]
    values = [value for frame in frames for row in frame.iter_rows() for value in row if value is not None]
    return scale([BLIND, *values])


def _card(view: View, model: str, chart: Chart, on: Scale) -> Html:
    mine = {name: rows.filter(pl.col("model") == model) for name, rows in chart.rows.items()}
    dots = _dots(view, mine)
    if not dots:
        return EMPTY
    best = {name: dots[name] for name in ordered(dots)}
    keys = {name: _key(rows, chart.first + i) for i, (name, rows) in enumerate(mine.items()) if rows.height}
    label = f"AUROC of each scorer, {model}, {chart.title}: {', '.join(best)}"
    about = tag("p", f"{chart.number}, the best mean first, with 95 % intervals.", cls="about")
    drawn = dot_chart(best, keys, on, {"a blind score": BLIND}, label)
    return tag("article", tag("h3", f"{model} · {chart.title}"), about, drawn, cls="card")


def _key(rows: pl.DataFrame, mark: int) -> Key:
    return Key(mark, f"{same(rows['familiar'])} familiar, {same(rows['strange'])} strange")


def _dots(view: View, mine: Rows) -> Dots:
    cells: dict[str, dict[str, Dot]] = {scorer: {} for scorer in scorers(view)}
    for name, rows in mine.items():
        for row in rows.to_dicts():
            cells[row["scorer"]][name] = _dot(row)
    return {scorer: own for scorer, own in cells.items() if own}


def _dot(row: Mapping[str, Any]) -> Dot:
    return Dot.of(row, f"n = {row['familiar']} + {row['strange']}")
