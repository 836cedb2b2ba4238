"""Shared parts of the sections on OOD scores: the scorers in order, their pens, and their charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from sorites.reports.components.charts import COLOURS, DASHES, HEIGHT, LEGEND_ROW, SYMBOLS, Pen, figure, plot
from sorites.reports.components.markup import DASH, Html, between, join, percent, safe, tag
from sorites.reports.view import View

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Charts with more lines are unreadable; a table replaces them.
MAX_LINES = 6


def scorers(view: View) -> tuple[str, ...]:
    """Return all scorers of the table, in the order of the suites."""
    rows = view.table.filter(pl.col("output") == "ood").select(pl.col("scorer").unique())
    present = set(rows.collect(engine="streaming")["scorer"].drop_nulls())
    listed = [name for record in view.records for name in record.suite.scorers]
    return tuple(name for name in dict.fromkeys([*listed, *sorted(present)]) if name in present)


def scorer_pen(names: Sequence[str], scorer: str) -> Pen:
    """Return the pen of a scorer in charts with one line per scorer."""
    position = names.index(scorer)
    cycle = position // len(COLOURS)
    return Pen(
        COLOURS[position % len(COLOURS)], DASHES[cycle % len(DASHES)], SYMBOLS[position % len(SYMBOLS)]
    )


def estimate(row: Mapping[str, Any] | None, *more: str) -> Html:
    """Format a share with its interval and further notes in small print."""
    if row is None or row["value"] is None:
        return safe(DASH)
    small = [between(percent(row["low"]), percent(row["high"]))] if row.get("low") is not None else []
    return join([percent(row["value"]), tag("small", ", ".join([*small, *more]))])


def chart(
    view: View,
    names: Sequence[str],
    axes: tuple[str, str],
    lines: Mapping[str, Mapping[str, Any]],
    **options: Any,
) -> Html:
    """Draw a chart with one line per scorer.

    Args:
        view: The view of the page.
        names: All scorers, in order.
        axes: The titles of both axes.
        lines: The trace of each scorer to draw.
        **options: ``label``, and optionally ``xaxis`` and ``yaxis``.
    """
    fig = figure(view, *axes, **{key: options[key] for key in ("xaxis", "yaxis") if key in options})
    for name, trace in lines.items():
        fig.add_trace(_trace(scorer_pen(names, name), name, trace))
    _legend(fig, list(lines))
    return plot(fig, options["label"])


def _trace(drawn: Pen, name: str, trace: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": safe(name),
        "marker": {"symbol": drawn.symbol, "size": 7, "color": drawn.colour},
        "line": {"color": drawn.colour, "width": 2.0, "dash": drawn.dash},
        **trace,
    }


def _legend(fig: go.Figure, names: Sequence[str], width: float = 400) -> None:
    across = max(1, int(width // max(44 + 7 * len(name) for name in names)))
    room = LEGEND_ROW * math.ceil(len(names) / across)
    fig.update_layout(showlegend=True, margin_t=12 + room, height=HEIGHT + room)
