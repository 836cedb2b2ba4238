"""The section on dials that samples have themselves: whole trajectories, and where along the severity each of them is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from sorites import metrics
from sorites.core import CLEAN
from sorites.reports.parts.album import Album
from sorites.reports.parts.charts import axis_name, figure, pen, plot, severity_text
from sorites.reports.parts.markup import EMPTY, Html, join, number, safe, several, tag
from sorites.reports.parts.picker import picked
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

EACH = 6
"""There are at most this many trajectories per dial."""
ACROSS = 8
"""A trajectory shows at most this many pictures, the clean one among them."""
WEIGHT = 900_000
"""The thumbnails of the section may take this many bytes, as encoded in the file."""
COLUMNS = ("run_id", "model", "sample_id", "severity", "label", "pred", "correct", "valid")

Row = dict[str, Any]


@add_section(order=32)
def generated(view: View) -> Section | None:
    """Failure points and trajectories of each dial of samples' own; absent where no run has such a dial."""
    made = view.table.filter(pl.col("family") == "generated").select(pl.col("shift").unique()).collect(engine="streaming")
    shifts = [shift for shift in view.shifts if shift in {*made["shift"], *view.own_dials}]
    share = WEIGHT // max(1, len(shifts))
    parts = {shift: part for shift in shifts if (part := _part(view, shift, Album(view, share)))}
    if not parts:
        return None
    lead = (
        "Every sample brings these pictures itself, made at whatever severity is asked. A dot is one trajectory, at the least "
        "severity at which the model is wrong about it; one that is never lost stands at the end of the line. "
        "Below a picture, a full mark is a model that is right and a ring one that is wrong."
    )
    return Section("Along the generated trajectories", picked("generated", "Dial", parts), "Generated", lead)


def _part(view: View, shift: str, album: Album) -> Html:
    points = metrics.trajectories(view.table.filter(pl.col("shift").is_in([CLEAN, shift]))).collect(engine="streaming")
    if not points.height:
        return EMPTY
    rows = view.table.filter(
        pl.col("shift").is_in([CLEAN, shift]), pl.col("output") == "label", pl.col("correct").is_not_null(), ~pl.col("probe")
    )
    seen = rows.select(COLUMNS).collect(engine="streaming").with_columns(pl.col("severity").fill_null(0.0))
    chosen = _spread(_in_order(points), EACH) if any(run.picture for run in view.runs) else []
    strips = [_strip(view, album, shift, key, seen, points) for key in chosen if album.left > 0]
    dots = tag("article", _told(view, shift, points), plot(_dots(view, shift, points), _alt(shift)), cls="card")
    title = tag("h4", "Trajectories, from the first that is lost to the last")
    return join([dots, tag("article", title, *strips, cls="card trajectories") if strips else EMPTY])


def _told(view: View, shift: str, points: pl.DataFrame) -> Html:
    """Say how many trajectories each model loses, and how many pictures a filter set aside."""
    lines = []
    for model in view.models:
        own = points.filter(pl.col("model") == model)
        if not own.height:
            continue
        lost, wrong = own["failure"].count(), own.filter(pl.col("failure") == 0).height
        clean = f", {wrong} of them wrong when clean" if wrong else ""
        lines.append(tag("li", tag("b", model), f" loses {lost} of {several(own.height, 'trajectory', 'trajectories')}{clean}"))
    return join([tag("h3", shift), tag("ul", *lines, cls="told"), _cut(view, shift)])


def _cut(view: View, shift: str) -> Html:
    """Say at which severities a filter set pictures aside; nothing without a filter."""
    rows = view.table.filter(pl.col("shift") == shift, ~pl.col("probe"), pl.col("valid").is_not_null()).unique("image_id")
    kept = rows.group_by("severity").agg(n=pl.len(), aside=pl.col("valid").not_().sum()).sort("severity")
    found = kept.collect(engine="streaming")
    if not found.height:
        return EMPTY
    aside = [f"{row['aside']} of {row['n']} at severity {number(row['severity'])}" for row in found.to_dicts() if row["aside"]]
    said = f"The filter set aside {', '.join(aside)}; no number here counts them." if aside else "The filter kept every picture."
    unseen = view.table.filter(pl.col("shift") == shift, pl.col("probe"), pl.col("valid").is_null())
    between = unseen.select(pl.col("image_id").n_unique()).collect(engine="streaming").item()
    more = f" It has not seen the {several(between, 'picture')} between them that refine the failure points." if between else ""
    return tag("p", said + more)


def _alt(shift: str) -> str:
    return f"The severity of {shift} at which each trajectory is lost, model by model"


