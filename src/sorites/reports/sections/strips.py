"""The pictures that failed first, at the last stop where the model was right and the first where it was wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from sorites import metrics
from sorites.core import CLEAN
from sorites.reports.parts.charts import pen, stop
from sorites.reports.parts.markup import Html, join, percent, tag
from sorites.reports.parts.picker import picker
from sorites.reports.parts.thumbnails import data_uri
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

EACH = 4
"""Strips a model and shift, at most."""
ALL = 72
"""Strips a page, at most."""
WEIGHT = 1_300_000
"""Bytes that the thumbnails of a page may take, as they stand in the file."""
PLACE = ["run_id", "model", "shift", "sample_id", "seed"]

Row = dict[str, Any]


@dataclass
class Album:
    """Thumbnails as data URIs, each made once, until the page's allowance is used up."""

    view: View
    left: int = WEIGHT
    made: dict[tuple[str, str, str, float], str | None] = field(default_factory=dict)

    def thumbnail(self, run_id: str, sample_id: str, shift: str, severity: float) -> str | None:
        key = (run_id, sample_id, shift if severity else CLEAN, severity)
        if key not in self.made:
            picture = self.view.picture(*key)
            self.made[key] = None if picture is None else data_uri(picture)
        self.left -= len(self.made[key] or "")
        return self.made[key]


@add_section(order=50)
def strips(view: View) -> Section | None:
    """One shift at a time, a column a model; absent where no run can make its pictures again."""
    if not any(run.picture for run in view.runs):
        return None
    drawn = dict(_drawn(view))
    shifts = [shift for shift in view.shifts if any(shift == key[0] for key in drawn)]
    if not shifts:
        return None
    lead = (
        "Of the pictures a model had right when clean, those it lost at the least severity: clean, at the last stop where it was "
        "right, and at the first where it was wrong, with what it said and how sure it was."
    )
    body = join([picker("strip", "Shift", shifts), *(_pick(view, shift, drawn) for shift in shifts)])
    return Section("What failed first", body, "Pictures", lead)


def _drawn(view: View) -> Iterator[tuple[tuple[str, str], list[Html]]]:
    """Strips by shift and model; the first of each is drawn before the second of any, so that the allowance is shared out."""
    album = Album(view)
    found: dict[tuple[str, str], list[Html]] = {}
    for row in _frames(view):
        if album.left <= 0:
            break
        found.setdefault((row["shift"], row["model"]), []).append(_strip(view, album, row))
    yield from found.items()


def _frames(view: View) -> list[Row]:
    """A row a strip: the trajectory, and the rows of the table at its three stops (``clean``, ``right``, ``wrong``)."""
    chosen = first_lost(view)
    rows = view.table.filter((pl.col("output") == "label") & pl.col("correct").is_not_null() & pl.col("error").is_null())
    rows = rows.join(
        chosen.lazy().select("run_id", "model", "sample_id").unique(),
        on=["run_id", "model", "sample_id"],
        how="semi",
        nulls_equal=True,
    )
    held = ("run_id", "model", "shift", "sample_id", "severity", "label", "pred", "conf", "correct")
    told = rows.select(held).collect(engine="streaming")
    return [frames for row in chosen.to_dicts() if (frames := _stops(row, told))]


def _stops(row: Row, told: pl.DataFrame) -> Row | None:
    mine = (pl.col(name) == row[name] for name in ("run_id", "model", "sample_id"))
    own = told.filter(*mine, pl.col("shift").is_in([CLEAN, row["shift"]])).sort("severity")
    if own.filter(pl.col("shift") == row["shift"])["severity"].is_duplicated().any():
        return None  # several pictures at one stop are no strip
    own = own.unique("severity", keep="first", maintain_order=True)
    wrong = own.filter(pl.col("severity") == row["failure"]).to_dicts()
    before = own.filter(pl.col("severity") < row["failure"]).to_dicts()
    if not wrong or not before or before[0]["severity"] != 0:
        return None
    return {**row, "clean": before[0], "right": before[-1], "wrong": wrong[0]}


def first_lost(view: View) -> pl.DataFrame:
    """Trajectories that were right when clean and failed, the least first; ties by sample, so that a page is the same twice."""
    lost = metrics.trajectories(view.table).filter(pl.col("failure") > 0).collect(engine="streaming").sort("failure", *PLACE)
    turn = pl.int_range(pl.len()).over("shift", "model")
    return lost.with_columns(turn=turn).filter(pl.col("turn") < EACH).sort("turn", "failure", *PLACE).head(ALL)


def _strip(view: View, album: Album, row: Row) -> Html:
    truth = view.said(row["run_id"], row["clean"]["label"])
    what = tag("p", tag("b", truth), tag("span", row["sample_id"]), cls="what")
    shots = [("clean", "clean", row["clean"]), ("right", "last right", row["right"]), ("wrong", "first wrong", row["wrong"])]
    return tag("div", what, tag("div", *(_shot(view, album, row, *shot) for shot in shots), cls="frames"), cls="strip")


def _shot(view: View, album: Album, row: Row, kind: str, name: str, seen: Row) -> Html:
    said, severity = view.said(row["run_id"], seen["pred"]), seen["severity"] or 0.0
    source = album.thumbnail(row["run_id"], row["sample_id"], row["shift"], severity)
    where = name if name == "clean" else f"{name}: {stop(row['shift'], severity) if severity else 'clean'}"
    also = " (counts as right)" if seen["correct"] and seen["pred"] != seen["label"] else ""
    alt = f"{view.said(row['run_id'], seen['label'])}, {row['shift']} {where}: the model says {said}{also}"
    image = tag("div", "picture not at hand", cls="gone") if source is None else tag("img", src=source, alt=alt, decoding="async")
    sure = f" {percent(seen['conf'], 0)}" if seen["conf"] is not None else ""
    return tag("figure", image, tag("figcaption", tag("b", said + sure + also), where), cls=kind)


def _pick(view: View, shift: str, drawn: dict[tuple[str, str], list[Html]]) -> Html:
    columns = [
        tag("article", tag("h3", model), *drawn[shift, model], cls="card model", style=f"--pen:{pen(view, model).colour}")
        for model in view.models
        if (shift, model) in drawn
    ]
    return tag("div", tag("h3", shift, cls="away"), tag("div", *columns, cls="cards"), cls="picks", data_pick=shift)
