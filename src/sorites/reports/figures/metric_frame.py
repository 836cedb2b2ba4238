"""The answers of metrics for users of the library: polars frames with a chart and a heading in notebooks.

Inside the package metrics return plain frames; only ``sorites.NAME(...)`` wraps them.
"""

from __future__ import annotations

import functools
import html
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from sorites.core import CLEAN, SHIFTS, Metric
from sorites.core.errors import SoritesError
from sorites.metrics import interval_note

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Rows that a notebook shows, and that a chart of single values may have.
SHOWN_ROWS = 60
# Charts of a figure side by side, the height of one and the space between two rows of them, px.
COLUMNS, HEIGHT, BETWEEN = 3, 268, 84

Row = dict[str, Any]


@dataclass(frozen=True)
class Axis:
    """The horizontal axis of curves.

    Attributes:
        key: The column of the answer that has one value per point of a curve.
        column: The column that is drawn.
        title: What stands below the axis; empty for the severity with the unit of the shift.
        bars: Draw intervals at each point; a band is drawn where points are dense.
    """

    key: str
    column: str
    title: str
    bars: bool = True


AXES = (
    Axis("severity", "severity", ""),
    Axis("coverage", "coverage", "share of images answered", bars=False),
    Axis("bin", "conf", "confidence"),
)
# Metrics whose values are severities, each in the unit of its shift.
SEVERITIES = ("failure_severity", "half_accuracy_severity", "box_failure_severity")
NOT_REACHED = "not reached"
# What the values of a metric are called, where its name is that of the chart.
VALUES = {"risk_coverage": "error of the answered images", "reliability": "accuracy"}


class MetricFrame(pl.DataFrame):
    """The answer of a metric: a polars frame with the columns ``by``, value, n and often low and high.

    ``filter`` keeps the class; other polars operations return plain frames.

    Attributes:
        metric: The name of the metric; ``value`` if an operation of polars has lost it.
    """

    metric: str = "value"

    @classmethod
    def of(cls, frame: pl.DataFrame, metric: str) -> MetricFrame:
        """Return a frame as the answer of a metric."""
        made = cls(frame)
        made.metric = metric
        return made

    def filter(self, *predicates: Any, **constraints: Any) -> MetricFrame:
        """Return the rows that satisfy polars expressions."""
        return MetricFrame.of(super().filter(*predicates, **constraints), self.metric)

    def plot(self) -> go.Figure:  # type: ignore[override]
        """Return a plotly figure with the 95 % intervals, in the colours of the report.

        Answers by severity are curves, one chart per shift, which begin at the clean value. Those of
        ``risk_coverage`` and ``reliability`` are curves by the share of images answered and by confidence.
        Severities at which a model fails are points in a chart per shift, since each has its own unit;
        others are a row of points per group. The chart of polars is ``pl.DataFrame(answer).plot``.

        Raises:
            SoritesError: There is nothing to draw, or too much for one chart.
        """
        _refuse(self)
        axis = _axis_of(self)
        if axis is not None:
            return _curves(self, axis)
        return _severities(self) if self.metric in SEVERITIES and "shift" in _keys(self) else _points(self)

    def _repr_html_(self, *, _from_series: bool = False) -> str:
        said = [f"{self.metric}: {self.height} row{'' if self.height == 1 else 's'}"]
        if "low" in self.columns:
            said.append("low and high are the bounds of the 95 % interval")
        said += [note] if (note := interval_note(self.metric, self)) else []
        with pl.Config(tbl_rows=SHOWN_ROWS, tbl_cols=20):
            return f"<p>{html.escape('; '.join(said))}</p>{super()._repr_html_(_from_series=_from_series)}"


def with_chart(metric: Metric) -> Metric:
    """Wrap a metric so that it returns its answer as a ``MetricFrame``."""

    @functools.wraps(metric)
    def answer(*args: Any, **options: Any) -> Any:
        found = metric(*args, **options)
        return MetricFrame.of(found, metric.__name__) if isinstance(found, pl.DataFrame) else found

    return answer


def _keys(frame: pl.DataFrame) -> list[str]:
    """Return the columns that identify a row: those before ``value``."""
    return frame.columns[: frame.columns.index("value")]


def _axis_of(frame: pl.DataFrame) -> Axis | None:
    """Return the axis along which the rows of a group are a curve, if there is one."""
    keys = _keys(frame)
    found = (axis for axis in AXES if axis.key in keys and axis.column in frame.columns)
    return next((axis for axis in found if frame[axis.key].n_unique() > 1), None)


