"""The section on weak slices: properties of images on which a model fails more often, with examples."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites.analysis.slices import failures_of, properties_of, weak_slices
from sorites.core import CLEAN
from sorites.reports.components.images import Album
from sorites.reports.components.markup import Html, count, folded, grid, join, number, percent, several, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

RATE = 0.05
# Slices that are shown with images, images of each, and the size of all thumbnails in bytes.
SHOWN, IMAGES, THUMBNAIL_BYTES = 6, 3, 400_000
Row = dict[str, Any]


@add_section(order=49)
def weak_slices_of_images(view: View) -> Section | None:
    """A table of weak slices and images of the weakest; absent without measured properties."""
    measured = view.table.filter(pl.col("shift") == CLEAN).select(pl.col("degrees").list.len().sum())
    if not measured.collect(engine="streaming").item():
        return None
    values = properties_of(view.table)
    if not values.height:
        return None
    found = weak_slices(view.table, RATE)
    weak = found.filter("weak").to_dicts()
    lead = (
        "Images are divided by the quartiles of each property of their clean image. A slice is weak if its"
        " samples fail more often than the others (one-sided permutation test);"
        f" {several(len(weak), 'slice')} of {count(found.height)} are, at a false discovery rate of"
        f" {percent(RATE, 0)} (Benjamini & Hochberg). Properties are correlated: a slice shows where a model"
        " fails, not why."
    )
    if not weak:
        body = tag("p", "No slice fails significantly more often than the other images.")
        return Section("Which images are hardest?", body, "Slices", lead)
    head = ["property", "quarter", "range", "model", "shift", "failing", "elsewhere", "q", "n"]
    table = folded("All weak slices", grid(head, [_line(row) for row in weak], text=5), len(weak), most=10)
    failures = failures_of(view.table)
    album = Album(view, THUMBNAIL_BYTES)
    cards = [_card(view, album, row, values, failures) for row in _distinct(weak)]
    return Section(
        "Which images are hardest?", join([tag("div", *cards, cls="cards"), table]), "Slices", lead
    )


def _line(row: Row) -> list[object]:
    span = f"{number(row['from'])} to {number(row['to'])}"
    name = row["property"].replace("_", " ")
    shares = [percent(row["failing"]), percent(row["elsewhere"])]
    return [name, row["slice"], span, row["model"], row["shift"], *shares, number(row["q"]), count(row["n"])]


def _distinct(weak: list[Row]) -> list[Row]:
    """Return the weakest slice of each property and quarter."""
    first: dict[tuple[str, str], Row] = {}
    for row in weak:
        first.setdefault((row["property"], row["slice"]), row)
    return list(first.values())[:SHOWN]


def _card(view: View, album: Album, row: Row, values: pl.DataFrame, failures: pl.DataFrame) -> Html:
    """Return a slice with images of its samples that fail most."""
    name = f"{row['slice']} {row['property'].replace('_', ' ')}"
    inside = values.filter(
        (pl.col("property") == row["property"]) & pl.col("value").is_between(row["from"], row["to"])
    )
    mine = failures.filter((pl.col("model") == row["model"]) & (pl.col("shift") == row["shift"]))
    worst = mine.join(inside, on=["source", "sample_id"], nulls_equal=True).sort(
        "failing", "sample_id", descending=[True, False]
    )
    figures = []
    for sample, value in worst.head(IMAGES).select("sample_id", "value").iter_rows():
        thumbnail = _thumbnail(view, album, sample)
        if thumbnail is not None:
            image = tag("img", src=thumbnail, alt=f"{sample}, {name}", decoding="async")
            figures.append(tag("figure", image, tag("figcaption", number(value)), cls="wrong"))
    shares = f"{percent(row['failing'])} fail, {percent(row['elsewhere'])} elsewhere"
    return tag(
        "article",
        tag("p", tag("b", name), tag("span", f"{row['model']}, {row['shift']}"), cls="what"),
        tag("div", *figures, cls="frames"),
        tag("p", shares, cls="setting"),
        cls="card strip why",
    )


def _thumbnail(view: View, album: Album, sample: str) -> str | None:
    for run_id in view.owners:
        found = album.thumbnail(run_id, sample, CLEAN, 0.0)
        if found is not None:
            return found
    return None
