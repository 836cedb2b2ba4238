"""Progress of a labelling: images, annotators, working time and pay."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from sorites.apps.annotation.answers import (
    QUALIFICATION,
    SUSPENDED,
    answered_images,
    checks_of,
    differ,
    mean_score,
)
from sorites.apps.annotation.clicks import current_answers, replay_answers
from sorites.apps.annotation.store import open_labelling, task_of
from sorites.apps.annotation.task import Pay, Task
from sorites.core.errors import SoritesError
from sorites.metrics.intervals import share

_PEOPLE = """
SELECT w.id, w.name, w.state,
  (SELECT count(*) FROM assignments a
     WHERE a.annotator = w.id AND a.answered = 1 AND a.role = 'work') AS answered,
  (SELECT count(*) FROM assignments a WHERE a.annotator = w.id AND a.answered = 0 AND a.released = 0) AS left,
  (SELECT count(*) FROM batches b WHERE b.annotator = w.id AND b.kind = 'work'
     AND NOT EXISTS (SELECT 1 FROM assignments a WHERE a.batch = b.id AND a.answered = 0)) AS batches
FROM annotators w ORDER BY w.id
"""
_SECONDS = """
SELECT c.seconds FROM answers s JOIN clicks c ON c.id = s.click JOIN assignments a ON a.id = s.assignment
WHERE a.annotator = ? AND c.seconds IS NOT NULL GROUP BY s.assignment ORDER BY c.seconds
"""


def images(path: Path) -> dict[str, int]:
    """Count the images of a labelling: requested, known, begun, done, differing and unreadable.

    And the clicks.

    Raises:
        SoritesError: If the stored answers differ from the log of clicks.
    """
    with open_labelling(path) as database:
        if replay_answers(database) != current_answers(database):
            raise SoritesError(
                f"{path}: its answers do not match its log of clicks; it was modified by another program"
            )
        task, answered = task_of(database), list(answered_images(database))
        several = [item for item in answered if len(item.given) >= 2]
        return {
            "images": _count(database, "images WHERE known = 0"),
            "known": _count(database, "images WHERE known = 1"),
            "begun": len(answered),
            "done": _count(database, f"images WHERE known = 0 AND wanted <= {_ANSWERED}  AND error IS NULL"),
            "differing": sum(differ(task, item.given) for item in several),
            "unreadable": _count(database, "images WHERE error IS NOT NULL"),
            "clicks": _count(database, "clicks"),
        }


_ANSWERED = (
    "(SELECT count(*) FROM assignments a JOIN annotators w ON w.id = a.annotator WHERE a.image = images.id"
    " AND a.answered = 1 AND a.role = 'work' AND w.state != 'suspended')"
)


def _count(database: sqlite3.Connection, what: str) -> int:
    return int(database.execute(f"SELECT count(*) FROM {what}").fetchone()[0])


def annotators(path: Path) -> pl.DataFrame:
    """Return one row per annotator: state, progress, accuracy on the qualification and on hidden checks, time
    and pay.

    The qualification is open, and hidden checks are not, so they are not averaged: ``recent_right`` is the
    mean of the last checks, by which annotators are suspended, and ``note`` says that hidden checks are
    clearly worse than the qualification asks for, or that the annotator is suspended.
    """
    with open_labelling(path) as database:
        task = task_of(database)
        checks, pay = checks_of(database), task.pay
        rows = []
        for row in database.execute(_PEOPLE).fetchall():
            qualified, hidden = checks.by_role.get((row["id"], QUALIFICATION), []), checks.hidden(row["id"])
            recent = hidden[-task.suspension.checks :] if task.suspension.checks else hidden
            rows.append(
                {
                    "annotator": row["name"],
                    "state": row["state"],
                    "answered": row["answered"],
                    "left": row["left"],
                    "batches": row["batches"],
                    "qualification_n": len(qualified),
                    "qualification_right": mean_score(qualified),
                    "checks_n": len(hidden),
                    "checks_right": mean_score(hidden),
                    "recent_right": mean_score(recent),
                    "median_seconds": _median(database, row["id"]),
                    "pay": owed(pay, row["batches"]),
                    "note": _note(row["state"], hidden, task),
                }
            )
    numbers = ("qualification_right", "checks_right", "recent_right", "median_seconds", "pay")
    schema: dict[str, Any] = {**dict.fromkeys(numbers, pl.Float64), "note": pl.String}
    frame = pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None)
    return frame if pay is not None else frame.drop("pay", strict=False)


def _note(state: str, hidden: Sequence[float], task: Task) -> str:
    """Return what to look at: a suspension, or hidden checks clearly below the bar of the qualification (the
    upper limit of Wilson's 95 % interval is below it).
    """
    if state == SUSPENDED:
        return "suspended; its images are queued again"
    score = mean_score(hidden)
    _, high = (None, None) if score is None else share(score, len(hidden))
    low = high is not None and high < task.qualification.bar
    return "drop: hidden checks are below the bar of the qualification" if low else ""


def _median(database: sqlite3.Connection, who: int) -> float | None:
    """Return the median time in seconds that an annotator looked at an image."""
    seconds = [row["seconds"] for row in database.execute(_SECONDS, (who,))]
    middle = len(seconds) // 2
    return (
        (seconds[middle] if len(seconds) % 2 else (seconds[middle - 1] + seconds[middle]) / 2)
        if seconds
        else None
    )


def owed(pay: Pay | None, batches: int) -> float | None:
    """Return the pay for completed batches, including bonuses."""
    if pay is None:
        return None
    bonus = pay.bonus * (batches // pay.bonus_batches) if pay.bonus_batches else 0.0
    return round(pay.batch * batches + bonus, 2)


def pay_lines(path: Path) -> list[str]:
    """Return lines of text: the pay per batch, and the total of each annotator."""
    with open_labelling(path) as database:
        task = task_of(database)
    if task.pay is None:
        return [f"the task {task.name} has no pay; add a table [pay] with batch = 0.67 to your own task file"]
    pay = task.pay
    bonus = f", {pay.bonus:g} more for every {pay.bonus_batches} batches" if pay.bonus_batches else ""
    first = f"pay: {pay.batch:g} {pay.currency} per batch of {task.batch.size}{bonus}"
    rows = annotators(path).iter_rows(named=True)
    return [
        first,
        *(f"  {row['annotator']}: {row['batches']} batches, {row['pay']:.2f} {pay.currency}" for row in rows),
    ]
