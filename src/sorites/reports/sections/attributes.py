"""Sections on uncommon attributes (FOCUS): accuracy, gaps, images, and class x attribute maps."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from sorites import metrics
from sorites.core.rng import hashed_order
from sorites.reports.components.charts import PERCENT_AXIS, card, figure, line, plot
from sorites.reports.components.images import data_uri
from sorites.reports.components.markup import (
    DASH,
    EMPTY,
    Html,
    between,
    count,
    css_variable,
    grid,
    join,
    percent,
    picked,
    points,
    tag,
)
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

# Number of samples whose images are shown.
MAX_SAMPLES = 6
FOUR = "grid-template-columns:repeat(4,minmax(0,1fr))"


@add_section(order=52)
def partitions(view: View) -> Section | None:
    """Curves over the number of uncommon kinds, tables of gaps, and images; absent without attributes."""
    accuracies = view.compute(metrics.partition_accuracy)
    if not accuracies.height:
        return None
    lead = (
        "Time, weather and location are kinds of attributes; a kind is uncommon for an image if any of its"
        " values"
        " is uncommon for the class. P0 are images without uncommon kinds, P1 those with one, and so on. The"
        " gap is the accuracy where a kind is common minus the accuracy where it is uncommon; its interval is"
        " a"
        " bootstrap over images."
    )
    left = card("By the number of uncommon kinds", _chart(view, accuracies))
    right = tag("article", tag("h3", "Gap of each kind"), _gaps(view), cls="card")
    whole = tag("article", _table(view, accuracies), cls="card")
    body = join([tag("div", left, right, cls="cards two"), tag("div", whole, cls="below"), _images(view)])
    return Section("How much do uncommon contexts cost?", body, "Contexts", lead)


def _chart(view: View, accuracies: pl.DataFrame) -> Html:
    whole = accuracies.filter(pl.col("kinds").is_null()).with_columns(
        severity=pl.col("uncommon").cast(pl.Float64)
    )
    top = float(whole["severity"].max() or 1)  # type: ignore[arg-type]
    axis = {"dtick": 1, "range": [-0.15, top + 0.15], "tickprefix": "P"}
    fig = figure(view, "number of uncommon kinds", "accuracy", yaxis=dict(PERCENT_AXIS), xaxis=axis)
    for model in view.models:
        model_rows = whole.filter(pl.col("model") == model).sort("severity")
        if model_rows.height:
            line(fig, view, model, "context", model_rows, "accuracy")
    return plot(fig, "Accuracy of each model against the number of uncommon kinds")


def _table(view: View, accuracies: pl.DataFrame) -> Html:
    sets = accuracies.select("uncommon", "kinds").unique().sort("uncommon", "kinds", nulls_last=False).rows()
    cells = {(row["model"], row["uncommon"], row["kinds"]): row for row in accuracies.to_dicts()}
    head = ["", *(f"P{n}" if kinds is None else kinds.replace("+", " + ") for n, kinds in sets)]
    lines = [
        [model, *(_share(cells.get((model, *kinds_key))) for kinds_key in sets)] for model in view.models
    ]
    return grid(
        head,
        lines,
        caption="Accuracy with its 95 % interval and the number of images, by which kinds are uncommon",
    )


def _share(row: dict[str, Any] | None) -> object:
    if row is None or row["value"] is None:
        return DASH
    small = f"{between(percent(row['low'], 0), percent(row['high'], 0))}, n = {count(row['n'])}"
    return join([percent(row["value"]), tag("small", small)])


def _gaps(view: View) -> Html:
    gaps = view.compute(metrics.attribute_gap).filter(pl.col("class").is_null())
    kinds = sorted(gaps["kind"].unique(), key=lambda kind: (kind == "any", kind))
    cells = {(row["model"], row["kind"]): row for row in gaps.to_dicts()}
    lines = [[model, *(_gap(cells.get((model, kind))) for kind in kinds)] for model in view.models]
    return grid(
        ["", *kinds],
        lines,
        caption="Accuracy where the kind is common minus where it is uncommon, with its 95 % interval",
    )


def _gap(row: dict[str, Any] | None) -> object:
    if row is None or row["value"] is None:
        return DASH
    low, high = (points(row[name]).split("\u202f")[0] for name in ("low", "high"))
    return join([points(row["value"]), tag("small", between(low, high))])


def _images(view: View) -> Html:
    """Return a few samples, with one image per number of uncommon kinds and the predictions of the models."""
    rows = view.table.filter(
        (pl.col("output") == "label") & pl.col("correct").is_not_null() & (pl.col("attrs").list.len() > 1)
    )
    keep = ("run_id", "sample_id", "shift", "severity", "params", "model", "pred", "correct", "attrs")
    candidates = (
        rows.group_by("run_id", "sample_id")
        .agg(images=pl.col("image_id").n_unique())
        .filter(pl.col("images") > 3)
    )
    objects = candidates.select("run_id", "sample_id").collect(engine="streaming").rows()
    selected = hashed_order(objects, lambda obj: obj)[:MAX_SAMPLES]
    chosen = pl.DataFrame(selected, schema={"run_id": pl.String, "sample_id": pl.String}, orient="row")
    verdicts = (
        rows.select(keep)
        .join(chosen.lazy(), on=["run_id", "sample_id"], how="semi")
        .collect(engine="streaming")
    )
    drawn = [_sample_card(view, verdicts.filter(pl.col("sample_id") == name)) for name in chosen["sample_id"]]
    cards = [card for card in drawn if card]
    return tag("div", *cards, cls="cards two below") if cards else EMPTY


def _sample_card(view: View, verdicts: pl.DataFrame) -> Html:
    uncommon = (
        pl.col("attrs").list.eval(pl.element().struct.field("common").not_().fill_null(False)).list.sum()
    )
    ordered = verdicts.with_columns(uncommon=uncommon).sort("uncommon", "params")
    frames = []
    for _, images in ordered.group_by("uncommon", maintain_order=True):
        first = images.filter(pl.col("params") == images["params"][0])
        frames.append(_frame(view, first))
    drawn = [frame for frame in frames if frame]
    return (
        tag(
            "article",
            tag("h3", verdicts["sample_id"][0]),
            tag("div", *drawn, cls="frames", style=FOUR),
            cls="card strip",
        )
        if drawn
        else EMPTY
    )


def _frame(view: View, image_rows: pl.DataFrame) -> Html:
    row = image_rows.row(0, named=True)
    params = json.loads(row["params"] or "{}")
    image_u8 = view.image(row["run_id"], row["sample_id"], row["shift"], params or row["severity"] or 0.0)
    if image_u8 is None:
        return EMPTY
    words = ", ".join(a["value"] for a in row["attrs"] if a["key"] != "class")
    verdicts = {r["model"]: r for r in image_rows.to_dicts()}
    wrong = [
        f"{m}: {view.class_name(row['run_id'], r['pred'])}"
        for m in view.models
        if (r := verdicts.get(m)) and not r["correct"]
    ]
    verdict = "; ".join(wrong) if wrong else "all models correct"
    image = tag(
        "img", src=data_uri(image_u8), alt=f"{row['sample_id']}: {words}; {verdict}", decoding="async"
    )
    kind = "wrong" if wrong else "right"
    return tag(
        "figure", image, tag("figcaption", tag("b", f"P{row['uncommon']}: {words}"), verdict), cls=kind
    )


# --- Class x attribute maps

# Maps with more classes are folded.
MAX_CLASSES_UNFOLDED = 25
COMMON, UNCOMMON = "#0072b2", "#e69f00"


@add_section(order=53)
def settings_map(view: View) -> Section | None:
    """One map per kind, one model at a time, as in FOCUS; absent without attributes."""
    cells = view.compute(metrics.attribute_accuracy)
    if not cells.height:
        return None
    gaps = view.compute(metrics.attribute_gap, pool="cells")
    maps = {
        model: _maps(cells.filter(pl.col("model") == model), gaps.filter(pl.col("model") == model))
        for model in view.models
    }
    lead = (
        "Blue cells are common for the class, orange ones uncommon; stronger colour is higher accuracy. An"
        " image"
        " with several values of a kind counts in each of their cells. The gap is the accuracy of the common"
        " cells minus that of the uncommon ones; a dash means that one of them is empty."
    )
    return Section(
        "Which classes suffer in which contexts?", picked("settings", "Model", maps), "Class × context", lead
    )


def _maps(cells: pl.DataFrame, gaps: pl.DataFrame) -> Html:
    kinds = sorted(cells["kind"].unique())
    return join(
        [
            _map(kind, cells.filter(pl.col("kind") == kind), gaps.filter(pl.col("kind") == kind))
            for kind in kinds
        ]
    )


def _map(kind: str, cells: pl.DataFrame, gaps: pl.DataFrame) -> Html:
    words = sorted(cells["attribute"].unique())
    classes: list[str | None] = [*sorted(cells["class"].drop_nulls().unique()), None]
    by_class = {(row["class"], row["attribute"]): row for row in cells.to_dicts()}
    gap = {row["class"]: row for row in gaps.to_dicts()}
    top = tag("tr", tag("th", kind, scope="col"), *(tag("th", word, scope="col") for word in [*words, "gap"]))
    body = [
        tag(
            "tr",
            tag("th", name or "all", scope="row"),
            *(_cell(by_class.get((name, word))) for word in words),
            _settings_map_gap(gap.get(name)),
        )
        for name in classes
    ]
    table = tag(
        "table",
        tag("caption", f"Accuracy in % by class and {kind}, with n"),
        tag("thead", top),
        tag("tbody", *body),
        cls="heat",
    )
    body_html = tag("div", table, cls="scroll", tabindex="0")
    if len(classes) > MAX_CLASSES_UNFOLDED:
        body_html = tag("details", tag("summary", f"{len(classes) - 1} classes by {kind}"), body_html)
    return tag("article", body_html, cls="card")


def _cell(row: dict[str, Any] | None) -> Html:
    if row is None or row["value"] is None:
        return tag("td", cls="none")
    interval = between(percent(row["low"]), percent(row["high"]))
    hover = f"{percent(row['value'])}, 95 %: {interval}, n = {row['n']}"
    strength = round(12 + 58 * row["value"])
    colour = COMMON if row["common"] else UNCOMMON
    shade = (
        f"background:color-mix(in srgb,{colour} {strength}%,{css_variable('card')})"
        if row["common"] is not None
        else None
    )
    return tag("td", f"{100 * row['value']:.0f}", tag("small", count(row["n"])), title=hover, style=shade)


def _settings_map_gap(row: dict[str, Any] | None) -> Html:
    if row is None or row["value"] is None:
        return tag("td", DASH, title="no common or no uncommon cells to compare")
    return tag(
        "td",
        points(row["value"], 0).split("\u202f")[0],
        title=between(points(row["low"]), points(row["high"])),
    )