def _refuse(frame: MetricFrame) -> None:
    if "value" not in frame.columns or not frame["value"].dtype.is_numeric():
        raise SoritesError(f"the answer of {frame.metric} has no column value with numbers to draw")
    if not frame["value"].count():
        raise SoritesError(f"the answer of {frame.metric} has no values to draw")
    if _axis_of(frame) is None and frame.height > SHOWN_ROWS:
        raise SoritesError(
            f"the answer of {frame.metric} has {frame.height} rows, and a chart shows up to {SHOWN_ROWS}."
            " Choose fewer columns in by, or filter it"
        )


def _name(row: Row, keys: Iterable[str]) -> str:
    return " · ".join("–" if row[key] is None else str(row[key]) for key in keys)


def _bounds(row: Row) -> tuple[float | None, float | None]:
    return row.get("low"), row.get("high")


def _hover(row: Row) -> str:
    low, high = _bounds(row)
    interval = "" if low is None or high is None else f" [{low:.3f}, {high:.3f}]"
    return f"{row['value']:.3f}{interval}, n = {row['n']}"


def _error(rows: list[Row], side: str) -> dict[str, Any]:
    """Return plotly's error bars; a missing bound is a bar of length 0."""
    above = [0.0 if row.get("high") is None else row["high"] - row["value"] for row in rows]
    below = [0.0 if row.get("low") is None else row["value"] - row["low"] for row in rows]
    return {f"error_{side}": {"type": "data", "symmetric": False, "array": above, "arrayminus": below}}


def _pens(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    from sorites.reports.components.charts import COLOURS, SYMBOLS

    return {
        name: {"color": COLOURS[at % len(COLOURS)], "symbol": SYMBOLS[at % len(SYMBOLS)]}
        for at, name in enumerate(dict.fromkeys(names))
    }


def _rows_of(frame: pl.DataFrame) -> list[Row]:
    return frame.filter(pl.col("value").is_not_null()).rows(named=True)


def _points(frame: MetricFrame) -> go.Figure:
    """Return one point per row; groups with the same model have one colour."""
    from sorites.reports.components.charts import figure_of

    keys = _keys(frame)
    colour = [key for key in keys if key == "model"]
    label = [key for key in keys if key not in colour] or colour
    rows = _rows_of(frame)
    pens = _pens(_name(row, colour) for row in rows)
    fig = figure_of(
        list(pens), frame.metric.replace("_", " "), "", yaxis={"type": "category", "autorange": "reversed"}
    )
    for name, marker in pens.items():
        mine = [row for row in rows if _name(row, colour) == name]
        fig.add_trace(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [row["value"] for row in mine],
                "y": [_name(row, label) or "all" for row in mine],
                "text": [_hover(row) for row in mine],
                "hoverinfo": "text+name",
                "marker": {**marker, "size": 8},
                **_error(mine, "x"),
            }
        )
    fig.update_layout(height=max(HEIGHT, 90 + 22 * len({_name(row, label) for row in rows})))
    return fig


def _severities(frame: MetricFrame) -> go.Figure:
    """Return one chart per shift, in its unit, with a point per remaining group."""
    keys = [key for key in _keys(frame) if key != "shift"]
    rows = frame.rows(named=True)
    pens = _pens(_name(row, keys) or "all" for row in rows)
    shifts = list(dict.fromkeys(_name(row, ["shift"]) for row in rows))
    fig, places = _charts(shifts, list(pens), "severity", "", 130 + 26 * len(pens))
    for shift, where in zip(shifts, places, strict=True):
        mine = [row for row in rows if _name(row, ["shift"]) == shift]
        reached = any(row["value"] is not None for row in mine)
        for row in mine:
            name = _name(row, keys) or "all"
            if row["value"] is None:
                fig.add_annotation(text=NOT_REACHED, x=0.5, xref="x domain", y=name, showarrow=False, **where)
                continue
            fig.add_trace(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": [row["value"]],
                    "y": [name],
                    "text": [_hover(row)],
                    "hoverinfo": "text+name",
                    "marker": {**pens[name], "size": 8},
                    "showlegend": False,
                    **_error([row], "x"),
                },
                **where,
            )
        fig.update_xaxes(title_text=_severity(shift), rangemode="tozero", showticklabels=reached, **where)
    fig.update_yaxes(type="category", categoryorder="array", categoryarray=list(reversed(pens)))
    fig.update_layout(showlegend=False)
    return fig


