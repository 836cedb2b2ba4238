"""The section with the images that fail first, at the last correct and the first misclassified severity."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.core import CLEAN
from sorites.reports.components.charts import severity_text
from sorites.reports.components.images import Album, columns_of_models
from sorites.reports.components.markup import Html, breakable, join, percent, picker, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

# Maximum number of strips per model and shift, and per page.
MAX_PER_MODEL = 4
MAX_PER_PAGE = 72
# Maximum size of the thumbnails of a page, in bytes.
THUMBNAIL_BYTES = 1_300_000
TRAJECTORY = ["run_id", "model", "shift", "sample_id", "seed"]

Row = dict[str, Any]


@add_section(order=50)
def strips(view: View) -> Section | None:
    """One shift at a time, with one column per model; absent without available images."""
    if not any(run.image for run in view.runs):
        return None
    drawn = _draw(view)
    shifts = [shift for shift in view.shifts if any(shift == key[0] for key in drawn)]
    if not shifts:
        return None
    lead = (
        "The images that are correct when clean and misclassified at the least severity. Each is shown clean,"
        " at the last severity before the failure (unless that is the clean image) and at the first"
        " misclassified severity, with the prediction and its confidence."
    )
    body = join(
        [picker("strip", "Shift", shifts), *(columns_of_models(view, shift, drawn) for shift in shifts)]
    )
    return Section("Which images fail first?", body, "Images", lead)


def _draw(view: View) -> dict[tuple[str, str], list[Html]]:
    """Return strips by shift and model, drawn in turns so that all groups share the bytes."""
    album = Album(view, THUMBNAIL_BYTES)
    strips_of: dict[tuple[str, str], list[Html]] = {}
    for row in frames_of(view):
        if album.left <= 0:
            break
        strips_of.setdefault((row["shift"], row["model"]), []).append(strip_of(view, album, row))
    return strips_of


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
    """Return the strip of one trajectory: clean, last correct severity, and first misclassified severity."""
    ground_truth = view.class_name(row["run_id"], row["clean"]["label"])
    what = tag("p", tag("b", ground_truth), tag("span", breakable(row["sample_id"])), cls="what")
    shots = [
        ("clean", "clean", row["clean"]),
        ("right", "last correct", row["right"]),
        ("wrong", "first wrong", row["wrong"]),
    ]
    if not row["right"]["severity"]:
        shots = [("clean", "clean, last correct", row["clean"]), shots[-1]]
    return tag(
        "div",
        what,
        tag("div", *(_shot(view, album, row, *shot) for shot in shots), cls="frames"),
        cls="strip",
    )


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
