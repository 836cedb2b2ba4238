"""The section on prediction sets: how often they contain the correct class, and how large they are, by
severity.
"""

from __future__ import annotations

import functools
from typing import Any

import polars as pl

from sorites.analysis.uncertainty.conformal import SCHEMA, coverage, promised_range
from sorites.analysis.uncertainty.scores import METHODS
from sorites.core import CLEAN
from sorites.reports.components.by_method import computed, instead, method_card, with_clean
from sorites.reports.components.markup import (
    DASH,
    Html,
    between,
    count,
    folded,
    grid,
    join,
    number,
    percent,
    picked,
    tag,
)
from sorites.reports.components.scorers import estimate
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

ALPHA = 0.1
PROMISED = "promised"
# Sizes that differ by a larger factor are drawn on a logarithmic axis.
MAX_LINEAR = 10
TITLE, SHORT = "How large must a set of answers be?", "Prediction sets"


@add_section(order=66)
def prediction_sets(view: View) -> Section | None:
    """Coverage and size of prediction sets against severity; absent without kept logits."""
    sets, too_many = computed(view, SCHEMA, functools.partial(coverage, alpha=ALPHA))
    if not sets.height:
        return instead(too_many, TITLE, SHORT, "conformal") if too_many else None
    parts = {
        model: tag("div", *cards, cls="cards two wide")
        for model in view.models
        if (cards := _cards(view, sets.filter(pl.col("model") == model)))
    }
    calibration = int(sets["calibration"].min())  # type: ignore[arg-type]
    low, high = promised_range(ALPHA, calibration)
    lead = (
        "Instead of one answer, a model can give a set of classes. The sets are calibrated on clean images of"
        f" one half of the samples so that {percent(1 - ALPHA, 0)} of clean images are covered, and evaluated"
        " on the other half. Nothing is promised for shifted images: a curve that falls below the dotted line"
        " says from which severity on the sets are wrong more often than promised. "
    )
    if low < 1:
        lead += (
            f"With {count(calibration)} calibration images, the coverage of clean images itself varies"
            f" between {percent(low)} and {percent(high)} (95 % of calibration sets)."
        )
    else:
        lead += f"{count(calibration)} calibration images are too few, so that every set has all classes."
    table = _table(view, sets)
    body = join([picked("sets", "Model", parts), tag("div", table, cls="stack below")]) if parts else table
    return Section(TITLE, body, SHORT, lead)


def _cards(view: View, sets: pl.DataFrame) -> list[Html]:
    cards = []
    for shift, rows in with_clean(view, sets):
        lowest = min(float(rows["low"].min() or 0), 1 - ALPHA)  # type: ignore[arg-type]
        axis = {"range": [max(lowest - 0.05, 0), 1.02], "tickformat": ".0%"}
        columns, hover = ("value", "low", "high"), "coverage %{y:.1%}"
        cards.append(
            method_card(
                view,
                shift,
                rows,
                [*METHODS],
                ("coverage", "coverage"),
                columns,
                hover,
                (PROMISED, 1 - ALPHA),
                **axis,
            )
        )
        size, columns = ("size", "mean classes in a set"), ("size", "size_low", "size_high")
        cards.append(
            method_card(
                view, shift, rows, [*METHODS], size, columns, "classes %{y:.3~g}", **_size_axis(rows["size"])
            )
        )
    return cards


def _size_axis(sizes: pl.Series) -> dict[str, Any]:
    """Return a logarithmic axis if sizes differ much, so that sets of one class can be told from two."""
    smallest, largest = float(sizes.min() or 0), float(sizes.max() or 0)  # type: ignore[arg-type]
    if smallest > 0 and largest > MAX_LINEAR * smallest:
        return {"type": "log", "dtick": "D2" if largest < MAX_LINEAR**2 * smallest else 1}
    return {"rangemode": "tozero"}


def _table(view: View, sets: pl.DataFrame) -> Html:
    """Return clean coverage and size, and those at the highest severity or worst setting of each shift."""
    lines = []
    for model in view.models:
        for method in METHODS:
            own = sets.filter(pl.col("model") == model, pl.col("method") == method)
            if own.height:
                shown = [_worst(own, shift) for shift in (CLEAN, *view.shifts)]
                lines.append([model, method, *map(_cell, shown)])
    head = ["", "sets", "clean", *view.shifts]
    caption = (
        "Coverage of clean images and at the setting of each shift where it is lowest, with its 95 % interval"
        " over samples, and the mean number of classes in a set"
    )
    return folded("Coverage and size of the sets", grid(head, lines, text=2, caption=caption), len(lines))


def _worst(rows: pl.DataFrame, shift: str) -> dict[str, Any] | None:
    own = rows.filter(pl.col("shift") == shift).sort("value", "severity", descending=[False, True])
    return own.row(0, named=True) if own.height else None


def _cell(row: dict[str, Any] | None) -> object:
    if row is None:
        return DASH
    size = f"{number(row['size'])} classes, {between(number(row['size_low']), number(row['size_high']))}"
    return join([estimate(row), tag("small", size), tag("small", f"n = {count(row['n'])}")])
