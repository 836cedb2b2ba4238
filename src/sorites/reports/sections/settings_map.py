"""The section with class x attribute maps (FOCUS): accuracy of every class at every attribute, and the gap of uncommon ones."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.parts.markup import DASH, Html, count, join, percent, points, tag
from sorites.reports.parts.picker import picked
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

MANY = 25
"""A map with more classes than this is folded."""
COMMON, UNCOMMON = "#0072b2", "#e69f00"


@add_section(order=53)
def settings_map(view: View) -> Section | None:
    """One heat map per kind, one model at a time, as FOCUS draws them; absent without attributes."""
    cells = view.compute(metrics.attribute_accuracy)
    if not cells.height:
        return None
    gaps = view.compute(metrics.attribute_gap, pool="cells")
    maps = {model: _maps(cells.filter(pl.col("model") == model), gaps.filter(pl.col("model") == model)) for model in view.models}
    lead = (
        "Blue cells are common for the class, orange ones are uncommon; stronger colour is higher accuracy. A picture with "
        "several values of a kind counts in each of their cells. The gap is the accuracy of the common cells minus that of "
        "the uncommon ones; a dash means that one side is empty."
    )
    return Section("Which classes suffer in which settings?", picked("settings", "Model", maps), "Class × setting", lead)


def _maps(cells: pl.DataFrame, gaps: pl.DataFrame) -> Html:
    kinds = sorted(cells["kind"].unique())
    return join([_map(kind, cells.filter(pl.col("kind") == kind), gaps.filter(pl.col("kind") == kind)) for kind in kinds])


def _map(kind: str, cells: pl.DataFrame, gaps: pl.DataFrame) -> Html:
    words = sorted(cells["attribute"].unique())
    classes: list[str | None] = [*sorted(cells["class"].drop_nulls().unique()), None]
    by_class = {(row["class"], row["attribute"]): row for row in cells.to_dicts()}
    gap = {row["class"]: row for row in gaps.to_dicts()}
    top = tag("tr", tag("th", kind, scope="col"), *(tag("th", word, scope="col") for word in [*words, "gap"]))
    body = [
        tag(
            "tr",
            tag("th", name or "all", scope="row"),
            *(_cell(by_class.get((name, word))) for word in words),
            _gap(gap.get(name)),
        )
        for name in classes
    ]
    table = tag(
        "table", tag("caption", f"Accuracy in % by class and {kind}, with n"), tag("thead", top), tag("tbody", *body), cls="heat"
    )
    shown = tag("div", table, cls="scroll", tabindex="0")
    if len(classes) > MANY:
        shown = tag("details", tag("summary", f"{len(classes) - 1} classes by {kind}"), shown)
    return tag("article", shown, cls="card")


def _cell(row: dict[str, Any] | None) -> Html:
    if row is None or row["value"] is None:
        return tag("td", cls="none")
    hover = f"{percent(row['value'])}, 95 %: {percent(row['low'])} to {percent(row['high'])}, n = {row['n']}"
    strength = round(12 + 58 * row["value"])
    colour = COMMON if row["common"] else UNCOMMON
    shade = f"background:color-mix(in srgb,{colour} {strength}%,var(--card))" if row["common"] is not None else None
    return tag("td", f"{100 * row['value']:.0f}", tag("small", count(row["n"])), title=hover, style=shade)


def _gap(row: dict[str, Any] | None) -> Html:
    if row is None or row["value"] is None:
        return tag("td", DASH, title="nothing common or nothing uncommon to compare")
    return tag("td", points(row["value"], 0).split("\u202f")[0], title=f"{points(row['low'])} to {points(row['high'])}")
