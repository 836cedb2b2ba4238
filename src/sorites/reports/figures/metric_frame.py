"""The answers of metrics for users of the library: polars frames with a chart and a heading in notebooks.

Inside the package metrics return plain frames; only ``sorites.NAME(...)`` wraps them.
"""

from __future__ import annotations

import functools
import html
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import polars as pl

from sorites.core import CLEAN, SHIFTS, Metric
from sorites.core.errors import SoritesError
from sorites.metrics import interval_note

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Rows that a notebook shows, and that a chart of single values may have.
SHOWN_ROWS = 60
# Charts of a figure side by side, and the height of one, px.
COLUMNS, HEIGHT = 3, 268

Row = dict[str, Any]


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

        Answers by severity are curves, one chart per shift, which begin at the clean value; others are a
        row of points per group. The chart of polars is ``pl.DataFrame(answer).plot``.

        Raises:
            SoritesError: There is nothing to draw, or too much for one chart.
        """
        _refuse(self)
        return _curves(self) if _has_curves(self) else _points(self)

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


def _has_curves(frame: pl.DataFrame) -> bool:
    return "severity" in _keys(frame) and frame["severity"].n_unique() > 1


def _refuse(frame: MetricFrame) -> None:
    if "value" not in frame.columns or not frame["value"].dtype.is_numeric():
        raise SoritesError(f"the answer of {frame.metric} has no column value with numbers to draw")
    if not frame["value"].count():
        raise SoritesError(f"the answer of {frame.metric} has no values to draw")
    if not _has_curves(frame) and frame.height > SHOWN_ROWS:
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


def _curves(frame: MetricFrame) -> go.Figure:
    """Return one chart per shift with a curve per remaining group."""
    from plotly.subplots import make_subplots

    from sorites.reports.components.charts import figure_of

    keys = _keys(frame)
    rows = [row for row in _with_clean(_rows_of(frame), keys) if row["severity"] is not None]
    groups = [key for key in keys if key not in ("shift", "severity")]
    shifts = list(dict.fromkeys(_name(row, ["shift"]) if "shift" in keys else "" for row in rows))
    pens = _pens(_name(row, groups) for row in rows)
    down, across = -(-len(shifts) // COLUMNS), min(len(shifts), COLUMNS)
    empty = figure_of(list(pens), "severity", frame.metric.replace("_", " "))
    fig = make_subplots(rows=down, cols=across, subplot_titles=shifts, figure=empty, shared_yaxes="all")
    for at, shift in enumerate(shifts):
        where = {"row": at // COLUMNS + 1, "col": at % COLUMNS + 1}
        for name, marker in pens.items():
            mine = sorted(
                (r for r in rows if r.get("shift", "") == shift and _name(r, groups) == name),
                key=lambda row: row["severity"],
            )
            fig.add_trace(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": name,
                    "legendgroup": name,
                    "showlegend": at == 0 and len(pens) > 1,
                    "x": [row["severity"] for row in mine],
                    "y": [row["value"] for row in mine],
                    "text": [_hover(row) for row in mine],
                    "hoverinfo": "x+text+name",
                    "marker": marker,
                    "line": {"color": marker["color"]},
                    **_error(mine, "y"),
                },
                **where,
            )
        fig.update_xaxes(title_text=_axis(shift), zeroline=False, showgrid=False, **where)
    fig.update_yaxes(title_text=frame.metric.replace("_", " "), col=1)
    fig.update_layout(height=HEIGHT * down + 60, margin={"t": 60})
    return fig


def _axis(shift: str) -> str:
    unit = SHIFTS.get(shift).unit if shift in SHIFTS.names() else ""
    return f"severity ({unit})" if unit else "severity"
