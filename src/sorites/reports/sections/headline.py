"""The section of headline numbers, one card per model."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.parts.charts import pen
from sorites.reports.parts.markup import (
    DASH,
    EMPTY,
    THIN,
    Html,
    between,
    breakable,
    grid,
    join,
    number,
    percent,
    points,
    several,
    tag,
)
from sorites.reports.section import Section, add_section
from sorites.reports.view import UNTOUCHED, View

Row = dict[str, Any]
MEAN = "Accuracy under shift is the mean over shifts of the mean over the settings of each shift."
LOST = (
    "A picture fails at the least severity at which the model is wrong about it, which is 0 where it is wrong about the "
    "clean picture: half failed counts pictures that the model never had. Half lost does not: it is where accuracy comes down to "
    "half of what it is on clean pictures. A trajectory is one picture under one shift at rising severity."
)


@add_section(order=10)
def headline(view: View) -> Section | None:
    """One card per model: accuracy clean and under shift, the drop, and the severities at which half of it is gone."""
    counted = view.compute(metrics.accuracy, by=("model",))
    if not counted.height:
        return None
    cards = [_card(view, model) for model in view.models if model in set(counted["model"])]
    shifted = view.compute(metrics.mean_accuracy, by=("model",)).drop_nulls("value").height > 0
    lost = view.compute(metrics.failure_point, by=("model",), relative=True).height > 0
    lead = " ".join([*([MEAN] if shifted else []), *([LOST] if lost else []), "The smaller figures are 95 % intervals."])
    title = "The model at a glance" if len(cards) == 1 else "The models at a glance"
    return Section(title, tag("div", *cards, cls="cards"), "Models", lead)


def _row(frame: pl.DataFrame, model: str) -> Row | None:
    found = frame.filter(pl.col("model") == model).to_dicts()
    return found[0] if found else None


def _card(view: View, model: str) -> Html:
    parts = [tag("h3", model), _figures(view, model), _dial(view, model), _by_shift(view, model), _missing(view, model)]
    return tag("article", *parts, cls="card model", style=f"--pen:{pen(view, model).colour}")


def _figures(view: View, model: str) -> Html:
    clean = _row(view.compute(metrics.accuracy, UNTOUCHED, by=("model",)), model)
    under = _row(view.compute(metrics.mean_accuracy, by=("model",)), model)
    drop = _row(view.compute(metrics.accuracy_drop, by=("model",)), model)
    named = [("Clean", clean, percent), ("Under shift", under, percent), ("Drop", drop, _fall)]
    shown = [
        _figure(name, row, format_value) for name, row, format_value in named if row is not None and row["value"] is not None
    ]
    return tag("dl", *shown, cls="figures") if shown else EMPTY


def _fall(value: float | None) -> str:
    """Return a drop as the change of the accuracy, so with its sign reversed."""
    return points(None if value is None else -value)


def _figure(name: str, row: Row, format_value: Any) -> Html:
    ends = sorted((row["low"], row["high"]), reverse=format_value is _fall)
    low, high, big = (format_value(value).removesuffix(f"{THIN}points") for value in (*ends, row["value"]))
    interval = join([tag("small", between(low, high)), tag("small", f"n = {row['n']}")])
    return tag("div", tag("dt", name + (" (points)" if format_value is _fall else "")), tag("dd", tag("b", big), interval))


def _dial(view: View, model: str) -> Html:
    """Return where half of all trajectories have failed, as a fraction of the greatest severity of each shift."""
    half = _row(view.compute(metrics.failure_point, by=("model",), relative=True), model)
    if half is None:
        return EMPTY
    low, high, value = half["low"] or 0.0, half["high"], half["value"]
    if value is None:
        sentence = join([tag("b", "More than half"), f" of its pictures survive the greatest severity ({_of(half)})."])
    else:
        sentence = join(
            [
                "Half of its pictures have failed at ",
                tag("b", percent(value, 0)),
                " of the greatest severity ",
                tag("span", _ends(half), cls="range"),
                _never_had(view, model),
            ]
        )
    marks = [
        tag("i", style=f"width:{100 * (1 if value is None else value):.1f}%"),
        tag("u", style=f"left:{100 * low:.1f}%;right:{100 - 100 * (1 if high is None else high):.1f}%"),
        *([tag("b", style=f"left:{100 * value:.1f}%")] if value is not None else []),
    ]
    ends = tag("div", tag("span", "untouched"), tag("span", "greatest severity"), cls="ends")
    return tag("div", tag("p", sentence), tag("div", *marks, cls="track", aria_hidden="true"), ends, cls="dial")


def _never_had(view: View, model: str) -> str:
    """Say how many of the failed pictures were wrong when clean."""
    clean = _row(view.compute(metrics.accuracy, UNTOUCHED, by=("model",)), model)
    if clean is None or clean["value"] is None or clean["value"] == 1:
        return "."
    return f", counting the {percent(1 - clean['value'], 0)} that it has wrong when clean."


def _of(row: Row) -> str:
    return f"{row['survived']} of {row['n']}"


def _ends(row: Row) -> str:
    top = "above 100\u202f%" if row["high"] is None else percent(row["high"], 0)
    return f"({between(percent(row['low'], 0), top)}, n = {row['n']} trajectories)"


def _by_shift(view: View, model: str) -> Html:
    own = pl.col("model") == model
    lost, halved = (
        {row["shift"]: row for row in view.compute(metric).filter(own).to_dicts()}
        for metric in (metrics.failure_point, metrics.half_accuracy)
    )
    lines = [_line(view, shift, lost[shift], halved.get(shift)) for shift in view.shifts if shift in lost]
    return grid(["Severity", "half failed", "half lost", "survive"], lines) if lines else EMPTY


def _line(view: View, shift: str, lost: Row, halved: Row | None) -> list[object]:
    name = join([breakable(shift), tag("small", f" {unit}")]) if (unit := view.unit(shift)) else shift
    return [
        name,
        _point(lost),
        _point(halved) if halved is not None and halved["clean"] else DASH,
        percent(lost["survived"] / lost["n"], 0),
    ]


def _point(row: Row) -> Html:
    """Return a severity with its interval; a missing one lies above the greatest severity."""
    value = "> max" if row["value"] is None else number(row["value"])
    high = "max" if row["high"] is None else number(row["high"])
    interval = "> max" if row["low"] is None else f"{number(row['low'])} to {high}"
    return join([value, tag("small", interval)])


def _missing(view: View, model: str) -> Html:
    row = _row(view.compute(metrics.accuracy, by=("model",)), model)
    if row is None or not row["missing"]:
        return EMPTY
    counts = "counts" if row["missing"] == 1 else "count"
    return tag("p", f"{several(row['missing'], 'prediction')} failed and {counts} as missing, not as wrong.", cls="warn")
