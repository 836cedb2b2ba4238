"""Sections on accuracy: headline numbers, curves, tables, corruption errors, and failed images."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.core import CLEAN, Metric
from sorites.core.errors import SoritesError
from sorites.metrics.half_accuracy import BEYOND, REACHED, UNDEFINED
from sorites.reports.components.charts import (
    PERCENT_AXIS,
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
    breakable,
    count,
    grid,
    join,
    n_of,
    number,
    percent,
    several,
    tag,
)
from sorites.reports.components.markup import points as points_of
from sorites.reports.components.severities import Reading, reading_of, severity_text
from sorites.reports.section import Section, add_section, multiples
from sorites.reports.view import UNTOUCHED, View

Row = dict[str, Any]
MEAN = "Accuracy under shift is the mean over shifts of the mean over the settings of each shift."
LOST = (
    "An image fails at the least severity at which it is misclassified, which is 0 if the clean image is"
    " misclassified; the median failure severity includes such images. The half-accuracy severity does not:"
    " it is where accuracy is half-way between the accuracy on clean images and chance, the accuracy of a"
    " guess. A trajectory is one image under one shift at rising severity; those that end early, because a"
    " filter or an error removed their later images, are censored there (Kaplan-Meier)."
)


@add_section(order=10)
def headline(view: View) -> Section | None:
    """One card per model: clean and shifted accuracy, the drop, and failure severities."""
    counted = view.compute(metrics.accuracy, by=("model",))
    if not counted.height:
        return None
    cards = [_card(view, model) for model in view.models if model in set(counted["model"])]
    shifted = view.compute(metrics.mean_accuracy, by=("model",)).drop_nulls("value").height > 0
    lost = view.compute(metrics.failure_severity, by=("model",), relative=True).height > 0
    lead = " ".join(
        [*([MEAN] if shifted else []), *([LOST] if lost else []), "The small numbers are 95 % intervals."]
    )
    title = "The model at a glance" if len(cards) == 1 else "The models at a glance"
    return Section(title, tag("div", *cards, cls="cards"), "Models", lead)


def _row(frame: pl.DataFrame, model: str) -> Row | None:
    rows = frame.filter(pl.col("model") == model).to_dicts()
    return rows[0] if rows else None


def _card(view: View, model: str) -> Html:
    parts = [
        tag("h3", model),
        _figures(view, model),
        _dial(view, model),
        _by_shift(view, model),
        _missing(view, model),
    ]
    return tag("article", *parts, cls="card model", style=pen_style(view, model))


def _figures(view: View, model: str) -> Html:
    clean = _row(view.compute(metrics.accuracy, UNTOUCHED, by=("model",)), model)
    shifted = _row(view.compute(metrics.mean_accuracy, by=("model",)), model)
    drop = _row(view.compute(metrics.accuracy_drop, by=("model",)), model)
    figures = [("Clean", clean, percent), ("Under shift", shifted, percent), ("Drop", drop, _change)]
    drawn = [
        _figure(name, row, format_value)
        for name, row, format_value in figures
        if row is not None and row["value"] is not None
    ]
    return tag("dl", *drawn, cls="figures") if drawn else EMPTY


def _change(value: float | None) -> str:
    """Format a drop as the change of accuracy, with its sign reversed."""
    return points_of(None if value is None else -value)


def _figure(name: str, row: Row, format_value: Any) -> Html:
    ends = (row["high"], row["low"]) if format_value is _change else (row["low"], row["high"])
    low, high, big = (format_value(value).removesuffix(f"{THIN}points") for value in (*ends, row["value"]))
    interval = join([tag("small", between(low, high)), tag("small", n_of(row["n"]))])
    return tag(
        "div",
        tag("dt", name + (" (points)" if format_value is _change else "")),
        tag("dd", tag("b", big), interval),
    )


def _dial(view: View, model: str) -> Html:
    """Draw where half of all trajectories have failed, relative to the greatest severity of each shift.

    Every trajectory has the same weight.
    """
    half = _row(view.compute(metrics.failure_severity, by=("model",), relative=True), model)
    if half is None:
        return EMPTY
    low, high, value = half["low"] or 0.0, half["high"], half["value"]
    if value is None:
        sentence = join(
            [
                tag("b", "More than half"),
                f" of the trajectories survive the greatest severity ({_survivors(half)}).",
            ]
        )
    else:
        sentence = join(
            [
                "Half of the trajectories have failed at ",
                tag("b", percent(value, 0)),
                " of the greatest severity ",
                tag("span", _ends(half), cls="range"),
                _clean_errors(view, model),
            ]
        )
    marks = [
        tag("i", style=f"width:{100 * (1 if value is None else value):.1f}%"),
        tag("u", style=f"left:{100 * low:.1f}%;right:{100 - 100 * (1 if high is None else high):.1f}%"),
        *([tag("b", style=f"left:{100 * value:.1f}%")] if value is not None else []),
    ]
    ends = tag("div", tag("span", "clean"), tag("span", "greatest severity"), cls="ends")
    return tag(
        "div", tag("p", sentence), tag("div", *marks, cls="track", aria_hidden="true"), ends, cls="dial"
    )


def _clean_errors(view: View, model: str) -> str:
    """Return how many of the failed images are misclassified when clean."""
    clean = _row(view.compute(metrics.accuracy, UNTOUCHED, by=("model",)), model)
    if clean is None or clean["value"] is None or clean["value"] == 1:
        return "."
    return f", including the {percent(1 - clean['value'], 0)} that are misclassified when clean."


def _survivors(row: Row) -> str:
    ended = f", {row['censored']} ended early" if row["censored"] else ""
    return f"{row['survived']} of {row['n']}{ended}"


def _ends(row: Row) -> str:
    top = "above 100\u202f%" if row["high"] is None else percent(row["high"], 0)
    return f"({between(percent(row['low'], 0), top)}, {n_of(row['n'], 'trajectory', 'trajectories')})"


def _by_shift(view: View, model: str) -> Html:
    own = pl.col("model") == model
    lost, halved = (
        {row["shift"]: row for row in view.compute(metric).filter(own).to_dicts()}
        for metric in (metrics.failure_severity, metrics.half_accuracy_severity)
    )
    alive = view.compute(metrics.survival).filter(own).sort("severity")
    last = {row["shift"]: row for row in alive.to_dicts()}
    lines = [
        _line(view, shift, lost[shift], halved.get(shift), last[shift])
        for shift in view.shifts
        if shift in lost
    ]
    if not lines:
        return EMPTY
    table = grid(["shift", "median failure severity", "half-accuracy severity", "survive the last"], lines)
    return join([table, _chance_note(list(halved.values()))])


def _line(view: View, shift: str, lost: Row, halved: Row | None, last: Row) -> list[object]:
    reading, top = reading_of(view, shift), last["severity"]
    name = join([breakable(shift), tag("small", f" {reading.axis}")])
    half = DASH if halved is None else _half(halved, reading, top)
    return [name, _point(lost, reading, top), half, percent(last["value"], 0)]


def _half(row: Row, reading: Reading, top: float) -> Html:
    """Format a half-accuracy severity, or say that it is undefined."""
    if row["status"] in (REACHED, BEYOND):
        return _point(row, reading, top)
    return join([tag("span", "undefined"), tag("small", "clean not above chance")])


def _chance_note(halved: list[Row]) -> Html:
    """Return chance, and the share of the most frequent class where it is larger."""
    if not halved:
        return EMPTY
    chances = sorted({percent(row["chance"]) for row in halved}, key=len)
    text = f"Chance: {chances[0]}" if len(chances) == 1 else f"Chance: {' or '.join(chances[:3])}"
    majority = [row["majority"] for row in halved if row["majority"] is not None]
    if majority:
        text += f"; the most frequent class has {percent(max(majority))} of the images"
    if any(row["assumed"] for row in halved):
        text += "; the number of classes was counted in the table, because it is not recorded"
    undefined = sum(row["status"] == UNDEFINED for row in halved)
    if undefined:
        text += (
            f". Undefined for {several(undefined, 'shift')}: the 95 % interval of clean accuracy contains"
            " chance"
        )
    return tag("p", f"{text}.", cls="about")


def _point(row: Row, reading: Reading, top: float) -> Html:
    """Format a severity with its interval; a missing one is beyond the greatest severity."""
    low, value, high = (row[name] for name in ("low", "value", "high"))
    beyond = f"beyond {reading.value(top)}"
    interval = (
        "" if low is None else f"{reading.value(low)} to {beyond if high is None else reading.value(high)}"
    )
    return join([beyond if value is None else reading.value(value), tag("small", interval)])


def _missing(view: View, model: str) -> Html:
    row = _row(view.compute(metrics.accuracy, by=("model",)), model)
    if row is None or not row["missing"]:
        return EMPTY
    counts = "counts" if row["missing"] == 1 else "count"
    return tag(
        "p",
        f"{several(row['missing'], 'prediction')} failed and {counts} as missing, not as misclassified.",
        cls="warn",
    )


@add_section(order=20)
def curves(view: View) -> Section | None:
    """One accuracy curve per shift, starting from the clean images at severity 0."""
    shares = points(view)
    cards = [
        _curves_card(view, shift, rows)
        for shift in view.shifts
        if (rows := shares.filter(pl.col("shift") == shift)).height
    ]
    lead = "The clean image is at the left; severity rises to the right. The band is the 95 % interval."
    if len(view.models) > 1:
        lead += (
            " Click a model in any legend to hide it on the whole page, double-click to show it alone; Enter"
            " and Shift-Enter do the same on the keyboard."
        )
    return multiples(view, cards, "Accuracy as severity rises", "Accuracy", lead)


def points(view: View) -> pl.DataFrame:
    """Return accuracy by model, shift and severity, with clean images at 0, without unordered settings."""
    shares = view.compute(from_clean)
    return shares.filter(
        pl.col("shift").is_in(view.shifts) & pl.col("severity").is_not_null() & pl.col("value").is_not_null()
    )


def from_clean(table: pl.LazyFrame) -> pl.DataFrame:
    """Return accuracy with clean images at severity 0 of every shift."""
    return metrics.accuracy(metrics.with_clean(table))


def _curves_card(view: View, shift: str, rows: pl.DataFrame) -> Html:
    fig = figure(
        view,
        axis_name(view, shift),
        "accuracy",
        yaxis=PERCENT_AXIS,
        xaxis=along(view, shift, rows["severity"]),
    )
    for model in view.models:
        model_rows = rows.filter(pl.col("model") == model).sort("severity")
        if model_rows.height:
            line(fig, view, model, shift, model_rows, "accuracy")
    return card(
        shift, about(view, shift), plot(fig, f"Accuracy of each model against the severity of {shift}")
    )


@add_section(order=80)
def numbers(view: View) -> Section | None:
    """A folded table of accuracy by model, shift and severity."""
    accuracies = view.compute(metrics.accuracy)
    if not accuracies.height:
        return None
    positions = {name: i for i, name in enumerate(view.shifts)}
    rows = sorted(accuracies.to_dicts(), key=lambda row: positions.get(row["shift"], -1))
    table = grid(
        ["model", "shift", "meaning", "severity", "accuracy", "low", "high", "n", "missing"],
        [_numbers_line(view, row) for row in rows],
        text=3,
    )
    summary = f"Accuracy by model, shift and severity ({several(len(rows), 'row')})"
    folded = tag("details", tag("summary", summary), table)
    return Section(
        "All accuracies as numbers",
        folded,
        "Numbers",
        "Select the table to copy it into a spreadsheet; low and high are the ends of the 95 % interval.",
    )


def _meaning(view: View, shift: str, severity: float | None) -> str:
    return severity_text(view, shift, severity) if severity and shift != CLEAN else ""


def _numbers_line(view: View, row: dict[str, Any]) -> list[str | Html]:
    shares = [percent(row[name]) for name in ("value", "low", "high")]
    return [
        row["model"],
        row["shift"],
        _meaning(view, row["shift"], row["severity"]),
        number(row["severity"], 6),
        *shares,
        count(row["n"]),
        count(row["missing"]),
    ]


@add_section(order=70)
def corruption(view: View) -> Section | None:
    """Tables of corruption errors and relative corruption errors, if the runs name one reference model.

    Absent if the reference is the only model, since its errors are 100 % by definition.
    """
    references = {record.suite.reference for record in view.records if record.suite.reference}
    reference = references.pop() if len(references) == 1 else None
    if reference is None or (reference not in view.models and not _readable(view, reference)):
        return None
    others = [model for model in view.models if model != reference]
    if not others or not view.compute(metrics.corruption_error, reference=reference).height:
        return None
    kinds = [
        ("Corruption error", metrics.corruption_error),
        ("Relative corruption error", metrics.relative_corruption_error),
    ]
    tables = [tag("article", _table(view, title, metric, reference), cls="card") for title, metric in kinds]
    lead = (
        "The corruption error is the error summed over the severities of a shift, as a share of the same sum"
        f" of {reference} (100 %). The relative corruption error counts only the rise over the clean error."
        " The last column is the mean over shifts; below 100 % is better than the reference. A dash marks a"
        " relative error that is undefined, because the error of the reference rises by less than 2 points on"
        " average, and means that contain one."
    )
    return Section(
        f"Errors relative to {reference}", tag("div", *tables, cls="stack"), "Corruption error", lead
    )


def _readable(view: View, reference: str) -> bool:
    """Return whether the reference is a readable file of errors that fits the table."""
    try:
        return view.compute(metrics.relative_corruption_error, reference=reference).height > 0
    except SoritesError:
        return False


def _table(view: View, title: str, metric: Metric, reference: str) -> Html:
    each = view.compute(metric, reference=reference)
    mean = view.compute(metric, reference=reference, by=("model",)).with_columns(
        shift=pl.lit(None, pl.String)
    )
    cells = {(row["model"], row["shift"]): row for row in each.to_dicts() + mean.to_dicts()}
    shifts = [shift for shift in view.shifts if shift in set(each["shift"])]
    lines = [
        [model, *(_cell(cells.get((model, shift)), model == reference) for shift in [*shifts, None])]
        for model in view.models
    ]
    return grid(["", *shifts, "mean"], lines, caption=f"{title}, with its 95 % interval; n counts samples")


def _cell(row: dict[str, Any] | None, is_reference: bool) -> object:
    if row is None or row["value"] is None:
        return DASH
    interval = "reference" if is_reference else between(percent(row["low"]), percent(row["high"]))
    return join([percent(row["value"]), tag("small", f"{interval}, n = {row['n']}")])


# Maximum number of kinds of errors listed.
MAX_ERRORS = 20


@add_section(order=90)
def mistakes(view: View) -> Section | None:
    """The first errors of the table, with equal ones on one line; absent without errors."""
    failed = view.table.filter(pl.col("error").is_not_null())
    total = failed.select(pl.len()).collect(engine="streaming").item()
    if not total:
        return None
    keys = ["sample_id", "shift", "error"]
    kinds = failed.group_by(keys).agg(rows=pl.len()).sort(keys).collect(engine="streaming")
    lines = [
        [r["sample_id"], r["shift"], _text(r["error"]), count(r["rows"])]
        for r in kinds.head(MAX_ERRORS).to_dicts()
    ]
    verb = "has" if total == 1 else "have"
    lead = (
        f"{several(total, 'row')} of the table {verb} an error instead of a prediction; they count as"
        " missing, not as misclassified."
    )
    lead += (
        f" The first {MAX_ERRORS} of {count(kinds.height)} kinds are listed."
        if kinds.height > MAX_ERRORS
        else ""
    )
    table = grid(["sample", "shift", "error", "rows"], lines, text=3)
    return Section("Images that could not be evaluated", tag("article", table, cls="card"), "Errors", lead)


def _text(error: str, longest: int = 400) -> Html:
    return tag("span", error if len(error) <= longest else error[: longest - 1] + "…", cls="text")
