"""The section on accuracy on the line: does accuracy under shift follow clean accuracy, and which models exceed it?"""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.parts.markup import DASH, Html, grid, join, number, points, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

FEWEST = 4
"""With fewer models than this, a line means little and the section is absent."""


@add_section(order=48)
def on_line(view: View) -> Section | None:
    """Slope, r and p of each shift and severity, and each model's gain over the line; absent below four models."""
    if len(view.models) < FEWEST:
        return None
    lines = view.compute(metrics.on_the_line).filter(pl.col("value").is_not_null() & pl.col("severity").is_not_null())
    if not lines.height:
        return None
    lead = (
        f"A straight line is fitted through {len(view.models)} models, with accuracy on clean pictures on the x-axis and "
        "accuracy under the shift on the y-axis. A slope above 1 means that models which are better on clean pictures are "
        "further ahead under the shift. The gain of a model is its accuracy minus that of the line."
    )
    body = join([tag("article", _slopes(lines), cls="card"), tag("div", tag("article", _gains(view), cls="card"), cls="below")])
    return Section("Does accuracy under shift follow clean accuracy?", body, "On the line", lead)


def _slopes(lines: pl.DataFrame) -> Html:
    rows = [
        [r["shift"], number(r["severity"]), _estimate(r), number(r["r"], 2), number(r["p"], 2), r["n"]] for r in lines.to_dicts()
    ]
    return grid(
        ["shift", "severity", "slope", "r", "p", "models"],
        rows,
        caption="Least-squares lines over models, with the 95 % interval of the slope",
    )


def _estimate(row: dict[str, Any]) -> object:
    if row["low"] is None:
        return number(row["value"])
    return join([number(row["value"]), tag("small", f"{number(row['low'])} to {number(row['high'])}")])


def _gains(view: View) -> Html:
    gains = view.compute(metrics.line_gain, by=("model", "shift"))
    cells = {(row["model"], row["shift"]): row["value"] for row in gains.to_dicts()}
    shifts = [name for name in view.shifts if any(key[1] == name for key in cells)]
    lines = [[model, *(_gain(cells.get((model, shift))) for shift in shifts)] for model in view.models]
    return grid(["", *shifts], lines, caption="Gain over the line, as the mean over severities")


def _gain(value: float | None) -> str:
    return DASH if value is None else points(value)
