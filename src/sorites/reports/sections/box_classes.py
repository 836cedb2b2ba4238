"""The section of mAP by class: which things does a shift take first?"""

from __future__ import annotations

import polars as pl

from sorites import metrics
from sorites.reports.parts.box_models import box_models
from sorites.reports.parts.charts import pen
from sorites.reports.parts.markup import DASH, Html, between, count, folded, grid, join, percent, points, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import UNTOUCHED, View

FEW = 10
"""Classes with fewer things than this in the clean pictures are marked: their numbers say little."""


@add_section(order=27)
def box_classes(view: View) -> Section | None:
    """A table per detector: mAP of each class clean and shifted, the greatest loss first; absent without detectors."""
    found = box_models(view)
    if not found:
        return None
    clean, shifted = (view.compute(metrics.map, where, by=("model", "class")) for where in (UNTOUCHED, ~UNTOUCHED))
    cards = [_card(view, model, clean, shifted) for model in found]
    lead = (
        "mAP of each class in the clean pictures and in all shifted ones together (boxes of all severities ranked in one list, "
        "which is not the mean over settings), the greatest loss first. With fewer than "
        f"{FEW} things (in grey) a number says little."
    )
    return Section("Which classes suffer most?", tag("div", *cards, cls="stack"), "Classes", lead)


def _card(view: View, model: str, clean: pl.DataFrame, shifted: pl.DataFrame) -> Html:
    mine, theirs = (frame.filter(pl.col("model") == model) for frame in (clean, shifted))
    both = mine.join(
        theirs.select("class", shifted="value", shifted_low="low", shifted_high="high"), on="class", how="full", coalesce=True
    )
    rows = both.with_columns(loss=pl.col("value") - pl.col("shifted")).sort(
        "loss", "class", descending=[True, False], nulls_last=True
    )
    run_id = view.table.select(pl.col("run_id").first()).collect().item()
    lines = [_line(view.class_name(run_id, row["class"]), row) for row in rows.to_dicts()]
    head = ["", "things", "clean", "shifted", "change"]
    table = folded(f"{model}: mAP of each class", grid(head, lines, caption=f"{model}: mAP of each class"), len(lines), most=12)
    return tag("div", table, style=f"--pen:{pen(view, model).colour}")


def _line(name: str, row: dict[str, float]) -> list[object]:
    title = tag("span", name, cls="few") if (row["things"] or 0) < FEW else name
    change = DASH if row["loss"] is None else points(0.0 - row["loss"])
    things = DASH if row["things"] is None else count(int(row["things"]))
    return [title, things, _share(row, "value", "low", "high"), _share(row, "shifted", "shifted_low", "shifted_high"), change]


def _share(row: dict[str, float], value: str, low: str, high: str) -> Html:
    if row[value] is None:
        return join([DASH])
    return join([percent(row[value]), tag("small", between(percent(row[low]), percent(row[high])))])
