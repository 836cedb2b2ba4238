"""The section on dials that samples have themselves: whole trajectories, and where along the
severity each of them is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from sorites import metrics
from sorites.analysis.filter.filtering import NAME
from sorites.analysis.filter.rules import OUTSIDE, quality, scores_of
from sorites.core import CLEAN
from sorites.reports.components.charts import (
    PERCENT_AXIS,
    along,
    axis_name,
    card,
    figure,
    pen,
    plot,
    severity_text,
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
from sorites.reports.section import Section, add_section
from sorites.reports.view import UNTOUCHED, RunView, View

# There are at most this many trajectories per dial.
EACH = 6
# A trajectory shows at most this many images, the clean one among them.
ACROSS = 8
# The thumbnails of the section may take this many bytes, as encoded in the file.
WEIGHT = 900_000
COLUMNS = ("run_id", "model", "sample_id", "severity", "label", "pred", "correct", "valid")

Row = dict[str, Any]


@add_section(order=32)
def generated(view: View) -> Section | None:
    """Failure severities and trajectories of each dial of samples' own; absent where no run has such a dial."""
    made = (
        view.table.filter(pl.col("family") == "generated")
        .select(pl.col("shift").unique())
        .collect(engine="streaming")
    )
    shifts = [shift for shift in view.shifts if shift in {*made["shift"], *view.own_dials}]
    share = WEIGHT // max(1, len(shifts))
    parts = {shift: part for shift in shifts if (part := _part(view, shift, Album(view, share)))}
    if not parts:
        return None
    lead = (
        "Every sample brings these images itself, made at whatever severity is asked. A dot is one"
        " trajectory, at the least severity at which the model is wrong about it; one that is never lost"
        " stands at the end of the line. Below an image, a full mark is a model that is right and a ring one"
        " that is wrong."
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
    seen = rows.select(COLUMNS).collect(engine="streaming").with_columns(pl.col("severity").fill_null(0.0))
    chosen = _spread(_in_order(points), EACH) if any(run.image for run in view.runs) else []
    strips = [_strip(view, album, shift, key, seen, points) for key in chosen if album.left > 0]
    dots = tag(
        "article", _told(view, shift, points), plot(_dots(view, shift, points), _alt(shift)), cls="card"
    )
    title = tag("h4", "Trajectories, from the first that is lost to the last")
    return join([dots, tag("article", title, *strips, cls="card trajectories") if strips else EMPTY])


def _told(view: View, shift: str, points: pl.DataFrame) -> Html:
    """Say how many trajectories each model loses, and how many images a filter set aside."""
    lines = []
    for model in view.models:
        own = points.filter(pl.col("model") == model)
        if not own.height:
            continue
        lost, wrong = own["failure"].count(), own.filter(pl.col("failure") == 0).height
        clean = f", {wrong} of them wrong when clean" if wrong else ""
        lines.append(
            tag(
                "li",
                tag("b", model),
                f" loses {lost} of {several(own.height, 'trajectory', 'trajectories')}{clean}",
            )
        )
    return join([tag("h3", shift), tag("ul", *lines, cls="told"), _cut(view, shift)])


def _cut(view: View, shift: str) -> Html:
    """Say at which severities a filter set images aside; nothing without a filter."""
    rows = view.table.filter(
        pl.col("shift") == shift, ~pl.col("probe"), pl.col("valid").is_not_null()
    ).unique("image_id")
    kept = rows.group_by("severity").agg(n=pl.len(), aside=pl.col("valid").not_().sum()).sort("severity")
    found = kept.collect(engine="streaming")
    if not found.height:
        return EMPTY
    aside = [
        f"{row['aside']} of {row['n']} at severity {number(row['severity'])}"
        for row in found.to_dicts()
        if row["aside"]
    ]
    said = (
        f"The filter set aside {', '.join(aside)}; no number here counts them."
        if aside
        else "The filter kept every image."
    )
    unseen = view.table.filter(pl.col("shift") == shift, pl.col("probe"), pl.col("valid").is_null())
    between = unseen.select(pl.col("image_id").n_unique()).collect(engine="streaming").item()
    more = (
        f" It has not seen the {several(between, 'image')} between them that refine the failure severities."
        if between
        else ""
    )
    return tag("p", said + more)


def _alt(shift: str) -> str:
    return f"The severity of {shift} at which each trajectory is lost, model by model"


def _dots(view: View, shift: str, points: pl.DataFrame) -> Any:
    """Draw the failure severity of each trajectory in its model's row; survivors stand at the end."""
    models = [model for model in view.models if model in set(points["model"])]
    top = float(max(points["top"]))
    end, ticks = 1.2 * top, sorted({0.0, *_grid(view, shift)})
    across = {
        "range": [-0.03 * top, 1.3 * top],
        "tickangle": 0,
        "tickvals": [*ticks, end],
        "ticktext": [*(number(tick) for tick in ticks), "never"],
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
    for place, model in enumerate(models):
        own = points.filter(pl.col("model") == model).sort("sample_id", "run_id")
        fig.add_trace(_row(view, model, own, place, end))
    return fig


def _grid(view: View, shift: str) -> list[float]:
    """Return the severities of the dial that every trajectory was judged at, at most ten of them."""
    rows = view.table.filter(pl.col("shift") == shift, ~pl.col("probe")).select(
        pl.col("severity").unique().sort()
    )
    return _spread(rows.collect(engine="streaming")["severity"].drop_nulls().to_list(), 10)


def _row(view: View, model: str, points: pl.DataFrame, place: int, end: float) -> dict[str, object]:
    drawn, step = pen(view, model), 0.61803398875
    where = [end if failure is None else failure for failure in points["failure"]]
    apart = [place + 0.62 * ((i * step) % 1 - 0.5) for i in range(points.height)]
    said = [_end(failure) for failure in points["failure"]]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": safe(model),
        "legendgroup": model,
        "x": where,
        "y": apart,
        "customdata": [[safe(sample), text] for sample, text in zip(points["sample_id"], said, strict=True)],
        "marker": {
            "color": drawn.faint(0.55),
            "symbol": drawn.symbol,
            "size": 8,
            "line": {"width": 1, "color": drawn.colour},
        },
        "hovertemplate": "<b>%{fullData.name}</b><br>%{customdata[0]}<br>%{customdata[1]}<extra></extra>",
    }


def _end(failure: float | None) -> str:
    return "survives" if failure is None else f"lost at {number(failure)}" if failure else "wrong when clean"


def _in_order(points: pl.DataFrame) -> list[tuple[str, str]]:
    """Return (run, sample) from the first lost to the last, by the mean over models; a survivor
    comes after all others.
    """
    late = pl.col("failure").fill_null(2 * pl.col("top").max()).mean()
    means = points.group_by("run_id", "sample_id").agg(late=late).sort("late", "run_id", "sample_id")
    return list(means.select("run_id", "sample_id").iter_rows())


def _spread(items: Sequence[Any], most: int) -> list[Any]:
    count = min(len(items), most)
    return [items[round(i * (len(items) - 1) / max(count - 1, 1))] for i in range(count)]


def _strip(
    view: View, album: Album, shift: str, key: tuple[str, str], seen: pl.DataFrame, points: pl.DataFrame
) -> Html:
    run_id, sample = key
    same = (pl.col("run_id") == run_id) & (pl.col("sample_id") == sample)
    rows = seen.filter(same).sort("severity")
    at = _spread(rows["severity"].unique().sort().to_list(), ACROSS)
    lost: dict[str, float | None] = dict(points.filter(same).select("model", "failure").iter_rows())
    ends = [f"{model} {_end(lost[model])}" for model in view.models if model in lost]
    named = view.class_name(run_id, rows["label"][0])
    what = tag("p", tag("b", named), tag("span", " · ".join([sample, *ends])), cls="what")
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
    said = f"wrong: {', '.join(wrong)}" if wrong else "all models right"
    source = album.thumbnail(*key, shift, severity)
    alt = f"{key[1]}, {shift} {where}; {said}{'; set aside by the filter' if aside else ''}"
    image = (
        tag("div", "not available", cls="gone")
        if source is None
        else tag("img", src=source, alt=alt, decoding="async")
    )
    marks = [_mark(view, model, verdicts[model]) for model in view.models if model in verdicts]
    caption = tag(
        "figcaption", where, *([tag("em", " set aside")] if aside else []), tag("span", *marks, cls="marks")
    )
    kinds = [*(["wrong"] if len(wrong) == len(verdicts) else []), *(["aside"] if aside else [])]
    return tag("figure", image, caption, cls=" ".join(kinds) or "right")


def _mark(view: View, model: str, row: Row) -> Html:
    """Return a model's mark below an image: full where it is right, empty where it is wrong."""
    said = f"{model}: {view.class_name(row['run_id'], row['pred'])}, {'right' if row['correct'] else 'wrong'}"
    return tag(
        "i", cls="yes" if row["correct"] else "no", style=f"--pen:{pen(view, model).colour}", title=said
    )


# The section on filtering: which images a filter removed, and how that changes the curves.


# The curves of figure 3 of CNS-Bench and how each is drawn.
VERSIONS = {"filtered": "solid", "all": "dot", "labelled": "dash"}
# The names on the page of the votes and the rules of the out-of-class filter.
PLAIN = {
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
    """Accuracy with all images, with those kept and, where there are labels by hand, with those
    in class; how many were kept, and the quality of each vote and rule. Absent without a filter.
    """
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
        "Solid lines show the images that the filter kept, as everywhere on this page; dotted lines show"
        " all images."
    )
    if labelled.height:
        lead += (
            " Dashed lines show the images that people say are in their class: a good filter's line lies"
            f" on them. All three are over the {several(labelled.height, 'image')} labelled by hand and the"
            " clean ones."
        )
    tables = [tag("article", part, cls="card") for part in [*qualities, table]]
    body = join(
        [small_multiples(view, cards), tag("div", *tables, cls="stack below" if qualities else "below")]
    )
    return Section("Which images did the filter remove?", body, "Filter", lead)


def _labelled(view: View) -> pl.DataFrame:
    """Return the images that people labelled, each with whether it stays in its class; one that
    shows it in part stays.
    """
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
    """Return the table of true and false positive rate and accuracy of each vote and rule (table 2b
    of CNS-Bench).
    """
    record = run.records.get(NAME, {})
    scores = scores_of(run.table).filter(pl.col(OUTSIDE).is_not_null()) if "thresholds" in record else None
    if scores is None or not scores.height:
        return None
    found = quality(scores, record["thresholds"])
    rows = [
        [PLAIN[r["filter"]], percent(r["tpr"]), percent(r["fpr"]), percent(r["accuracy"]), r["n"]]
        for r in found.to_dicts()
    ]
    lost = several(int(scores[OUTSIDE].sum()), "image")
    caption = (
        f"The filter of {run.name} against labels by hand: the share of the {lost} out of class that is set"
        " aside (TPR), the share of the others that is (FPR), and the share judged as people do; thresholds"
        f" {record['from']}, rule used {record['rule']}"
    )
    return grid(["by", "TPR", "FPR", "accuracy", "n"], rows, caption=caption)


def _card(view: View, shift: str, rows: pl.DataFrame) -> Html:
    fig = figure(
        view, axis_name(view, shift), "accuracy", yaxis=dict(PERCENT_AXIS), xaxis=along(rows["severity"])
    )
    for model in view.models:
        for version, dash in VERSIONS.items():
            model_rows = rows.filter(pl.col("model") == model, pl.col("version") == version).sort("severity")
            if model_rows.height:
                fig.add_trace(_line(view, model, model_rows, version, dash))
    return card(
        shift, plot(fig, f"Accuracy under {shift} with and without the images that the filter set aside")
    )


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
        "hovertemplate": (
            f"<b>%{{fullData.name}}</b>, {version}<br>severity %{{x:.4~g}}<br>accuracy %{{y:.1%}}"
            "<br>n = %{customdata}<extra></extra>"
        ),
    }
