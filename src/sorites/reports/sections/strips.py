"""The section with the images that fail first, at the last severity that is right and the first
that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from sorites import metrics
from sorites.core import CLEAN
from sorites.reports.components.charts import severity_text
from sorites.reports.components.images import Album, columns_of_models
from sorites.reports.components.markup import Html, breakable, join, percent, picker, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

# There are at most this many strips per model and shift.
EACH = 4
# There are at most this many strips per page.
ALL = 72
# The thumbnails of a page may take this many bytes, as encoded in the file.
WEIGHT = 1_300_000
PLACE = ["run_id", "model", "shift", "sample_id", "seed"]

Row = dict[str, Any]


@add_section(order=50)
def strips(view: View) -> Section | None:
    """One shift at a time, with one column per model; absent where no run can make its images again."""
    if not any(run.image for run in view.runs):
        return None
    drawn = dict(_drawn(view))
    shifts = [shift for shift in view.shifts if any(shift == key[0] for key in drawn)]
    if not shifts:
        return None
    lead = (
        "These are the images that a model gets right when clean and wrong at the least severity. Each is"
        " shown clean, at the last severity before the failure (unless that is the clean image) and at the"
        " first that is wrong, with the prediction and its confidence."
    )
    body = join(
        [picker("strip", "Shift", shifts), *(columns_of_models(view, shift, drawn) for shift in shifts)]
    )
    return Section("Which images fail first?", body, "Images", lead)


def _drawn(view: View) -> Iterator[tuple[tuple[str, str], list[Html]]]:
    """Yield strips by shift and model; the first of each is drawn before the second of any, so that
    all share the allowance.
    """
    album = Album(view, WEIGHT)
    found: dict[tuple[str, str], list[Html]] = {}
    for row in frames_of(view):
        if album.left <= 0:
            break
        found.setdefault((row["shift"], row["model"]), []).append(strip_of(view, album, row))
    yield from found.items()


def frames_of(view: View) -> list[Row]:
    """Return one row per strip: the trajectory, and the table's rows at three severities
    (``clean``, ``right``, ``wrong``).
    """
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
    shown = verdicts.filter(*same, pl.col("shift").is_in([CLEAN, row["shift"]])).sort("severity")
    if shown.filter(pl.col("shift") == row["shift"])["severity"].is_duplicated().any():
        return None  # several images at one severity make no strip
    shown = shown.unique("severity", keep="first", maintain_order=True)
    wrong = shown.filter(pl.col("severity") == row["failure"]).to_dicts()
    before = shown.filter(pl.col("severity") < row["failure"]).to_dicts()
    if not wrong or not before or before[0]["severity"] != 0:
        return None
    return {**row, "clean": before[0], "right": before[-1], "wrong": wrong[0]}


def first_lost(view: View) -> pl.DataFrame:
    """Return the trajectories that are right when clean and fail, the least severity first.

    Ties are sorted by sample, so that the same table gives the same page.
    """
    lost = (
        metrics.trajectories(view.table)
        .filter(pl.col("failure") > 0)
        .collect(engine="streaming")
        .sort("failure", *PLACE)
    )
    turn = pl.int_range(pl.len()).over("shift", "model")
    return (
        lost.with_columns(turn=turn).filter(pl.col("turn") < EACH).sort("turn", "failure", *PLACE).head(ALL)
    )


def strip_of(view: View, album: Album, row: Row) -> Html:
    """Return the strip of one trajectory: clean, the last severity that is right, and the first
    that is wrong.
    """
    ground_truth = view.class_name(row["run_id"], row["clean"]["label"])
    what = tag("p", tag("b", ground_truth), tag("span", breakable(row["sample_id"])), cls="what")
    shots = [
        ("clean", "clean", row["clean"]),
        ("right", "last right", row["right"]),
        ("wrong", "first wrong", row["wrong"]),
    ]
    if not row["right"]["severity"]:
        shots = [("clean", "clean, last right", row["clean"]), shots[-1]]
    return tag(
        "div",
        what,
        tag("div", *(_shot(view, album, row, *shot) for shot in shots), cls="frames"),
        cls="strip",
    )


def _shot(view: View, album: Album, row: Row, kind: str, name: str, seen: Row) -> Html:
    prediction, severity = view.class_name(row["run_id"], seen["pred"]), seen["severity"] or 0.0
    source = album.thumbnail(row["run_id"], row["sample_id"], row["shift"], severity)
    where = f"{name}: {severity_text(view, row['shift'], severity)}" if severity else name
    also = " (counts as right)" if seen["correct"] and seen["pred"] != seen["label"] else ""
    alt = (
        f"{view.class_name(row['run_id'], seen['label'])}, {row['shift']} {where}: the model says"
        f" {prediction}{also}"
    )
    image = (
        tag("div", "image not available", cls="gone")
        if source is None
        else tag("img", src=source, alt=alt, decoding="async")
    )
    sure = f" {percent(seen['conf'], 0)}" if seen["conf"] is not None else ""
    return tag("figure", image, tag("figcaption", tag("b", prediction + sure + also), where), cls=kind)
