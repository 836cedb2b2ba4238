"""The section on grids of shifts: the accuracy surface with the failure contour, and the interaction."""

from __future__ import annotations

import polars as pl

from sorites import metrics
from sorites.core.compositions import TIMES
from sorites.reports.components.charts import figure_of, plot, share_text
from sorites.reports.components.markup import (
    DASH,
    EMPTY,
    Html,
    between,
    count,
    grid,
    join,
    number,
    percent,
    picked,
    points,
    tag,
)
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

# From white (0 %) to dark blue (100 %).
SCALE = [[0.0, "#f7fbff"], [0.5, "#6baed6"], [1.0, "#08306b"]]
CONTOUR = "#d55e00"
# The p-value below which an interaction is called significant.
ALPHA = 0.05


@add_section(order=33)
def shift_grids(view: View) -> Section | None:
    """Surface, contour and interaction of each grid and model; absent without a grid."""
    surface = view.compute(metrics.grid_accuracy)
    if not surface.height:
        return None
    contour, excess = view.compute(metrics.failure_contour), view.compute(metrics.interaction)
    blocks: list[Html] = []
    for shift in surface["shift"].unique(maintain_order=True):
        of_shift = pl.col("shift") == shift
        cards = {
            model: _cards(
                view,
                shift,
                *(part.filter(of_shift, pl.col("model") == model) for part in (surface, contour, excess)),
            )
            for model in view.models
            if surface.filter(of_shift, pl.col("model") == model).height
        }
        blocks.append(
            join(
                [
                    tag("h3", shift),
                    _sentences(excess.filter(of_shift)),
                    picked(f"grid-{len(blocks)}", "Model", cards),
                ]
            )
        )
    lead = (
        "Two or three shifts at once. Each cell is the accuracy at one combination of severities, on the same"
        " images; darker is better, and hovering shows the interval and n. The orange line is the failure"
        " contour: the severity at which accuracy is half-way between clean accuracy and chance, with its"
        " 95 % interval (bootstrap over samples). The interaction is the joint loss minus the sum of the"
        " losses of each shift alone, in points of accuracy, paired over samples."
    )
    return Section("What if two things go wrong at once?", join(blocks), "Shift grids", lead)


def _cards(
    view: View, shift: str, surface: pl.DataFrame, contour: pl.DataFrame, excess: pl.DataFrame
) -> Html:
    """Return one surface per severity of the third shift, if there is one, and the table of interactions."""
    thirds = surface["third"].unique().sort().to_list()
    maps = []
    for third in thirds:
        same = pl.col("third").eq_missing(pl.lit(third, pl.Float64))
        named = "" if third is None else f"{shift.split(TIMES)[2]} {number(third)}"
        lines = contour if third is None else pl.DataFrame(schema=contour.schema)
        maps.append(_surface(view, shift, surface.filter(same), lines, named))
    table = tag("article", _table(shift, excess), cls="card")
    return tag("div", *maps, table, cls="cards two")


def _surface(view: View, shift: str, cells: pl.DataFrame, contour: pl.DataFrame, named: str) -> Html:
    """Return the heat map of two severities, with the contour of the second at each of the first."""
    first, second = shift.split(TIMES)[:2]
    rows = cells.to_dicts()
    xs, ys = (sorted({row[axis] for row in rows}) for axis in ("first", "second"))
    by_cell = {(row["first"], row["second"]): row for row in rows}
    drawn = figure_of([], _axis(view, first), _axis(view, second), xaxis=_ticks(xs), yaxis=_ticks(ys))
    values = [[_value(by_cell.get((x, y))) for x in xs] for y in ys]
    hover = [[_hover(by_cell.get((x, y))) for x in xs] for y in ys]
    drawn.add_trace(
        {
            "type": "heatmap",
            "x": list(range(len(xs))),
            "y": list(range(len(ys))),
            "z": values,
            "customdata": hover,
            "zmin": 0,
            "zmax": 1,
            "colorscale": SCALE,
            "showscale": False,
            "xgap": 2,
            "ygap": 2,
            "texttemplate": "%{z:.0%}",
            "hovertemplate": "%{customdata}<extra></extra>",
        }
    )
    _draw_contour(drawn, contour.sort("first"), xs, ys)
    drawn.update_layout(height=330, showlegend=False)
    heading = f"accuracy · {named}" if named else "accuracy and failure contour"
    label = f"Accuracy at each severity of {first} and {second}, with the contour of half accuracy"
    return tag("article", tag("h4", heading), plot(drawn, label), cls="card")


