"""The section of mAP over severity."""

from __future__ import annotations

import polars as pl

from sorites import metrics
from sorites.reports.parts.box_models import box_models
from sorites.reports.parts.charts import about, along, axis_name, card, figure, line, plot
from sorites.reports.parts.markup import Html
from sorites.reports.section import Section, add_section, multiples
from sorites.reports.view import View


@add_section(order=21)
def box_curves(view: View) -> Section | None:
    """Small multiples, one per shift; every curve starts from the clean pictures at severity 0."""
    if not box_models(view):
        return None
    rows = view.compute(map_from_clean).drop_nulls(["severity", "value"])
    top = float(rows["high"].fill_null(rows["value"]).max() or 1)  # type: ignore[arg-type]
    cards = [_card(view, shift, part, top) for shift in view.shifts if (part := rows.filter(pl.col("shift") == shift)).height]
    lead = (
        "Severity 0 is the untouched picture; severity rises in the unit of each shift. The band is the 95 % interval over "
        "pictures."
    )
    return multiples(view, cards, "mAP as severity rises", "mAP", lead)


def map_from_clean(table: pl.LazyFrame) -> pl.DataFrame:
    """Return mAP with clean pictures at severity 0 of every shift."""
    return metrics.map(metrics.with_clean(table))


def _card(view: View, shift: str, rows: pl.DataFrame, top: float) -> Html:
    upright = {"range": [-0.02 * top, 1.04 * top], "tickformat": ".0%", "nticks": 5}
    fig = figure(view, axis_name(view, shift), "mAP", yaxis=upright, xaxis=along(rows["severity"]))
    for model in view.models:
        mine = rows.filter(pl.col("model") == model).sort("severity")
        if mine.height:
            line(fig, view, model, mine.with_columns(pl.col("low", "high").fill_null(pl.col("value"))), "mAP")
    return card(shift, about(view, shift), plot(fig, f"mAP of each detector against the severity of {shift}"))
