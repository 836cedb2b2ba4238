"""The section with the objects that detectors lose first, with ground-truth and predicted boxes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from sorites import metrics
from sorites.core import CLEAN
from sorites.core.boxes import iou
from sorites.reports.components.charts import severity_text
from sorites.reports.components.images import DrawnBox, boxed, columns_of_models
from sorites.reports.components.markup import Html, join, percent, picker, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import View, box_models

# Maximum number of objects per model and shift, and per page.
MAX_PER_MODEL = 3
MAX_PER_PAGE = 36
# Boxes of lower confidence are drawn only if they overlap the object.
MIN_CONFIDENCE = 0.3
# Side of a crop: a multiple of the object's longer side, and at least this many px.
MARGIN, MIN_SIDE = 2.2, 96
TRAJECTORY = ["run_id", "model", "shift", "sample_id", "seed"]
CORNERS = ("x0", "y0", "x1", "y1")

Row = dict[str, Any]


@add_section(order=51)
def lost_objects(view: View) -> Section | None:
    """One shift at a time, with one column per model; absent without detectors or available images."""
    if not any(run.image for run in view.runs) or not box_models(view):
        return None
    drawn: dict[tuple[str, str], list[Html]] = {}
    for row in _first_lost(view).to_dicts():
        if (strip := _strip(view, row)) is not None:
            drawn.setdefault((row["shift"], row["model"]), []).append(strip)
    shifts = [shift for shift in view.shifts if any(shift == key[0] for key in drawn)]
    if not shifts:
        return None
    lead = (
        "Objects that are detected in the clean image and lost at the least severity, one per image. Each is"
        " shown clean, at the last severity at which it is detected and at the first at which it is not. The"
        " object is dashed; a box of its class on it is green; the most confident other box on it and boxes"
        f" elsewhere (from {percent(MIN_CONFIDENCE, 0)} confidence) are red."
    )
    body = join(
        [picker("lost", "Shift", shifts), *(columns_of_models(view, shift, drawn) for shift in shifts)]
    )
    return Section("Which objects are lost first?", body, "Images", lead)


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


def _strip(view: View, row: Row) -> Html | None:
    """Return the images of one object, or None if one of them cannot be recomputed."""
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
    what = tag(
        "p", tag("b", view.class_name(row["run_id"], obj["label"])), tag("span", row["sample"]), cls="what"
    )
    return tag("div", what, tag("div", *figures, cls="frames"), cls="strip")


def _shot(view: View, row: Row, kind: str, name: str, state: Row) -> Html | None:
    """Return the crop of an image around the object, with the boxes in it."""
    severity = state["severity"] or 0.0
    image = view.image(row["run_id"], row["sample"], row["shift"] if severity else CLEAN, severity)
    if image is None:
        return None
    where = name if name == "clean" else f"{name}: {severity_text(view, row['shift'], severity)}"
    obj = state["ground_truth"][row["object"]]
    name_of_class = view.class_name(row["run_id"], obj["label"])
    left, top, right, bottom = _around(obj, *image.shape[:2])
    drawn = [
        *(_drawn_box(view, row, box, obj) for box in _worth_drawing(state["boxes"], obj)),
        _ground_truth(obj),
    ]
    shifted = [_shifted(box, left, top) for box in drawn]
    inside = [box for box in shifted if _is_visible(box, right - left, bottom - top)]
    alt = f"{name_of_class}, {row['shift']} {where}"
    return tag(
        "figure", boxed(image[top:bottom, left:right], inside, alt), tag("figcaption", where), cls=kind
    )


def _around(obj: Row, height: int, width: int) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of a square around the object, clipped to the image."""
    side = min(max(MARGIN * max(obj["x1"] - obj["x0"], obj["y1"] - obj["y0"]), MIN_SIDE), height, width)
    left = min(max((obj["x0"] + obj["x1"] - side) / 2, 0), width - side)
    top = min(max((obj["y0"] + obj["y1"] - side) / 2, 0), height - side)
    return int(left), int(top), int(left + side), int(top + side)


def _shifted(box: DrawnBox, left: int, top: int) -> DrawnBox:
    x0, y0, x1, y1 = box.xyxy
    return replace(box, xyxy=(x0 - left, y0 - top, x1 - left, y1 - top))


def _is_visible(box: DrawnBox, width: int, height: int) -> bool:
    x0, y0, x1, y1 = box.xyxy
    return x1 > 0 and y1 > 0 and x0 < width and y0 < height


def _worth_drawing(boxes: list[Row], obj: Row) -> list[Row]:
    """Return confident boxes, the best other box on the object, and the best detection (on top)."""
    on = [box for box in boxes if _overlap(box, obj) >= 0.5]
    detection = [box for box in on if box["label"] == obj["label"]][:1]
    rival = [box for box in on if box["label"] != obj["label"]][:1]
    confident = [box for box in boxes if box["conf"] >= MIN_CONFIDENCE and box not in on]
    return [*reversed(confident), *rival, *detection]


def _ground_truth(obj: Row) -> DrawnBox:
    return DrawnBox(tuple(obj[corner] for corner in CORNERS), "", "ground_truth")


def _drawn_box(view: View, row: Row, box: Row, obj: Row) -> DrawnBox:
    detected = box["label"] == obj["label"] and _overlap(box, obj) >= 0.5
    text = f"{view.class_name(row['run_id'], box['label'])} {percent(box['conf'], 0)}"
    return DrawnBox(tuple(box[corner] for corner in CORNERS), text, "found" if detected else "other")


def _overlap(one: Row, other: Row) -> float:
    mine, theirs = (np.array([[box[corner] for corner in CORNERS]]) for box in (one, other))
    return float(iou(mine, theirs)[0, 0])
