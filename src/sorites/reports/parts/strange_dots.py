"""AUROC of every scorer as dots with intervals, one card per model, for each definition of strange pictures."""

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
RANDOM = 0.5

Rows = Mapping[str, pl.DataFrame]
"""The AUROC of each model and scorer, by the name of the series."""


@dataclass(frozen=True)
class Chart:
    """A chart: its title, the number it shows, the rows of each series, and the mark of the first series."""

    title: str
    number: str
    rows: Rows
    first: int


def strange_dots(view: View) -> Html:
    """Return one chart of both frameworks and one of the kinds of strange pictures; both need two scorers to compare."""
    if len(scorers(view)) < 2:
        return EMPTY
    charts = [Chart("all strange pictures", "AUROC in %", _frameworks(view), 0)]
    charts += [Chart("kind by kind", "AUROC in % against clean pictures that the model gets right", kinds(view), len(VIEWS))]
    drawn = [chart for chart in charts if 0 < len(chart.rows) <= MARKS - chart.first]
    on = _shared(drawn)
    cards = [card for model in view.models for chart in drawn if (card := _card(view, model, chart, on))]
    return tag("div", *cards, cls="cards two wide") if cards else EMPTY


def _frameworks(view: View) -> Rows:
    found = {name: view.compute(metrics.ood, framework=framework) for framework, name in VIEWS.items()}
    sound = {name: rows.filter(pl.col("value").is_not_null() & (pl.col("metric") == "auroc")) for name, rows in found.items()}
    return {name: rows for name, rows in sound.items() if rows.height}


def kinds(view: View) -> Rows:
    """Return the AUROC of each kind of strange picture against clean pictures that are right; empty without two kinds.

    Near comes before far, and shifted pictures come last.
    """
    auroc = view.compute(metrics.auroc, framework="combined", by=("model", "scorer", "kind", "group"))
    found = auroc.filter(pl.col("value").is_not_null() & pl.col("kind").is_not_null())
    if found["kind"].n_unique() < 2:
        return {}
    present = found.select("kind", "group").unique().rows()
    present.sort(key=lambda kind: (kind[0] == "C-OOD", kind[1] is None, kind[1] != "near", kind[1]))
    same_kind = {(kind, group): (pl.col("kind") == kind) & pl.col("group").eq_missing(group) for kind, group in present}
    return {f"{group} {kind}" if group else kind: found.filter(selected) for (kind, group), selected in same_kind.items()}


def _shared(charts: Sequence[Chart]) -> Scale:
    frames = [rows.select("value", "low", "high") for chart in charts for rows in chart.rows.values()]
    values = [value for frame in frames for row in frame.iter_rows() for value in row if value is not None]
    return scale([RANDOM, *values])


def _card(view: View, model: str, chart: Chart, on: Scale) -> Html:
    model_rows = {name: rows.filter(pl.col("model") == model) for name, rows in chart.rows.items()}
    dots = _dots(view, model_rows)
    if not dots:
        return EMPTY
    best = {name: dots[name] for name in ordered(dots)}
    keys = {name: _key(rows, chart.first + i) for i, (name, rows) in enumerate(model_rows.items()) if rows.height}
    label = f"AUROC of each scorer, {model}, {chart.title}: {', '.join(best)}"
    about = tag("p", f"{chart.number}, with 95 % intervals; the scorer with the best mean comes first.", cls="about")
    drawn = dot_chart(best, keys, on, {"a random score": RANDOM}, label)
    return tag("article", tag("h3", f"{model} · {chart.title}"), about, drawn, cls="card")


def _key(rows: pl.DataFrame, mark: int) -> Key:
    return Key(mark, f"{same(rows['familiar'])} familiar, {same(rows['strange'])} strange")


def _dots(view: View, model_rows: Rows) -> Dots:
    cells: dict[str, dict[str, Dot]] = {scorer: {} for scorer in scorers(view)}
    for name, rows in model_rows.items():
        for row in rows.to_dicts():
            cells[row["scorer"]][name] = _dot(row)
    return {scorer: dots for scorer, dots in cells.items() if dots}


def _dot(row: Mapping[str, Any]) -> Dot:
    return Dot.of(row, f"n = {row['familiar']} + {row['strange']}")
