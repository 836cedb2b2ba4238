"""The section on filtering: which pictures a filter removed, and how that changes the curves."""

from __future__ import annotations

import polars as pl

from sorites import metrics
from sorites.pipeline.filtering import NAME
from sorites.pipeline.out_of_class import OUTSIDE, quality, scores_of
from sorites.reports.parts.charts import PERCENT_AXIS, along, axis_name, card, figure, pen, plot, small_multiples
from sorites.reports.parts.markup import Html, grid, join, number, percent, safe, several, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import UNTOUCHED, RunView, View

VERSIONS = {"filtered": "solid", "all": "dot", "labelled": "dash"}
"""The curves of figure 3 of CNS-Bench and how each is drawn."""
PLAIN = {
    "class_text": "text of the class",
    "shift_text": "text of class and shift",
    "joint_image": "clean picture, referee",
    "own_image": "clean picture, second encoder",
    "text": "rule text",
    "paper": "rule paper",
    "code": "rule code",
}
"""The names on the page of the votes and the rules of the out-of-class filter."""


@add_section(order=25)
def filtering(view: View) -> Section | None:
    """Accuracy with all pictures, with those kept and, where there are labels by hand, with those in class; how many were kept,
    and the quality of each vote and rule. Absent without a filter."""
    judged = view.table.filter((pl.col("output") == "label") & pl.col("valid").is_not_null())
    counts = (
        judged.select("shift", "severity", "image_id", "valid").unique("image_id").group_by("shift", "severity")
        .agg(all=pl.len(), kept=pl.col("valid").sum()).sort("shift", "severity").collect(engine="streaming")
    )  # fmt: skip
    qualities = [found for run in view.runs if (found := _quality(run)) is not None]
    if not counts.height or (counts["all"].sum() == counts["kept"].sum() and not qualities):
        return None
    labelled = _labelled(view)
    curves = _curves(view, labelled).filter(pl.col("severity").is_not_null())
    cards = [_card(view, shift, part) for shift in view.shifts if (part := curves.filter(pl.col("shift") == shift)).height]
    rows = [[r["shift"], number(r["severity"]), r["all"], r["kept"], percent(r["kept"] / r["all"])] for r in counts.to_dicts()]
    table = grid(["shift", "severity", "pictures", "kept", "share kept"], rows, caption="Pictures that the filter kept")
    lead = "Solid lines show the pictures that the filter kept, as everywhere on this page; dotted lines show all pictures."
    if labelled.height:
        lead += (
            " Dashed lines show the pictures that people say are in their class: a good filter's line lies on them. All three "
            f"are over the {several(labelled.height, 'picture')} labelled by hand and the clean ones."
        )
    tables = [tag("article", part, cls="card") for part in [*qualities, table]]
    body = join([small_multiples(view, cards), tag("div", *tables, cls="stack below" if qualities else "below")])
    return Section("Which pictures did the filter remove?", body, "Filter", lead)


def _labelled(view: View) -> pl.DataFrame:
    """Return the images that people labelled, each with whether it stays in its class; one that shows it in part stays."""
    scores = scores_of(view.table).filter("annotated")
    return scores.select("image_id", labelled=~pl.col(OUTSIDE).fill_null(False))


def _curves(view: View, labelled: pl.DataFrame) -> pl.DataFrame:
    if not labelled.height:
        return view.compute(metrics.filtered_accuracy)
    clean = view.table.filter(UNTOUCHED).select("image_id").unique().collect(engine="streaming")
    verdicts = pl.concat([labelled, clean.with_columns(labelled=pl.lit(True))]).unique("image_id", keep="first")
    rows = view.table.join(verdicts.lazy().select("image_id"), on="image_id", how="semi")
    return metrics.filtered_accuracy(rows, verdicts=verdicts)


def _quality(run: RunView) -> Html | None:
    """Return the table of true and false positive rate and accuracy of each vote and rule (table 2b of CNS-Bench)."""
    record = run.records.get(NAME, {})
    scores = scores_of(run.table).filter(pl.col(OUTSIDE).is_not_null()) if "thresholds" in record else None
    if scores is None or not scores.height:
        return None
    found = quality(scores, record["thresholds"])
    rows = [[PLAIN[r["filter"]], percent(r["tpr"]), percent(r["fpr"]), percent(r["accuracy"]), r["n"]] for r in found.to_dicts()]
    lost = several(int(scores[OUTSIDE].sum()), "picture")
    caption = (
        f"The filter of {run.name} against labels by hand: the share of the {lost} out of class that is set aside (TPR), the "
        f"share of the others that is (FPR), and the share judged as people do; thresholds {record['from']}, rule used "
        f"{record['rule']}"
    )
    return grid(["by", "TPR", "FPR", "accuracy", "n"], rows, caption=caption)


def _card(view: View, shift: str, rows: pl.DataFrame) -> Html:
    fig = figure(view, axis_name(view, shift), "accuracy", yaxis=dict(PERCENT_AXIS), xaxis=along(rows["severity"]))
    for model in view.models:
        for version, dash in VERSIONS.items():
            model_rows = rows.filter(pl.col("model") == model, pl.col("version") == version).sort("severity")
            if model_rows.height:
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
