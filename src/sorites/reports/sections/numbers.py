"""The section with the numbers behind the curves, to read and to copy."""

from __future__ import annotations

from typing import Any

from sorites import metrics
from sorites.reports.parts.markup import Html, count, grid, number, percent, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import View


@add_section(order=80)
def numbers(view: View) -> Section | None:
    """A folded table of accuracy by model, shift and severity."""
    answer = view.compute(metrics.accuracy)
    if not answer.height:
        return None
    places = {name: i for i, name in enumerate(view.shifts)}
    rows = sorted(answer.to_dicts(), key=lambda row: places.get(row["shift"], -1))
    table = grid(
        ["model", "shift", "unit", "severity", "accuracy", "low", "high", "n", "missing"],
        [_line(view, row) for row in rows],
        text=3,
    )
    folded = tag("details", tag("summary", f"Accuracy by model, shift and severity ({count(len(rows))} rows)"), table)
    return Section(
        "All accuracies as numbers",
        folded,
        "Numbers",
        "Select the table to copy it into a spreadsheet; low and high are the ends of the 95 % interval.",
    )


def _line(view: View, row: dict[str, Any]) -> list[str | Html]:
    shares = [percent(row[name]) for name in ("value", "low", "high")]
    return [
        row["model"],
        row["shift"],
        view.unit(row["shift"]),
        number(row["severity"], 6),
        *shares,
        count(row["n"]),
        count(row["missing"]),
    ]