def _dots(view: View, shift: str, points: pl.DataFrame) -> Any:
    """Draw the failure point of each trajectory in its model's row; survivors stand at the end."""
    models = [model for model in view.models if model in set(points["model"])]
    top = float(max(points["top"]))
    end, ticks = 1.2 * top, sorted({0.0, *_grid(view, shift)})
    across = {
        "range": [-0.03 * top, 1.3 * top],
        "tickangle": 0,
        "tickvals": [*ticks, end],
        "ticktext": [*(number(tick) for tick in ticks), "never"],
    }
    rows = {"tickvals": list(range(len(models))), "ticktext": [safe(model) for model in models], "showgrid": False}
    fig = figure(view, axis_name(view, shift), "", xaxis=across, yaxis={**rows, "range": [len(models) - 0.4, -0.6]})
    fig.update_layout(height=96 + 58 * len(models), showlegend=False, margin_t=10, margin_b=42)
    fig.add_vline(x=1.1 * top, line={"width": 1, "dash": "dot", "color": "#9a9a9a"})
    for place, model in enumerate(models):
        own = points.filter(pl.col("model") == model).sort("sample_id", "run_id")
        fig.add_trace(_row(view, model, own, place, end))
    return fig


def _grid(view: View, shift: str) -> list[float]:
    """Return the severities of the dial that every trajectory was judged at, at most ten of them."""
    rows = view.table.filter(pl.col("shift") == shift, ~pl.col("probe")).select(pl.col("severity").unique().sort())
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
        "marker": {"color": drawn.faint(0.55), "symbol": drawn.symbol, "size": 8, "line": {"width": 1, "color": drawn.colour}},
        "hovertemplate": "<b>%{fullData.name}</b><br>%{customdata[0]}<br>%{customdata[1]}<extra></extra>",
    }


def _end(failure: float | None) -> str:
    return "survives" if failure is None else f"lost at {number(failure)}" if failure else "wrong when clean"


def _in_order(points: pl.DataFrame) -> list[tuple[str, str]]:
    """Return (run, sample) from the first lost to the last, by the mean over models; a survivor comes after all others."""
    late = pl.col("failure").fill_null(2 * pl.col("top").max()).mean()
    means = points.group_by("run_id", "sample_id").agg(late=late).sort("late", "run_id", "sample_id")
    return list(means.select("run_id", "sample_id").iter_rows())


def _spread(items: Sequence[Any], most: int) -> list[Any]:
    count = min(len(items), most)
    return [items[round(i * (len(items) - 1) / max(count - 1, 1))] for i in range(count)]


def _strip(view: View, album: Album, shift: str, key: tuple[str, str], seen: pl.DataFrame, points: pl.DataFrame) -> Html:
    run_id, sample = key
    same = (pl.col("run_id") == run_id) & (pl.col("sample_id") == sample)
    rows = seen.filter(same).sort("severity")
    at = _spread(rows["severity"].unique().sort().to_list(), ACROSS)
    lost: dict[str, float | None] = dict(points.filter(same).select("model", "failure").iter_rows())
    ends = [f"{model} {_end(lost[model])}" for model in view.models if model in lost]
    named = view.class_name(run_id, rows["label"][0])
    what = tag("p", tag("b", named), tag("span", " · ".join([sample, *ends])), cls="what")
    shots = [_shot(view, album, shift, key, severity, rows.filter(pl.col("severity") == severity)) for severity in at]
    columns = f"grid-template-columns:repeat({len(shots)},minmax(0,10.5rem))"
    return tag("div", what, tag("div", *shots, cls="frames", style=columns), cls="strip")


def _shot(view: View, album: Album, shift: str, key: tuple[str, str], severity: float, rows: pl.DataFrame) -> Html:
    verdicts = {row["model"]: row for row in rows.to_dicts()}
    wrong = [model for model, row in verdicts.items() if not row["correct"]]
    aside = any(row["valid"] is False for row in verdicts.values())
    where = severity_text(view, shift, severity) if severity else "clean"
    said = f"wrong: {', '.join(wrong)}" if wrong else "all models right"
    source = album.thumbnail(*key, shift, severity)
    alt = f"{key[1]}, {shift} {where}; {said}{'; set aside by the filter' if aside else ''}"
    image = tag("div", "not available", cls="gone") if source is None else tag("img", src=source, alt=alt, decoding="async")
    marks = [_mark(view, model, verdicts[model]) for model in view.models if model in verdicts]
    caption = tag("figcaption", where, *([tag("em", " set aside")] if aside else []), tag("span", *marks, cls="marks"))
    kinds = [*(["wrong"] if len(wrong) == len(verdicts) else []), *(["aside"] if aside else [])]
    return tag("figure", image, caption, cls=" ".join(kinds) or "right")


def _mark(view: View, model: str, row: Row) -> Html:
    """Return a model's mark below a picture: full where it is right, empty where it is wrong."""
    said = f"{model}: {view.class_name(row['run_id'], row['pred'])}, {'right' if row['correct'] else 'wrong'}"
    return tag("i", cls="yes" if row["correct"] else "no", style=f"--pen:{pen(view, model).colour}", title=said)
