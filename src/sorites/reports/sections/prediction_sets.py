"""The section on prediction sets: how often they contain the correct class, and how large they are, by
severity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from sorites.analysis.uncertainty.conformal import SCHEMA, coverage, promised_range
from sorites.analysis.uncertainty.scores import METHODS
from sorites.core import CLEAN
from sorites.core.errors import SoritesError
from sorites.reports.components.charts import about, along, axis_name
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
from sorites.reports.components.scorers import chart, estimate
from sorites.reports.section import Section, add_section
from sorites.reports.view import RunView, View

ALPHA = 0.1
PROMISED = "promised"
# Images of a model beyond which the sets are not computed for a page.
MAX_IMAGES = 100_000


@add_section(order=66)
def prediction_sets(view: View) -> Section | None:
    """Coverage and size of prediction sets against severity; absent without kept logits."""
    sets, too_many = _computed(view)
    if not sets.height:
        return _instead(too_many) if too_many else None
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
    return Section("How large must a set of answers be?", body, "Prediction sets", lead)


def _instead(models: list[str]) -> Section:
    text = (
        f"{', '.join(models)} judged more than {count(MAX_IMAGES)} images; compute the sets with sorites"
        " conformal RUN."
    )
    return Section("How large must a set of answers be?", tag("p", text), "Prediction sets", "")


def _computed(view: View) -> tuple[pl.DataFrame, list[str]]:
    """Return coverage and size of all models with kept logits, and the models with too many images."""
    frames, too_many = [pl.DataFrame(schema=SCHEMA)], []
    for run in view.runs:
        for model in _models(run):
            images = run.table.filter((pl.col("model") == model) & (pl.col("output") == "label"))
            if images.select(pl.len()).collect(engine="streaming").item() > MAX_IMAGES:
                too_many.append(model)
                continue
            try:
                frames.append(coverage(run.table, model, run.logits, run.labels, ALPHA))
            except SoritesError:  # no clean images, or logits of other classes
                continue
    return pl.concat(frames).unique(
        ["model", "method", "shift", "severity", "params"], keep="first"
    ), too_many


def _models(run: RunView) -> list[str]:
    return [] if run.logits is None or run.record is None else list(run.record.models)


def _cards(view: View, sets: pl.DataFrame) -> list[Html]:
    with_severity = sets.filter(pl.col("severity").is_not_null())
    clean = with_severity.filter(pl.col("shift") == CLEAN)
    cards = []
    for shift in view.shifts:
        own = with_severity.filter(pl.col("shift") == shift)
        if own.height:
            rows = pl.concat([clean, own]).sort("severity")
            cards.append(_card(view, shift, "coverage", rows, _coverage_chart))
            cards.append(_card(view, shift, "size", rows, _size_chart))
    return cards


def _card(
    view: View, shift: str, what: str, rows: pl.DataFrame, draw: Callable[[View, str, pl.DataFrame], Html]
) -> Html:
    return tag(
        "article", tag("h3", f"{shift} · {what}"), about(view, shift), draw(view, shift, rows), cls="card"
    )


def _coverage_chart(view: View, shift: str, rows: pl.DataFrame) -> Html:
    lines: dict[str, dict[str, Any]] = {
        name: _line(part, "value", "low", "high", "coverage %{y:.1%}") for name, part in _methods(rows)
    }
    top = float(rows["severity"].max() or 1)  # type: ignore[arg-type]
    lines[PROMISED] = {
        "x": [0, top],
        "y": [1 - ALPHA, 1 - ALPHA],
        "mode": "lines",
        "line": {"color": "#8a8a8a", "width": 1, "dash": "dot"},
        "hoverinfo": "skip",
    }
    lowest = min(float(rows["low"].min() or 0), 1 - ALPHA)  # type: ignore[arg-type]
    axes = {
        "xaxis": along(rows["severity"]),
        "yaxis": {"range": [max(lowest - 0.05, 0), 1.02], "tickformat": ".0%"},
    }
    label = f"Coverage of prediction sets against the severity of {shift}"
    return chart(view, [*METHODS, PROMISED], (axis_name(view, shift), "coverage"), lines, label=label, **axes)


def _size_chart(view: View, shift: str, rows: pl.DataFrame) -> Html:
    lines = {
        name: _line(part, "size", "size_low", "size_high", "classes %{y:.3~g}")
        for name, part in _methods(rows)
    }
    axes = {"xaxis": along(rows["severity"]), "yaxis": {"rangemode": "tozero"}}
    label = f"Mean size of prediction sets against the severity of {shift}"
    return chart(
        view, [*METHODS], (axis_name(view, shift), "mean classes in a set"), lines, label=label, **axes
    )


def _methods(rows: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    return [(name, part) for name in METHODS if (part := rows.filter(pl.col("method") == name)).height]


def _line(rows: pl.DataFrame, value: str, low: str, high: str, hover: str) -> dict[str, Any]:
    above, below = rows[high] - rows[value], rows[value] - rows[low]
    return {
        "x": rows["severity"].to_list(),
        "y": rows[value].to_list(),
        "error_y": {
            "array": above.to_list(),
            "arrayminus": below.to_list(),
            "symmetric": False,
            "thickness": 1,
            "width": 0,
        },
        "customdata": rows["n"].to_list(),
        "hovertemplate": (
            f"<b>%{{fullData.name}}</b><br>severity %{{x:.4~g}}<br>{hover}<br>n = %{{customdata}}"
            "<extra></extra>"
        ),
    }


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
