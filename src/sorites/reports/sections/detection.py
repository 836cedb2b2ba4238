"""Sections on detectors: mAP at a glance, by class, over severity, and TIDE errors."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.components.charts import (
    COLOURS,
    SYMBOLS,
    Pen,
    about,
    along,
    axis_name,
    card,
    figure,
    line,
    pen_style,
    plot,
)
from sorites.reports.components.markup import (
    DASH,
    EMPTY,
    THIN,
    Html,
    between,
    count,
    folded,
    grid,
    join,
    n_of,
    percent,
    picked,
    points,
    safe,
    several,
    tag,
)
from sorites.reports.section import Section, add_section, multiples
from sorites.reports.view import UNTOUCHED, View, box_models

Row = dict[str, Any]
# COCO's numbers on a card, with their names.
NUMBERS_SHOWN = {
    "map": "mAP",
    "map50": "mAP at IoU 0.50",
    "map75": "mAP at IoU 0.75",
    "map_small": "small objects (below 32² px)",
    "map_medium": "medium objects",
    "map_large": "large objects (above 96² px)",
    "ar100": "recall, 100 boxes",
}


@add_section(order=11)
def detectors(view: View) -> Section | None:
    """One card per detector; absent without one."""
    models = box_models(view)
    if not models:
        return None
    lead = (
        "mAP is COCO's mean average precision over IoU 0.50 to 0.95 and over classes that have objects. Under"
        " shift it is the mean over shifts of the mean over severities. The small numbers are 95 % intervals"
        " over"
        " images. mAP depends on the confidence floor of a detector, so compare detectors with the same"
        " floor."
    )
    return Section(
        "The detector at a glance" if len(models) == 1 else "The detectors at a glance",
        tag("div", *(_card(view, m) for m in models), cls="cards"),
        "Detectors",
        lead,
    )


def _card(view: View, model: str) -> Html:
    clean = _row_of(view.compute(metrics.map, UNTOUCHED, by=("model",)), model)
    shifted, drop = (
        _row_of(view.compute(metric, by=("model",)), model) for metric in (metrics.mean_map, metrics.map_drop)
    )
    figures = [("Clean mAP", clean, False), ("Under shift", shifted, False), ("Drop (points)", drop, True)]
    drawn = [
        _figure(name, row, as_change)
        for name, row, as_change in figures
        if row is not None and row["value"] is not None
    ]
    parts = [tag("h3", model), tag("dl", *drawn, cls="figures") if drawn else EMPTY, _counts(clean)]
    clean_map = view.compute(metrics.map, UNTOUCHED, by=("model",))
    parts += [_interval_note(clean_map, model), _numbers(view, model)]
    return tag("article", *parts, cls="card model", style=pen_style(view, model))


def _row_of(frame: pl.DataFrame, model: str) -> Row | None:
    return next(iter(frame.filter(pl.col("model") == model).to_dicts()), None)


def _figure(name: str, row: Row, as_change: bool) -> Html:
    ends = sorted(0.0 - end if as_change else end for end in (row["low"], row["high"]) if end is not None)
    written = [
        _points(value) if as_change else percent(value)
        for value in (*ends, 0.0 - row["value"] if as_change else row["value"])
    ]
    interval = tag("small", between(*written[:2])) if len(ends) == 2 else EMPTY
    return tag(
        "div",
        tag("dt", name),
        tag("dd", tag("b", written[-1]), interval, tag("small", n_of(row["n"]))),
    )


def _points(value: float) -> str:
    return points(value).removesuffix(f"{THIN}points")


def _counts(clean: Row | None) -> Html:
    """Return what the clean number is based on, and what was excluded."""
    if clean is None:
        return EMPTY
    parts = [f"{several(clean['objects'], 'object')} in {several(clean['n'], 'clean image')}"]
    parts += [f"{several(clean[key], 'image')} {why}" for key, why in _LEFT.items() if clean[key]]
    parts += (
        [f"{several(clean['left_out'], 'ground-truth box', 'ground-truth boxes')} without a size excluded"]
        if clean["left_out"]
        else []
    )
    return tag("p", "; ".join(parts) + ".", cls="warn" if len(parts) > 1 else None)


def _interval_note(answer: pl.DataFrame, model: str) -> Html:
    """Return a note about the coverage of the intervals where so few images need one."""
    note = metrics.interval_note("map", answer.filter(pl.col("model") == model))
    return tag("p", f"{note[0].upper()}{note[1:]}.") if note else EMPTY


_LEFT = {
    "missing": "failed and count as missing",
    "unknown": "without ground truth, not counted",
}


def _numbers(view: View, model: str) -> Html:
    frames = [
        view.compute(metrics.map_numbers, UNTOUCHED, by=("model",)),
        view.compute(metrics.mean_map_numbers, by=("model",)),
    ]
    clean, shifted = (
        {row["number"]: row for row in frame.filter(pl.col("model") == model).to_dicts()} for frame in frames
    )
    lines = [
        [words, *(_cell(rows.get(name)) for rows in (clean, shifted))]
        for name, words in NUMBERS_SHOWN.items()
        if name in {**clean, **shifted}
    ]
    return grid(["", "clean", "mean over settings"], lines) if lines else EMPTY


def _cell(row: Row | None) -> Html:
    if row is None or row["value"] is None:
        return join([percent(None)])
    ends = (
        tag("small", between(percent(row["low"]), percent(row["high"]))) if row["low"] is not None else EMPTY
    )
    return join([percent(row["value"]), ends])


# Classes with fewer objects in the clean images are greyed out, since their numbers are unreliable.
FEW_OBJECTS = 10


@add_section(order=27)
def box_classes(view: View) -> Section | None:
    """A table per detector with the clean and shifted mAP of each class; absent without detectors."""
    models = box_models(view)
    if not models:
        return None
    clean = view.compute(metrics.map, UNTOUCHED, by=("model", "class"))
    shifted = view.compute(metrics.mean_map, by=("model", "class"))
    cards = [_box_classes_card(view, model, clean, shifted) for model in models]
    lead = (
        "mAP of each class on clean images, and its mean over the settings of each shift and over shifts,"
        f" greatest loss first. Numbers of classes with fewer than {FEW_OBJECTS} objects (in grey) are"
        " unreliable."
    )
    return Section("Which classes suffer most?", tag("div", *cards, cls="stack"), "Classes", lead)


def _box_classes_card(view: View, model: str, clean: pl.DataFrame, shifted: pl.DataFrame) -> Html:
    clean_rows, shifted_rows = (frame.filter(pl.col("model") == model) for frame in (clean, shifted))
    both = clean_rows.join(
        shifted_rows.select("class", shifted="value", shifted_low="low", shifted_high="high"),
        on="class",
        how="full",
        coalesce=True,
    )
    rows = both.with_columns(loss=pl.col("value") - pl.col("shifted")).sort(
        "loss", "class", descending=[True, False], nulls_last=True
    )
    run_id = view.table.select(pl.col("run_id").first()).collect().item()
    lines = [_line(view.class_name(run_id, row["class"]), row) for row in rows.to_dicts()]
    head = ["", "objects", "clean", "shifted", "change"]
    table = folded(
        f"{model}: mAP of each class",
        grid(head, lines, caption=f"{model}: mAP of each class"),
        len(lines),
        most=12,
    )
    return tag("div", table, style=pen_style(view, model))


def _line(name: str, row: dict[str, float]) -> list[object]:
    title = tag("span", name, cls="few") if (row["objects"] or 0) < FEW_OBJECTS else name
    change = DASH if row["loss"] is None else points(0.0 - row["loss"])
    objects = DASH if row["objects"] is None else count(int(row["objects"]))
    return [
        title,
        objects,
        _share(row, "value", "low", "high"),
        _share(row, "shifted", "shifted_low", "shifted_high"),
        change,
    ]


def _share(row: dict[str, float], value: str, low: str, high: str) -> Html:
    if row[value] is None:
        return join([DASH])
    return join([percent(row[value]), tag("small", between(percent(row[low]), percent(row[high])))])


@add_section(order=21)
def box_curves(view: View) -> Section | None:
    """One mAP curve per shift, starting from the clean images at severity 0."""
    if not box_models(view):
        return None
    rows = view.compute(map_from_clean).drop_nulls(["severity", "value"])
    top = float(rows["high"].fill_null(rows["value"]).max() or 1)  # type: ignore[arg-type]
    cards = [
        _box_curves_card(view, shift, part, top)
        for shift in view.shifts
        if (part := rows.filter(pl.col("shift") == shift)).height
    ]
    lead = (
        "The clean image is at the left; severity rises to the right. The band is the 95 %"
        " interval"
        " over images."
    )
    return multiples(view, cards, "mAP as severity rises", "mAP", lead)


def map_from_clean(table: pl.LazyFrame) -> pl.DataFrame:
    """Return mAP with clean images at severity 0 of every shift."""
    return metrics.map(metrics.with_clean(table))


def _box_curves_card(view: View, shift: str, rows: pl.DataFrame, top: float) -> Html:
    y_axis = {"range": [-0.02 * top, 1.04 * top], "tickformat": ".0%", "nticks": 5}
    fig = figure(
        view, axis_name(view, shift), "mAP", yaxis=y_axis, xaxis=along(view, shift, rows["severity"])
    )
    for model in view.models:
        model_rows = rows.filter(pl.col("model") == model).sort("severity")
        if model_rows.height:
            line(
                fig,
                view,
                model,
                shift,
                model_rows.with_columns(pl.col("low", "high").fill_null(pl.col("value"))),
                "mAP",
            )
    return card(shift, about(view, shift), plot(fig, f"mAP of each detector against the severity of {shift}"))


# TIDE's kinds of error, with their meaning.
KINDS = {
    "Cls": "wrong class",
    "Loc": "poor localisation",
    "Both": "wrong class and poor localisation",
    "Dupe": "duplicate",
    "Bkg": "background",
    "Miss": "missed",
}
PENS = {
    kind: Pen(colour, "solid", symbol) for kind, colour, symbol in zip(KINDS, COLOURS, SYMBOLS, strict=False)
}


@add_section(order=24)
def tide_errors(view: View) -> Section | None:
    """Per detector, one chart per shift with a line per kind of error, and a table."""
    models = box_models(view)
    if not models:
        return None
    rows = (
        view.compute(tide_from_clean)
        .drop_nulls(["severity", "value"])
        .filter(pl.col("error").is_in(list(KINDS)))
    )
    drawn = {model: _charts(view, rows.filter(pl.col("model") == model)) for model in models}
    lead = (
        "The cost of each kind of error: the average precision at IoU 0.50 that would be gained by fixing all"
        " errors of that kind, and no others (TIDE). Kinds overlap, so costs do not add up. "
        + "; ".join(f"{kind}: {what}" for kind, what in KINDS.items())
        + "."
    )
    body = join([picked("tide", "Detector", drawn), tag("article", _table(view, models), cls="card below")])
    return Section("Why are objects lost?", body, "Errors by kind", lead)


def tide_from_clean(table: pl.LazyFrame) -> pl.DataFrame:
    """Return TIDE's costs with clean images at severity 0 of every shift."""
    return metrics.tide(metrics.with_clean(table))


