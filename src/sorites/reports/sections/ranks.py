"""The section on ranks: the order of the models at each severity."""

from __future__ import annotations

import polars as pl

from sorites import metrics
from sorites.reports.parts.charts import axis_name, card, figure, pen, plot
from sorites.reports.parts.markup import Html, number, safe
from sorites.reports.section import Section, add_section, multiples
from sorites.reports.view import View

STEP, SPREAD = 0.24, 0.8
"""Models that share a rank are drawn STEP ranks apart and take at most SPREAD of a rank together."""


@add_section(order=40)
def ranks(view: View) -> Section | None:
    """One bump chart per shift; absent with fewer than two models, or where they were not judged on the same samples."""
    if len(view.models) < 2 or not view.comparable:
        return None
    placed = view.compute(metrics.rank).filter(pl.col("value").is_not_null() & pl.col("severity").is_not_null())
    of_shifts = {shift: rows for shift in view.shifts if (rows := placed.filter(pl.col("shift") == shift)).height}
    alike = [shift for shift, rows in of_shifts.items() if rows["value"].n_unique() == 1]
    cards = [_card(view, shift, rows) for shift, rows in of_shifts.items() if shift not in alike]
    lead = (
        "The best model is on top. A model is ranked below another only where their one-sigma intervals do not overlap; "
        "models whose intervals overlap share a rank and are drawn close together, the more accurate one above. Ranks look at "
        "each model alone; the summary at the top compares models picture by picture, which can tell more of them apart."
    ) + (f" All models share one rank at every severity of {', '.join(alike)}." if alike else "")
    return multiples(view, cards, "Does the order of the models change?", "Ranks", lead)


def _card(view: View, shift: str, rows: pl.DataFrame) -> Html:
    severities = [number(s) for s in sorted(rows["severity"].unique())]
    last = len(view.models)
    steps = {"range": [last + 0.45, 0.55], "tickvals": list(range(1, last + 1)), "showgrid": True}
    across = {"type": "category", "categoryorder": "array", "categoryarray": severities}
    fig = figure(view, axis_name(view, shift), "rank", yaxis=steps, xaxis=across)
    fig.update_layout(height=fig.layout.height + 16 * max(0, last - 4))
    placed = _apart(rows, view.models)
    for model in view.models:
        model_rows = placed.filter(pl.col("model") == model).sort("severity")
        if model_rows.height:
            fig.add_trace(_bump(view, model, model_rows))
    return card(shift, plot(fig, f"Rank of each model against the severity of {shift}"))


def _apart(rows: pl.DataFrame, models: tuple[str, ...]) -> pl.DataFrame:
    """Add the column ``at``: the rank, moved a little where several models share it so that each can be seen.

    Those that share it stand in the order of their accuracy, and equally accurate ones in that of the suite.
    """
    order = pl.col("model").replace_strict(list(models), list(range(len(models))), return_dtype=pl.Int64)
    shared = ("severity", "value")
    best_first = pl.struct(-pl.col("accuracy"), order.alias("order")).rank("ordinal")
    place = best_first.over(shared).cast(pl.Float64) - (pl.len().over(shared) + 1) / 2
    step = (SPREAD / (pl.len().over(shared) - 1).clip(1)).clip(upper_bound=STEP)
    return rows.with_columns(at=pl.col("value") + place * step)


def _bump(view: View, model: str, rows: pl.DataFrame) -> dict[str, object]:
    drawn = pen(view, model)
    return {
        "type": "scatter",
        "name": safe(model),
        "legendgroup": model,
        "x": [number(s) for s in rows["severity"]],
        "y": rows["at"].to_list(),
        "customdata": [list(hover) for hover in rows.select("value", "accuracy", "n").iter_rows()],
        "mode": "lines+markers",
        "line": {"color": drawn.colour, "width": 2.6, "dash": drawn.dash},
        "marker": {"symbol": drawn.symbol, "size": 11, "color": drawn.colour},
        "hovertemplate": "<b>%{fullData.name}</b><br>severity %{x}<br>rank %{customdata[0]}"
        "<br>accuracy %{customdata[1]:.1%}<br>n = %{customdata[2]}<extra></extra>",
    }