def _with_clean(rows: list[Row], keys: list[str]) -> Iterator[Row]:
    """Yield the rows, and the clean one of each group as the first point of each of its shifts."""
    groups = [key for key in keys if key not in ("shift", "severity")]
    shifted = [row for row in rows if row.get("shift") != CLEAN]
    yield from shifted or rows
    if shifted and "shift" in keys:
        for row in rows:
            if row["shift"] == CLEAN:
                same = {key: row[key] for key in groups}
                shifts = {r["shift"] for r in shifted if {key: r[key] for key in groups} == same}
                yield from ({**row, "shift": shift, "severity": 0.0} for shift in sorted(shifts))


def _rows_along(frame: MetricFrame, axis: Axis, keys: list[str]) -> list[Row]:
    """Return the rows with a position on ``axis``, with the clean one of each curve along severities."""
    rows = _rows_of(frame)
    rows = list(_with_clean(rows, keys)) if axis.key == "severity" else rows
    return [row for row in rows if row[axis.column] is not None]


def _curves(frame: MetricFrame, axis: Axis) -> go.Figure:
    """Return one chart per shift with a curve per remaining group."""
    keys, what = _keys(frame), VALUES.get(frame.metric, frame.metric.replace("_", " "))
    groups = [key for key in keys if key not in ("shift", axis.key)]
    rows = _rows_along(frame, axis, keys)
    curves: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        shift = _name(row, ["shift"]) if "shift" in keys else ""
        curves.setdefault(shift, {}).setdefault(_name(row, groups), []).append(row)
    pens = _pens(_name(row, groups) for row in rows)
    titles = list(curves) if len(pens) > 1 or any(curves) else list(pens)
    fig, places = _charts(titles, list(pens), axis.title or "severity", what)
    for at, (shift, where) in enumerate(zip(curves, places, strict=True)):
        for name, marker in pens.items():
            mine = sorted(curves[shift].get(name, []), key=lambda row: row[axis.column])
            shown = {"name": name, "legendgroup": name, "showlegend": at == 0 and len(pens) > 1}
            for trace in _curve(mine, axis, marker):
                fig.add_trace({**shown, **trace}, **where)
        fig.update_xaxes(title_text=axis.title or _severity(shift), **where)
    fig.update_yaxes(title_text=what, col=1)
    return fig


def _charts(
    titles: list[str], names: list[str], x: str, what: str, height: int = HEIGHT
) -> tuple[go.Figure, list[dict[str, int]]]:
    """Return a figure of empty charts side by side, ``height`` px each, and the place of each."""
    from plotly.subplots import make_subplots

    from sorites.reports.components.charts import figure_of

    down, across = -(-len(titles) // COLUMNS), min(len(titles), COLUMNS)
    total = height * down + 60
    fig = make_subplots(
        rows=down,
        cols=across,
        subplot_titles=titles,
        figure=figure_of(names, x, what),
        shared_yaxes="all",
        horizontal_spacing=0.06,
        vertical_spacing=BETWEEN / total,
    )
    fig.update_xaxes(zeroline=False, showgrid=False, title_standoff=8)
    fig.update_layout(height=total, margin={"t": 60})
    return fig, [{"row": at // COLUMNS + 1, "col": at % COLUMNS + 1} for at in range(len(titles))]


def _curve(rows: list[Row], axis: Axis, marker: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the traces of a curve: its interval as a band or as bars, and its line."""
    along = [row[axis.column] for row in rows]
    if not axis.bars:
        bounded = [row for row in rows if None not in _bounds(row)]
        there = [row[axis.column] for row in bounded]
        yield {
            "type": "scatter",
            "mode": "lines",
            "x": [*there, *reversed(there)],
            "y": [*(row["high"] for row in bounded), *(row["low"] for row in reversed(bounded))],
            "fill": "toself",
            "fillcolor": marker["color"],
            "opacity": 0.15,
            "line": {"width": 0},
            "hoverinfo": "skip",
            "showlegend": False,
        }
    yield {
        "type": "scatter",
        "mode": "lines+markers" if axis.bars else "lines",
        "x": along,
        "y": [row["value"] for row in rows],
        "text": [_hover(row) for row in rows],
        "hoverinfo": "x+text+name",
        "marker": marker,
        "line": {"color": marker["color"]},
        **(_error(rows, "y") if axis.bars else {}),
    }


def _severity(shift: str) -> str:
    unit = SHIFTS.get(shift).unit if shift in SHIFTS.names() else ""
    return f"severity ({unit})" if unit else "severity"
