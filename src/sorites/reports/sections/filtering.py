"""The section on filtering: which pictures a filter removed, and how that changes the curves."""

from __future__ import annotations

import polars as pl

from sorites import metrics
from sorites.reports.parts.charts import PERCENT_AXIS, along, axis_name, card, figure, pen, plot, small_multiples
from sorites.reports.parts.markup import Html, grid, join, number, percent, safe, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import View


@add_section(order=25)
def filtering(view: View) -> Section | None:
    """Accuracy with all pictures and with those kept, and the number kept at each severity; absent without a filter."""
    judged = view.table.filter((pl.col("output") == "label") & pl.col("valid").is_not_null())
    counts = (
        judged.select("shift", "severity", "image_id", "valid").unique("image_id").group_by("shift", "severity")
        .agg(all=pl.len(), kept=pl.col("valid").sum()).sort("shift", "severity").collect(engine="streaming")
    )  # fmt: skip
    if not counts.height or counts["all"].sum() == counts["kept"].sum():
        return None
    curves = view.compute(metrics.filtered_accuracy).filter(pl.col("severity").is_not_null())
    cards = [_card(view, shift, part) for shift in view.shifts if (part := curves.filter(pl.col("shift") == shift)).height]
    rows = [[r["shift"], number(r["severity"]), r["all"], r["kept"], percent(r["kept"] / r["all"])] for r in counts.to_dicts()]
    table = grid(["shift", "severity", "pictures", "kept", "share kept"], rows, caption="Pictures that the filter kept")
    lead = "Solid lines show the pictures that the filter kept, as everywhere on this page; dotted lines show all pictures."
    body = join([small_multiples(view, cards), tag("div", tag("article", table, cls="card"), cls="below")])
    return Section("Which pictures did the filter remove?", body, "Filter", lead)


def _card(view: View, shift: str, rows: pl.DataFrame) -> Html:
    fig = figure(view, axis_name(shift), "accuracy", yaxis=dict(PERCENT_AXIS), xaxis=along(rows["severity"]))
    for model in view.models:
        for version, dash in (("filtered", "solid"), ("all", "dot")):
            model_rows = rows.filter(pl.col("model") == model, pl.col("version") == version).sort("severity")
            fig.add_trace(_line(view, model, model_rows, version, dash))
    return card(shift, plot(fig, f"Accuracy under {shift} with and without the pictures that the filter set aside"))


def _line(view: View, model: str, rows: pl.DataFrame, version: str, dash: str) -> dict[str, object]:
    drawn = pen(view, model)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": safe(model),
        "legendgroup": model,
        "showlegend": version == "filtered",
        "x": rows["severity"].to_list(),
        "y": rows["value"].to_list(),
        "customdata": rows["n"].to_list(),
        "line": {"color": drawn.colour, "width": 2.0, "dash": dash},
        "marker": {"symbol": drawn.symbol, "size": 6, "color": drawn.colour},
        "hovertemplate": f"<b>%{{fullData.name}}</b>, {version}<br>severity %{{x:.4~g}}<br>accuracy %{{y:.1%}}"
        "<br>n = %{customdata}<extra></extra>",
    }
