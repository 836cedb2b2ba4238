"""The section on accuracy by class."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.components.lenses import MAX_ROWS, csv_link, long_table
from sorites.reports.components.markup import (
    DASH,
    Html,
    between,
    count,
    folded,
    join,
    picked,
    points,
    several,
    tag,
)
from sorites.reports.components.scorers import estimate
from sorites.reports.section import Section, add_section
from sorites.reports.view import UNTOUCHED, View

# Classes with fewer images are greyed out, since their numbers are unreliable.
FEW_IMAGES = 10
# The table is folded if no class has this many images.
LEAST_TO_UNFOLD = 3
# Maximum number of rows of the CSV file.
MAX_CSV_ROWS = 20_000
TITLE = "Which classes suffer most?"
ENDS = ("value", "low", "high")
HEAD = (
    "model",
    "class",
    "n",
    "clean",
    "clean_low",
    "clean_high",
    "shifted",
    "shifted_low",
    "shifted_high",
    "drop",
    "drop_low",
    "drop_high",
)


@add_section(order=48)
def classes(view: View) -> Section | None:
    """A table per model with the clean and shifted accuracy of each class; absent with one class."""
    by_class = class_rows(view)
    if by_class["label"].n_unique() < 2:
        return None
    run_id = view.table.select(pl.col("run_id").first()).collect().item()
    names = {label: view.class_name(run_id, label) for label in by_class["label"].unique()}
    models = [model for model in view.models if model in set(by_class["model"])]
    most, greatest = MAX_ROWS // len(models), int(by_class["n"].max())  # type: ignore[arg-type]
    open_rows = 12 if greatest >= LEAST_TO_UNFOLD else 0
    parts = {
        model: _card(model, by_class.filter(pl.col("model") == model), names, most, open_rows)
        for model in models
    }
    rows = by_class.head(MAX_CSV_ROWS).to_dicts()
    csv_rows = [
        [row["model"], names[row["label"]], *(_plain(row[name]) for name in HEAD[2:])] for row in rows
    ]
    few = f"numbers of classes with fewer than {FEW_IMAGES} images (in grey) are unreliable."
    lead = (
        "Accuracy of each class on clean images and under shift, greatest loss first. The loss is computed on"
        f" the same images, with its 95 % interval; {few}"
    )
    if by_class["drop"].is_null().all():
        lead = f"Accuracy of each class, lowest first, with its 95 % interval; {few}"
    if greatest < LEAST_TO_UNFOLD:
        lead = (
            f"No class has more than {several(greatest, 'image')}, which is too few to compare classes, so"
            " the"
            f" table is folded. {lead}"
        )
    paper = tag("p", "In print, the twelve greatest losses of each model are shown.", cls="note on-paper")
    body = join([picked("classes", "Model", parts), paper, csv_link("classes", HEAD, csv_rows)])
    return Section(
        "Which classes are hardest?" if by_class["drop"].is_null().all() else TITLE, body, "Classes", lead
    )


def class_rows(view: View) -> pl.DataFrame:
    """Return n, clean and shifted accuracy and the drop per model and class, each with its interval."""
    keys = ["model", "label"]
    parts = {
        "clean": view.compute(metrics.accuracy, UNTOUCHED, by=tuple(keys)),
        "shifted": view.compute(metrics.mean_accuracy, by=tuple(keys)),
        "drop": view.compute(metrics.accuracy_drop, by=tuple(keys)),
    }
    joined = None
    for name, frame in parts.items():
        columns = {name: "value", f"{name}_low": "low", f"{name}_high": "high", f"{name}_n": "n"}
        own = frame.select(*keys, **{new: pl.col(old) for new, old in columns.items()})
        joined = own if joined is None else joined.join(own, on=keys, how="full", coalesce=True)
    assert joined is not None
    counted = (
        joined.with_columns(n=pl.coalesce("clean_n", "drop_n", "shifted_n"))
        .drop_nulls("label")
        .filter(pl.col("n") > 0)
    )
    return counted.sort(
        "model", "drop", "clean", "label", descending=[False, True, False, False], nulls_last=True
    )


def _card(model: str, rows: pl.DataFrame, names: dict[int, str], most: int, open_rows: int) -> Html:
    return folded(f"{model}: accuracy of each class", _table(rows, names, most), rows.height, most=open_rows)


def _table(rows: pl.DataFrame, names: dict[int, str], most: int) -> Html:
    available = {name: bool(rows[name].is_not_null().any()) for name in ("clean", "shifted", "drop")}
    shown = [name for name, present in available.items() if present]
    lines = [_line(row, names, shown) for row in rows.to_dicts()]
    titles = {"clean": "clean", "shifted": "shifted", "drop": "change"}
    head = ["", "images", *(titles[name] for name in shown)]
    return long_table(
        head, lines, "Accuracy of each class, with its 95 % interval", what="classes", most=most
    )


def _line(row: dict[str, Any], names: dict[int, str], shown: list[str]) -> list[object]:
    name = names[row["label"]]
    title = tag("span", name, cls="few") if row["n"] < FEW_IMAGES else name
    cells = {"clean": _share(row, "clean"), "shifted": _share(row, "shifted"), "drop": _change(row)}
    return [title, count(row["n"]), *(cells[key] for key in shown)]


def _share(row: dict[str, Any], name: str) -> Html:
    return estimate({end: row[name if end == "value" else f"{name}_{end}"] for end in ENDS})


def _change(row: dict[str, Any]) -> object:
    if row["drop"] is None:
        return DASH
    low, high = (points(None if row[end] is None else 0.0 - row[end]) for end in ("drop_high", "drop_low"))
    return join([points(0.0 - row["drop"]), tag("small", between(low.removesuffix("points").rstrip(), high))])


def _plain(value: float | None) -> object:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else value
