"""The section with the objects that detectors lose first, with ground-truth and predicted boxes."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.core import CLEAN
from sorites.reports.components.charts import pen_style
from sorites.reports.components.crops import MIN_CONFIDENCE, crop
from sorites.reports.components.gallery import Item, gallery
from sorites.reports.components.markup import Html, breakable, percent, tag
from sorites.reports.components.severities import severity_text
from sorites.reports.section import Section, add_section
from sorites.reports.view import View, box_models

# Maximum number of objects per model and shift, and per page.
MAX_PER_MODEL = 6
MAX_PER_PAGE = 120
TRAJECTORY = ["run_id", "model", "shift", "sample_id", "seed"]

Row = dict[str, Any]


@add_section(order=51)
def lost_objects(view: View) -> Section | None:
    """One shift at a time, with one column per model; absent without detectors or available images."""
    if not any(run.image for run in view.runs) or not box_models(view):
        return None
    items = [item for row in _first_lost(view).to_dicts() if (item := _item(view, row)) is not None]
    if not items:
        return None
    shifts = [shift for shift in view.shifts if any(item.facts["shift"] == shift for item in items)]
    items.sort(key=lambda item: (shifts.index(item.facts["shift"]), view.models.index(item.facts["model"])))
    lead = (
        "Objects that are detected in the clean image and lost at the least severity, one per image. Each is"
        " shown clean, at the last severity at which it is detected and at the first at which it is not. The"
        " object is dashed; a box of its class on it is green; the most confident other box on it and boxes"
        f" elsewhere (from {percent(MIN_CONFIDENCE, 0)} confidence) are red."
    )
    body = gallery(items, "lost", {"shift": shifts[0]}, "large")
    return Section("Which objects are lost first?", body, "Images", lead)


def _item(view: View, row: Row) -> Item | None:
    """Return the card of one object with the facts that it is filtered by, or None without its images."""
    found = _strip(view, row)
    if found is None:
        return None
    class_name, drawn = found
    by = tag("p", f"{row['model']} · {row['shift']}", cls="by")
    card = tag("article", by, drawn, cls="card model", style=pen_style(view, row["model"]))
    return Item(card, {"shift": row["shift"], "model": row["model"], "class": class_name})


def _first_lost(view: View) -> pl.DataFrame:
    """Return trajectories of objects detected when clean and lost later, least severity first."""
    lost = metrics.trajectories(metrics.objects(view.table).lazy()).filter(pl.col("failure") > 0).collect()
    named = lost.with_columns(
        sample=pl.col("sample_id").str.replace(r"#\d+$", ""),
        object=pl.col("sample_id").str.extract(r"#(\d+)$").cast(pl.Int64),
    ).sort("failure", *TRAJECTORY)
    single = named.unique(["model", "shift", "sample"], keep="first", maintain_order=True)
    turn = pl.int_range(pl.len()).over("shift", "model")
    return (
        single.with_columns(turn=turn)
        .filter(pl.col("turn") < MAX_PER_MODEL)
        .sort("turn", "failure", *TRAJECTORY)
        .head(MAX_PER_PAGE)
    )


def _strip(view: View, row: Row) -> tuple[str, Html] | None:
    """Return the class and the images of one object, or None if one of them cannot be recomputed."""
    here = (
        (pl.col("run_id") == row["run_id"])
        & (pl.col("model") == row["model"])
        & (pl.col("sample_id") == row["sample"])
    )
    along = (
        pl.col("shift").is_in([CLEAN, row["shift"]])
        & (pl.col("output") == "boxes")
        & pl.col("error").is_null()
    )
    rows = (
        view.table.filter(here, along)
        .select("shift", "severity", "ground_truth", "boxes")
        .collect()
        .sort("severity")
        .to_dicts()
    )
    before = [candidate for candidate in rows if candidate["severity"] < row["failure"]]
    after = [candidate for candidate in rows if candidate["severity"] == row["failure"]]
    if not before or not after or before[0]["shift"] != CLEAN:
        return None
    shots = [
        ("clean", "clean", before[0]),
        ("right", "last detected", before[-1]),
        ("wrong", "first lost", after[0]),
    ]
    figures = [_shot(view, row, *shot) for shot in (shots if len(before) > 1 else shots[::2])]
    if any(figure is None for figure in figures):
        return None
    obj = before[0]["ground_truth"][row["object"]]
    class_name = view.class_name(row["run_id"], obj["label"])
    what = tag("p", tag("b", class_name), tag("span", breakable(row["sample"])), cls="what")
    return class_name, tag("div", what, tag("div", *figures, cls="frames"), cls="strip")


def _shot(view: View, row: Row, kind: str, name: str, state: Row) -> Html | None:
    """Return the crop of an image around the object, with the boxes in it."""
    severity = state["severity"] or 0.0
    image = view.image(row["run_id"], row["sample"], row["shift"] if severity else CLEAN, severity)
    if image is None:
        return None
    where = name if name == "clean" else f"{name}: {severity_text(view, row['shift'], severity)}"
    obj = state["ground_truth"][row["object"]]
    alt = f"{view.class_name(row['run_id'], obj['label'])}, {row['shift']} {where}"
    drawn = crop(image, obj, state["boxes"], lambda label: view.class_name(row["run_id"], label), alt)
    return tag("figure", drawn, tag("figcaption", where), cls=kind)