def _value(row: dict[str, float] | None) -> float | None:
    return None if row is None else row["value"]


def _hover(row: dict[str, float] | None) -> str:
    if row is None:
        return "not evaluated"
    value, low, high = (share_text(row[name]) for name in ("value", "low", "high"))
    return f"{value} % [{low}, {high}]<br>n = {row['n']:g}"


def _axis(view: View, shift: str) -> str:
    unit = view.unit(shift)
    return f"{shift} ({unit})" if unit else shift


def _ticks(severities: list[float]) -> dict[str, object]:
    """Return an axis of equal steps, labelled with severities."""
    return {
        "tickmode": "array",
        "tickvals": list(range(len(severities))),
        "ticktext": [number(severity) for severity in severities],
        "range": [-0.5, len(severities) - 0.5],
        "showgrid": False,
    }


def _draw_contour(drawn: object, contour: pl.DataFrame, xs: list[float], ys: list[float]) -> None:
    """Draw the line where accuracy is half-way to chance; bounds beyond the map end at its edge."""
    import numpy as np

    known = contour.filter(pl.col("value").is_not_null())
    if not known.height:
        return

    def position(value: float | None) -> float:
        """Return the place of a severity on an axis of equal steps."""
        return len(ys) - 0.5 if value is None else float(np.interp(value, ys, range(len(ys))))

    x = [xs.index(first) for first in known["first"]]
    y = [position(value) for value in known["value"]]
    up = [position(high) - at for high, at in zip(known["high"], y, strict=True)]
    down = [at - position(low) for low, at in zip(known["low"], y, strict=True)]
    hover = [
        f"half accuracy at {number(row['value'])}"
        f" [{number(row['low']) if row['low'] is not None else DASH},"
        f" {number(row['high']) if row['high'] is not None else 'beyond'}]"
        for row in known.to_dicts()
    ]
    drawn.add_trace(  # type: ignore[attr-defined]
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": x,
            "y": y,
            "error_y": {"type": "data", "array": up, "arrayminus": down, "color": CONTOUR, "thickness": 1.5},
            "line": {"color": CONTOUR, "width": 3},
            "marker": {"color": CONTOUR, "size": 7},
            "customdata": hover,
            "hovertemplate": "%{customdata}<extra></extra>",
        }
    )


def _table(shift: str, excess: pl.DataFrame) -> Html:
    """Return the interaction at each combination, largest first."""
    names = shift.split(TIMES)
    lines = []
    for row in (
        excess.filter(pl.col("first").is_not_null()).sort("value", descending=True).head(12).to_dicts()
    ):
        severities = " · ".join(number(row[axis]) for axis in ("first", "second", "third")[: len(names)])
        interval = between(points(row["low"]), points(row["high"])) if row["low"] is not None else DASH
        lines.append(
            [
                severities,
                percent(row["accuracy"]),
                percent(row["expected"]),
                join([points(row["value"]), tag("small", interval)]),
                _p_value(row["p_adjusted"]),
                count(row["n"]),
            ]
        )
    caption = (
        "Interaction: joint loss minus the sum of the losses, in points, with its 95 % interval; p is"
        " corrected for all combinations (Holm). Severe shifts cannot add up: their values are negative."
    )
    heads = [" · ".join(names), "accuracy", "if additive", "interaction", "p", "n"]
    return grid(heads, lines, text=1, caption=caption) if lines else EMPTY


def _p_value(p: float | None) -> str:
    if p is None:
        return DASH
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _sentences(excess: pl.DataFrame) -> Html:
    """Say for each model whether the shifts cost more together than the sum of their losses."""
    texts = []
    for row in excess.filter(pl.col("first").is_null()).sort("model").to_dicts():
        cells = excess.filter(
            pl.col("model") == row["model"], pl.col("first").is_not_null(), pl.col("p_adjusted") < ALPHA
        )
        more, less = (int((sign * cells["value"] > 0).sum()) for sign in (1, -1))
        texts.append(
            tag(
                "li",
                tag("b", row["model"]),
                f": {points(row['value'])} on average over the combinations whose losses can add"
                f" up; of all combinations, {more} cost significantly more than the sum and {less} less",
            )
        )
    return tag("ul", *texts) if texts else EMPTY