def _charts(view: View, rows: pl.DataFrame) -> Html:
    top = float(rows["value"].max() or 0.01)  # type: ignore[arg-type]
    cards = [
        tag("article", tag("h3", shift), _chart(view, shift, part, top), cls="card")
        for shift in view.shifts
        if (part := rows.filter(pl.col("shift") == shift)).height
    ]
    return tag("div", *cards, cls="cards")


def _chart(view: View, shift: str, rows: pl.DataFrame, top: float) -> Html:
    y_axis = {"range": [-0.03 * top, 1.06 * top], "tickformat": ".0%", "nticks": 5}
    fig = figure(
        view,
        axis_name(view, shift),
        "cost (AP at 0.50)",
        yaxis=y_axis,
        xaxis=along(view, shift, rows["severity"]),
    )
    fig.update_layout(showlegend=True, height=310, margin_t=54)
    for kind, kind_pen in PENS.items():
        kind_rows = rows.filter(pl.col("error") == kind).sort("severity")
        fig.add_trace(
            {
                "type": "scatter",
                "name": safe(kind),
                "x": kind_rows["severity"].to_list(),
                "y": kind_rows["value"].to_list(),
                "customdata": kind_rows["n"].to_list(),
                "mode": "lines+markers",
                "line": {"color": kind_pen.colour, "width": 2},
                "marker": {"symbol": kind_pen.symbol, "size": 7, "color": kind_pen.colour},
                "hovertemplate": (
                    f"<b>{kind}</b>: {KINDS[kind]}<br>severity %{{x:.4~g}}<br>costs %{{y:.1%}}"
                    "<br>n = %{customdata}<extra></extra>"
                ),
            }
        )
    return plot(fig, f"Cost of each kind of error against the severity of {shift}")


def _table(view: View, models: list[str]) -> Html:
    clean = view.compute(metrics.tide, UNTOUCHED, by=("model",))
    shifted = view.compute(metrics.mean_tide, by=("model",))
    lines = [
        [model, name, *(_tide_errors_cell(frame, model, kind) for kind in KINDS)]
        for model in models
        for name, frame in (("clean", clean), ("shifted", shifted))
    ]
    caption = (
        "Cost of each kind of error in average precision at IoU 0.50, with its 95 % interval; shifted is the"
        " mean over the settings of each shift, then over shifts"
    )
    return grid(["", "images", *KINDS], lines, text=2, caption=caption)


def _tide_errors_cell(frame: pl.DataFrame, model: str, kind: str) -> Html:
    row = next(iter(frame.filter((pl.col("model") == model) & (pl.col("error") == kind)).to_dicts()), None)
    if row is None or row["value"] is None:
        return join([percent(None)])
    return join([percent(row["value"]), tag("small", between(percent(row["low"]), percent(row["high"])))])
