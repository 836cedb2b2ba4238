"""Shared parts of the sections that are computed from kept logits: numbers of several methods by severity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from sorites.analysis.uncertainty.kept import Logits
from sorites.core import CLEAN
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.core.table import Table
from sorites.reports.components.charts import about, along, axis_name
from sorites.reports.components.markup import Html, count, tag
from sorites.reports.components.scorers import chart
from sorites.reports.section import Section
from sorites.reports.view import RunView, View

# Images of a model beyond which nothing is computed from its logits for a page.
MAX_IMAGES = 100_000

# Takes the table, a model, the reader of its logits and the classes; returns a row per method and setting.
Compute = Callable[[Table, str, Logits | None, Labels | None], pl.DataFrame]


def computed(view: View, schema: Mapping[str, Any], compute: Compute) -> tuple[pl.DataFrame, list[str]]:
    """Return the rows of all models with kept logits, and the models with too many images.

    Args:
        view: The view of the page.
        schema: The columns of the rows.
        compute: Computes the rows of a model.
    """
    frames, too_many = [pl.DataFrame(schema=schema)], []
    for run in view.runs:
        for model in _models(run):
            images = run.table.filter((pl.col("model") == model) & (pl.col("output") == "label"))
            if images.select(pl.len()).collect(engine="streaming").item() > MAX_IMAGES:
                too_many.append(model)
                continue
            try:
                frames.append(compute(run.table, model, run.logits, run.labels))
            except SoritesError:  # no clean images, or logits of other classes
                continue
    keys = ["model", "method", "shift", "severity", "params"]
    return pl.concat(frames).unique(keys, keep="first", maintain_order=True), too_many


def _models(run: RunView) -> list[str]:
    return [] if run.logits is None or run.record is None else list(run.record.models)


def instead(models: Sequence[str], title: str, short: str, verb: str) -> Section:
    """Return the section of models with too many images: the command that computes the numbers."""
    text = f"{', '.join(models)} judged more than {count(MAX_IMAGES)} images; type: sorites {verb} RUN"
    return Section(title, tag("p", text), short, "")


def with_clean(view: View, rows: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """Return the rows of each shift with severities, from the clean images on."""
    with_severity = rows.filter(pl.col("severity").is_not_null())
    clean = with_severity.filter(pl.col("shift") == CLEAN)
    return [
        (shift, pl.concat([clean, own]).sort("severity"))
        for shift in view.shifts
        if (own := with_severity.filter(pl.col("shift") == shift)).height
    ]


def method_card(
    view: View,
    shift: str,
    rows: pl.DataFrame,
    names: Sequence[str],
    what: tuple[str, str],
    columns: tuple[str, str, str],
    hover: str,
    level: tuple[str, float] | None = None,
    **axis: Any,
) -> Html:
    """Draw the lines of all methods against the severity of a shift.

    Args:
        view: The view of the page.
        shift: The shift.
        rows: Its rows and those of clean images, by severity.
        names: All methods, in order.
        what: The heading of the card and the title of the vertical axis.
        columns: The value and its bounds.
        hover: The value as text.
        level: The name and height of a dotted line.
        **axis: Options of the vertical axis.
    """
    parts = [(name, part) for name in names if (part := rows.filter(pl.col("method") == name)).height]
    lines: dict[str, dict[str, Any]] = {name: _line(part, *columns, hover) for name, part in parts}
    if level is not None:
        lines[level[0]] = _level(rows, level[1])
    drawn = chart(
        view,
        [*names, *([level[0]] if level else [])],
        (axis_name(view, shift), what[1]),
        lines,
        label=f"{what[0]} against the severity of {shift}",
        xaxis=along(view, shift, rows["severity"]),
        yaxis=axis,
    )
    return tag("article", tag("h3", f"{shift} · {what[0]}"), about(view, shift), drawn, cls="card")


def _level(rows: pl.DataFrame, height: float) -> dict[str, Any]:
    return {
        "x": [0, float(rows["severity"].max() or 1)],  # type: ignore[arg-type]
        "y": [height, height],
        "mode": "lines",
        "line": {"color": "#8a8a8a", "width": 1, "dash": "dot"},
        "hoverinfo": "skip",
    }


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
