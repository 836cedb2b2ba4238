"""The section of accuracy curves over severity."""

from __future__ import annotations

import polars as pl

from sorites import metrics
from sorites.reports.parts.charts import PERCENT_AXIS, about, along, axis_name, card, figure, line, plot
from sorites.reports.parts.markup import Html
from sorites.reports.section import Section, add_section, multiples
from sorites.reports.view import View


@add_section(order=20)
def curves(view: View) -> Section | None:
    """Small multiples, one per shift; every curve starts from the clean pictures at severity 0."""
    shares = points(view)
    cards = [_card(view, shift, rows) for shift in view.shifts if (rows := shares.filter(pl.col("shift") == shift)).height]
    lead = "Severity 0 is the untouched picture; severity rises in the unit of each shift. The band is the 95 % interval."
    if len(view.models) > 1:
        lead += (
            " Click a model in any legend to hide it on the whole page, double-click to see it alone; with keys, Enter and "
            "Shift-Enter do the same."
        )
    return multiples(view, cards, "Accuracy as severity rises", "Accuracy", lead)


def points(view: View) -> pl.DataFrame:
    """Return accuracy by model, shift and severity, with clean pictures at 0; settings without a severity are left out."""
    shares = view.compute(from_clean)
    return shares.filter(pl.col("shift").is_in(view.shifts) & pl.col("severity").is_not_null() & pl.col("value").is_not_null())


def from_clean(table: pl.LazyFrame) -> pl.DataFrame:
    """Return accuracy with clean pictures at severity 0 of every shift."""
    return metrics.accuracy(metrics.with_clean(table))


def _card(view: View, shift: str, rows: pl.DataFrame) -> Html:
    fig = figure(view, axis_name(view, shift), "accuracy", yaxis=PERCENT_AXIS, xaxis=along(rows["severity"]))
    for model in view.models:
        model_rows = rows.filter(pl.col("model") == model).sort("severity")
        if model_rows.height:
            line(fig, view, model, model_rows, "accuracy")
    return card(shift, about(view, shift), plot(fig, f"Accuracy of each model against the severity of {shift}"))
