"""Sections on generated images: trajectories along dials of the samples, and the out-of-class filter."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.analysis.filter.rules import OUTSIDE, quality, scores_of
from sorites.analysis.sheet import spread
from sorites.core import CLEAN
from sorites.reports.components.charts import (
    PERCENT_AXIS,
    along,
    axis_name,
    card,
    figure,
    pen,
    pen_style,
    plot,
    small_multiples,
)
from sorites.reports.components.images import Album
from sorites.reports.components.markup import (
    EMPTY,
    Html,
    grid,
    join,
    number,
    percent,
    picked,
    safe,
    several,
    tag,
)
from sorites.reports.components.severities import reading_of, severity_text
from sorites.reports.section import Section, add_section
from sorites.reports.view import UNTOUCHED, RunView, View

# Maximum number of trajectories per dial, and of images per trajectory, including the clean one.
MAX_TRAJECTORIES = 6
MAX_IMAGES = 8
# Maximum size of the section's thumbnails, in bytes.
THUMBNAIL_BYTES = 900_000
COLUMNS = ("run_id", "model", "sample_id", "severity", "label", "pred", "correct", "valid")

Row = dict[str, Any]


@add_section(order=32)
def generated(view: View) -> Section | None:
    """Failure severities and trajectories of dials defined by samples; absent without such dials."""
    shifts_generated = (
        view.table.filter(pl.col("family") == "generated")
        .select(pl.col("shift").unique())
        .collect(engine="streaming")
    )
    shifts = [shift for shift in view.shifts if shift in {*shifts_generated["shift"], *view.own_dials}]
    share = THUMBNAIL_BYTES // max(1, len(shifts))
    parts = {shift: part for shift in shifts if (part := _part(view, shift, Album(view, share)))}
    if not parts:
        return None
    lead = (
        "These images come with the samples, generated at any severity. A dot is one trajectory, at its"
        " failure severity; trajectories that never fail are at the end of the line. Below an image, a"
        " filled mark is a correct model and a ring a wrong one."
    )
    return Section("Along the generated trajectories", picked("generated", "Dial", parts), "Generated", lead)


def _part(view: View, shift: str, album: Album) -> Html:
    points = metrics.trajectories(view.table.filter(pl.col("shift").is_in([CLEAN, shift]))).collect(
        engine="streaming"
    )
    if not points.height:
        return EMPTY
    rows = view.table.filter(
        pl.col("shift").is_in([CLEAN, shift]),
        pl.col("output") == "label",
        pl.col("correct").is_not_null(),
        ~pl.col("probe"),
    )
    verdicts = (
        rows.select(COLUMNS).collect(engine="streaming").with_columns(pl.col("severity").fill_null(0.0))
    )
    chosen = spread(_in_order(points), MAX_TRAJECTORIES) if any(run.image for run in view.runs) else []
    strips = [_strip(view, album, shift, key, verdicts, points) for key in chosen if album.left > 0]
    dots = tag(
        "article", _summary(view, shift, points), plot(_dots(view, shift, points), _alt(shift)), cls="card"
    )
    title = tag("h4", "Trajectories, from the first failure to the last")
    return join([dots, tag("article", title, *strips, cls="card trajectories") if strips else EMPTY])


def _summary(view: View, shift: str, points: pl.DataFrame) -> Html:
    """Return how many trajectories each model fails on, and how many images were filtered out."""
    lines = []
    for model in view.models:
        own = points.filter(pl.col("model") == model)
        if not own.height:
            continue
        lost, wrong = own["failure"].count(), own.filter(pl.col("failure") == 0).height
        clean = f", {wrong} of them when clean" if wrong else ""
        lines.append(
            tag(
                "li",
                tag("b", model),
                f" fails on {lost} of {several(own.height, 'trajectory', 'trajectories')}{clean}",
            )
        )
    return join([tag("h3", shift), tag("ul", *lines, cls="told"), _filter_note(view, shift)])


def _filter_note(view: View, shift: str) -> Html:
    """Return at which severities images were filtered out; empty without a filter."""
    rows = view.table.filter(
        pl.col("shift") == shift, ~pl.col("probe"), pl.col("valid").is_not_null()
    ).unique("image_id")
    counts = rows.group_by("severity").agg(n=pl.len(), aside=pl.col("valid").not_().sum()).sort("severity")
    by_severity = counts.collect(engine="streaming")
    if not by_severity.height:
        return EMPTY
    aside = [
        f"{row['aside']} of {row['n']} at severity {number(row['severity'])}"
        for row in by_severity.to_dicts()
        if row["aside"]
    ]
    text = (
        f"The filter removed {', '.join(aside)}; no number here counts them."
        if aside
        else "The filter kept every image."
    )
    unfiltered = view.table.filter(pl.col("shift") == shift, pl.col("probe"), pl.col("valid").is_null())
    between = unfiltered.select(pl.col("image_id").n_unique()).collect(engine="streaming").item()
    more = (
        f" It was not applied to the {several(between, 'image')} between them that refine failure severities."
        if between
        else ""
    )
    return tag("p", text + more)


def _alt(shift: str) -> str:
    return f"The severity of {shift} at which each trajectory fails, by model"


def _dots(view: View, shift: str, points: pl.DataFrame) -> Any:
    """Draw the failure severity of each trajectory in the row of its model; survivors are at the end."""
    models = [model for model in view.models if model in set(points["model"])]
    top = float(max(points["top"]))
    end, ticks = 1.2 * top, sorted({0.0, *_grid(view, shift)})
    axis = reading_of(view, shift)
    across = {
        "range": [-0.03 * top, 1.3 * top],
        "tickangle": 0,
        "tickvals": [*ticks, end],
        "ticktext": [*(axis.value(tick) for tick in ticks), "never"],
    }
    rows = {
        "tickvals": list(range(len(models))),
        "ticktext": [safe(model) for model in models],
        "showgrid": False,
    }
    fig = figure(
        view, axis_name(view, shift), "", xaxis=across, yaxis={**rows, "range": [len(models) - 0.4, -0.6]}
    )
    fig.update_layout(height=96 + 58 * len(models), showlegend=False, margin_t=10, margin_b=42)
    fig.add_vline(x=1.1 * top, line={"width": 1, "dash": "dot", "color": "#9a9a9a"})
    for position, model in enumerate(models):
        own = points.filter(pl.col("model") == model).sort("sample_id", "run_id")
        fig.add_trace(_row(view, model, own, position, end))
    return fig


def _grid(view: View, shift: str) -> list[float]:
    """Return the severities at which every trajectory was evaluated, at most ten."""
    rows = view.table.filter(pl.col("shift") == shift, ~pl.col("probe")).select(
        pl.col("severity").unique().sort()
    )
    return spread(rows.collect(engine="streaming")["severity"].drop_nulls().to_list(), 10)


def _row(view: View, model: str, points: pl.DataFrame, position: int, end: float) -> dict[str, object]:
    model_pen = pen(view, model)
    x = [end if failure is None else failure for failure in points["failure"]]
    # Multiples of the golden ratio spread the dots of a row vertically without randomness.
    y = [position + 0.62 * ((i * 0.61803398875) % 1 - 0.5) for i in range(points.height)]
    texts = [_end(failure) for failure in points["failure"]]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": safe(model),
        "legendgroup": model,
        "x": x,
        "y": y,
        "customdata": [[safe(sample), text] for sample, text in zip(points["sample_id"], texts, strict=True)],
        "marker": {
            "color": model_pen.faint(0.55),
            "symbol": model_pen.symbol,
            "size": 8,
            "line": {"width": 1, "color": model_pen.colour},
        },
        "hovertemplate": "<b>%{fullData.name}</b><br>%{customdata[0]}<br>%{customdata[1]}<extra></extra>",
    }


def _end(failure: float | None) -> str:
    return "survives" if failure is None else f"fails at {number(failure)}" if failure else "wrong when clean"


def _in_order(points: pl.DataFrame) -> list[tuple[str, str]]:
    """Return (run, sample) from first to last failure, by the mean over models; survivors come last."""
    late = pl.col("failure").fill_null(2 * pl.col("top").max()).mean()
    means = points.group_by("run_id", "sample_id").agg(late=late.round(9)).sort("late", "run_id", "sample_id")
    return list(means.select("run_id", "sample_id").iter_rows())


def _strip(
    view: View, album: Album, shift: str, key: tuple[str, str], verdicts: pl.DataFrame, points: pl.DataFrame
) -> Html:
    run_id, sample = key
    same = (pl.col("run_id") == run_id) & (pl.col("sample_id") == sample)
    rows = verdicts.filter(same).sort("severity")
    at = spread(rows["severity"].unique().sort().to_list(), MAX_IMAGES)
    lost: dict[str, float | None] = dict(points.filter(same).select("model", "failure").iter_rows())
    ends = [f"{model} {_end(lost[model])}" for model in view.models if model in lost]
    class_name = view.class_name(run_id, rows["label"][0])
    what = tag("p", tag("b", class_name), tag("span", " · ".join([sample, *ends])), cls="what")
    shots = [
        _shot(view, album, shift, key, severity, rows.filter(pl.col("severity") == severity))
        for severity in at
    ]
    columns = f"grid-template-columns:repeat({len(shots)},minmax(0,10.5rem))"
    return tag("div", what, tag("div", *shots, cls="frames", style=columns), cls="strip")


def _shot(
    view: View, album: Album, shift: str, key: tuple[str, str], severity: float, rows: pl.DataFrame
) -> Html:
    verdicts = {row["model"]: row for row in rows.to_dicts()}
    wrong = [model for model, row in verdicts.items() if not row["correct"]]
    aside = any(row["valid"] is False for row in verdicts.values())
    where = severity_text(view, shift, severity) if severity else "clean"
    outcome = f"wrong: {', '.join(wrong)}" if wrong else "all models correct"
    source = album.thumbnail(*key, shift, severity)
    alt = f"{key[1]}, {shift} {where}; {outcome}{'; filtered out' if aside else ''}"
    image = (
        tag("div", "not available", cls="gone")
        if source is None
        else tag("img", src=source, alt=alt, decoding="async")
    )
    marks = [_mark(view, model, verdicts[model]) for model in view.models if model in verdicts]
    caption = tag(
        "figcaption",
        where,
        *([tag("em", " filtered out")] if aside else []),
        tag("span", *marks, cls="marks"),
    )
    kinds = [*(["wrong"] if len(wrong) == len(verdicts) else []), *(["aside"] if aside else [])]
    return tag("figure", image, caption, cls=" ".join(kinds) or "right")


def _mark(view: View, model: str, row: Row) -> Html:
    """Return the mark of a model below an image: filled if it is correct, else a ring."""
    outcome = "correct" if row["correct"] else "wrong"
    hover = f"{model}: {view.class_name(row['run_id'], row['pred'])}, {outcome}"
    return tag("i", cls="yes" if row["correct"] else "no", style=pen_style(view, model), title=hover)


# --- The out-of-class filter

# The curves of figure 3 of CNS-Bench and how each is drawn.
VERSIONS = {"filtered": "solid", "all": "dot", "labelled": "dash"}
# Display names of the votes and rules of the filter.
DISPLAY_NAMES = {
    "class_text": "text of the class",
    "shift_text": "text of class and shift",
    "joint_image": "clean image, encoder",
    "own_image": "clean image, second encoder",
    "text": "rule text",
    "paper": "rule paper",
    "code": "rule code",
}


@add_section(order=25)
def filtering(view: View) -> Section | None:
    """Accuracy of all, kept and (if annotated) in-class images, the share kept, and the filter's quality.

    Absent without a filter.
    """
    judged = view.table.filter((pl.col("output") == "label") & pl.col("valid").is_not_null())
    counts = (
        judged.select("shift", "severity", "image_id", "valid")
        .unique("image_id")
        .group_by("shift", "severity")
        .agg(all=pl.len(), kept=pl.col("valid").sum())
        .sort("shift", "severity")
        .collect(engine="streaming")
    )
    qualities = [table for run in view.runs if (table := _quality(run)) is not None]
    if not counts.height or (counts["all"].sum() == counts["kept"].sum() and not qualities):
        return None
    labelled = _labelled(view)
    curves = _curves(view, labelled).filter(pl.col("severity").is_not_null())
    cards = [
        _card(view, shift, part)
        for shift in view.shifts
        if (part := curves.filter(pl.col("shift") == shift)).height
    ]
    rows = [
        [r["shift"], number(r["severity"]), r["all"], r["kept"], percent(r["kept"] / r["all"])]
        for r in counts.to_dicts()
    ]
    table = grid(
        ["shift", "severity", "images", "kept", "share kept"], rows, caption="Images that the filter kept"
    )
    lead = (
        "Solid lines show the images that the filter kept, as everywhere on this page; dotted lines show all"
        " images."
    )
    if labelled.height:
        lead += (
            " Dashed lines show the images annotated as in class; a good filter's line coincides with them."
            " All"
            f" three are over the {several(labelled.height, 'annotated image')} and the clean images."
        )
    tables = [tag("article", part, cls="card") for part in [*qualities, table]]
    body = join(
        [small_multiples(view, cards), tag("div", *tables, cls="stack below" if qualities else "below")]
    )
    return Section("Which images did the filter remove?", body, "Filter", lead)


def _labelled(view: View) -> pl.DataFrame:
    """Return the annotated images, and whether each is in its class, at least partially."""
    scores = scores_of(view.table).filter("annotated")
    return scores.select("image_id", labelled=~pl.col(OUTSIDE).fill_null(False))


def _curves(view: View, labelled: pl.DataFrame) -> pl.DataFrame:
    if not labelled.height:
        return view.compute(metrics.filtered_accuracy)
    clean = view.table.filter(UNTOUCHED).select("image_id").unique().collect(engine="streaming")
    verdicts = pl.concat([labelled, clean.with_columns(labelled=pl.lit(True))]).unique(
        "image_id", keep="first"
    )
    rows = view.table.join(verdicts.lazy().select("image_id"), on="image_id", how="semi")
    return metrics.filtered_accuracy(rows, verdicts=verdicts)


def _quality(run: RunView) -> Html | None:
    """Return TPR, FPR and accuracy of each vote and rule (table 2b of CNS-Bench)."""
    record = run.filtered
    if record is None or not record.thresholds:
        return None
    scores = scores_of(run.table).filter(pl.col(OUTSIDE).is_not_null())
    if not scores.height:
        return None
    rates = quality(scores, record.thresholds)
    rows = [
        [DISPLAY_NAMES[r["filter"]], percent(r["tpr"]), percent(r["fpr"]), percent(r["accuracy"]), r["n"]]
        for r in rates.to_dicts()
    ]
    lost = several(int(scores[OUTSIDE].sum()), "image")
    caption = (
        f"The filter of {run.name} against annotations: the share of the {lost} out of class that is removed"
        " (TPR), the share of the others that is removed (FPR), and the accuracy; thresholds"
        f" {record.origin}, rule {record.rule}"
    )
    return grid(["by", "TPR", "FPR", "accuracy", "n"], rows, caption=caption)


def _card(view: View, shift: str, rows: pl.DataFrame) -> Html:
    across = along(view, shift, rows["severity"])
    fig = figure(view, axis_name(view, shift), "accuracy", yaxis=dict(PERCENT_AXIS), xaxis=across)
    for model in view.models:
        for version, dash in VERSIONS.items():
            model_rows = rows.filter(pl.col("model") == model, pl.col("version") == version).sort("severity")
            if model_rows.height:
                fig.add_trace(_line(view, model, model_rows, version, dash))
    return card(shift, plot(fig, f"Accuracy under {shift} with and without the filtered images"))


def _line(view: View, model: str, rows: pl.DataFrame, version: str, dash: str) -> dict[str, object]:
    model_pen = pen(view, model)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": safe(model),
        "legendgroup": model,
        "showlegend": version == "filtered",
        "x": rows["severity"].to_list(),
        "y": rows["value"].to_list(),
        "customdata": rows["n"].to_list(),
        "line": {"color": model_pen.colour, "width": 2.0, "dash": dash},
        "marker": {"symbol": model_pen.symbol, "size": 6, "color": model_pen.colour},
        "hovertemplate": (
            f"<b>%{{fullData.name}}</b>, {version}<br>severity %{{x:.4~g}}<br>accuracy %{{y:.1%}}"
            "<br>n = %{customdata}<extra></extra>"
        ),
    }
