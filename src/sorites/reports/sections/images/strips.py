"""The gallery of the images that flip, at the last severity before and at the first one after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from sorites import metrics
from sorites.core import CLEAN
from sorites.reports.components.charts import pen_style
from sorites.reports.components.gallery import Item, gallery
from sorites.reports.components.images import Album
from sorites.reports.components.markup import Html, breakable, percent, tag
from sorites.reports.components.severities import severity_text
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

# Maximum number of strips per model and shift, and per page.
MAX_PER_MODEL = 8
MAX_PER_PAGE = 240
# Maximum number of strips of images that a shift corrects, per model and shift.
MAX_FIXED = 3
# Maximum size of the thumbnails of a page, in bytes.
THUMBNAIL_BYTES = 2_600_000
# Correct when clean and misclassified later, and the reverse.
BROKEN, FIXED = "broken", "fixed"
TRAJECTORY = ["run_id", "model", "shift", "sample_id", "seed"]

Row = dict[str, Any]


@add_section(order=50)
def strips(view: View) -> Section | None:
    """The gallery of flipped images; absent without available images."""
    if not any(run.image for run in view.runs):
        return None
    items = _items(view)
    if not items:
        return None
    lead = (
        f"Images that flip. {BROKEN.capitalize()}: correct when clean, and misclassified at the least"
        f" severity. {FIXED.capitalize()}: misclassified when clean, and correct at a severity. Each is shown"
        " clean, at the last severity before it flips (unless that is the clean image) and where it flips,"
        " with the prediction and its confidence."
    )
    first = next(shift for shift in view.shifts if any(item.facts["shift"] == shift for item in items))
    return Section("Which images fail first?", gallery(items, "strip", {"shift": first}), "Images", lead)


def _items(view: View) -> list[Item]:
    """Return the cards, drawn in turns so that all shifts and models share the bytes, then sorted."""
    album, items = Album(view, THUMBNAIL_BYTES), []
    for row in [*frames_of(view), *fixed_frames(view)]:
        if album.left <= 0:
            break
        items.append(_item(view, album, row))
    shifts, models = ({name: i for i, name in enumerate(names)} for names in (view.shifts, view.models))
    return sorted(items, key=lambda item: (shifts[item.facts["shift"]], models[item.facts["model"]]))


def _item(view: View, album: Album, row: Row) -> Item:
    facts = {
        "shift": row["shift"],
        "model": row["model"],
        "class": view.class_name(row["run_id"], row["clean"]["label"]),
        "flip": FIXED if row["wrong"] is None else BROKEN,
    }
    by = tag("p", f"{row['model']} · {row['shift']}", cls="by")
    card = tag(
        "article", by, strip_of(view, album, row), cls="card model", style=pen_style(view, row["model"])
    )
    return Item(card, facts)


def frames_of(view: View) -> list[Row]:
    """Return one row per strip: a trajectory with its ``clean``, last ``right`` and first ``wrong`` row."""
    chosen = first_lost(view)
    rows = view.table.filter(
        (pl.col("output") == "label") & pl.col("correct").is_not_null() & pl.col("error").is_null()
    )
    rows = rows.join(
        chosen.lazy().select("run_id", "model", "sample_id").unique(),
        on=["run_id", "model", "sample_id"],
        how="semi",
        nulls_equal=True,
    )
    columns = ("run_id", "model", "shift", "sample_id", "severity", "label", "pred", "conf", "correct")
    verdicts = rows.select(columns).collect(engine="streaming")
    return [frames for row in chosen.to_dicts() if (frames := _at_severities(row, verdicts))]


def _at_severities(row: Row, verdicts: pl.DataFrame) -> Row | None:
    same = (pl.col(name) == row[name] for name in ("run_id", "model", "sample_id"))
    trajectory = verdicts.filter(*same, pl.col("shift").is_in([CLEAN, row["shift"]])).sort("severity")
    if trajectory.filter(pl.col("shift") == row["shift"])["severity"].is_duplicated().any():
        return None  # several images at one severity: no unique strip
    trajectory = trajectory.unique("severity", keep="first", maintain_order=True)
    wrong = trajectory.filter(pl.col("severity") == row["failure"]).to_dicts()
    before = trajectory.filter(pl.col("severity") < row["failure"]).to_dicts()
    if not wrong or not before or before[0]["severity"] != 0:
        return None
    return {**row, "clean": before[0], "right": before[-1], "wrong": wrong[0]}


def fixed_frames(view: View) -> list[Row]:
    """Return trajectories that are misclassified when clean and correct later, least severity first.

    They have a ``clean`` and a ``right`` row, and None as ``wrong``.
    """
    rows = view.table.filter(
        (pl.col("output") == "label")
        & pl.col("correct").is_not_null()
        & pl.col("error").is_null()
        & ~pl.col("probe")
    )
    of_sample = ["run_id", "model", "sample_id", "seed"]
    columns = ("severity", "label", "pred", "conf", "correct")
    clean = rows.filter((pl.col("shift") == CLEAN) & ~pl.col("correct")).select(
        *of_sample, clean=pl.struct(columns)
    )
    shifted = rows.filter(pl.col("shift").is_in(view.shifts) & (pl.col("severity") > 0))
    # Several images at one severity: no unique strip.
    single = shifted.filter(~pl.col("severity").is_duplicated().any().over(TRAJECTORY))
    right = single.filter("correct").select(*TRAJECTORY, right=pl.struct(columns))
    fixed = right.join(clean, on=of_sample, nulls_equal=True).collect(engine="streaming")
    at = pl.col("right").struct.field("severity")
    return (
        fixed.sort(at, *TRAJECTORY)
        .unique(TRAJECTORY, keep="first", maintain_order=True)
        .with_columns(wrong=None, turn=pl.int_range(pl.len()).over("shift", "model"))
        .filter(pl.col("turn") < MAX_FIXED)
        .sort("turn", at, *TRAJECTORY)
        .to_dicts()
    )


def first_lost(view: View) -> pl.DataFrame:
    """Return the trajectories that are correct when clean and fail later, least severity first.

    Ties are sorted by sample, so that equal tables give equal pages.
    """
    lost = (
        metrics.trajectories(view.table)
        .filter(pl.col("failure") > 0)
        .collect(engine="streaming")
        .sort("failure", *TRAJECTORY)
    )
    turn = pl.int_range(pl.len()).over("shift", "model")
    return (
        lost.with_columns(turn=turn)
        .filter(pl.col("turn") < MAX_PER_MODEL)
        .sort("turn", "failure", *TRAJECTORY)
        .head(MAX_PER_PAGE)
    )


def strip_of(view: View, album: Album, row: Row) -> Html:
    """Return the strip of one trajectory: clean, the last severity before it flips, and where it flips."""
    ground_truth = view.class_name(row["run_id"], row["clean"]["label"])
    what = tag("p", tag("b", ground_truth), tag("span", breakable(row["sample_id"])), cls="what")
    if row["wrong"] is None:
        shots = [("wrong", "clean", row["clean"]), ("right", "first correct", row["right"])]
        return _strip(what, [_shot(view, album, row, *shot) for shot in shots])
    shots = [
        ("clean", "clean", row["clean"]),
        ("right", "last correct", row["right"]),
        ("wrong", "first misclassified", row["wrong"]),
    ]
    if not row["right"]["severity"]:
        shots = [("clean", "clean, last correct", row["clean"]), shots[-1]]
    return _strip(what, [_shot(view, album, row, *shot) for shot in shots])


def _strip(what: Html, shots: Sequence[Html]) -> Html:
    return tag("div", what, tag("div", *shots, cls="frames"), cls="strip")


def _shot(view: View, album: Album, row: Row, kind: str, name: str, verdict: Row) -> Html:
    prediction, severity = view.class_name(row["run_id"], verdict["pred"]), verdict["severity"] or 0.0
    source = album.thumbnail(row["run_id"], row["sample_id"], row["shift"], severity)
    where = f"{name}: {severity_text(view, row['shift'], severity)}" if severity else name
    accepted = " (counts as correct)" if verdict["correct"] and verdict["pred"] != verdict["label"] else ""
    alt = (
        f"{view.class_name(row['run_id'], verdict['label'])}, {row['shift']} {where}: prediction"
        f" {prediction}{accepted}"
    )
    image = (
        tag("div", "image not available", cls="gone")
        if source is None
        else tag("img", src=source, alt=alt, decoding="async")
    )
    confidence = f" {percent(verdict['conf'], 0)}" if verdict["conf"] is not None else ""
    return tag(
        "figure", image, tag("figcaption", tag("b", prediction + confidence + accepted), where), cls=kind
    )
