"""Read what people answered and which answers were chosen: rows by picture and question.

from sorites.annotation.answers import chosen_answers
rows = chosen_answers(Path("labels.sqlite"))     # picture, image_id, sample_id, shift, severity, question, value, agree, n
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from sorites.annotation.quality import Checks, checks_of
from sorites.annotation.resolve import Given, chosen
from sorites.annotation.store import dumped, opened, task_of
from sorites.annotation.task import Task

CHOSEN: dict[str, pl.DataType | type[pl.DataType]] = {
    "picture": pl.String, "image_id": pl.String, "sample_id": pl.String, "class": pl.String, "shift": pl.String,
    "severity": pl.Float64, "question": pl.String, "value": pl.String, "annotator": pl.String, "agree": pl.Int64, "n": pl.Int64,
}  # fmt: skip
"""The columns of the chosen answers. ``value`` is JSON: a word is ``"day"`` with quotes, several are ``["grass","sand"]``."""
GIVEN: dict[str, pl.DataType | type[pl.DataType]] = {
    "picture": pl.String, "image_id": pl.String, "sample_id": pl.String, "class": pl.String, "shift": pl.String,
    "severity": pl.Float64, "role": pl.String, "annotator": pl.String, "question": pl.String, "value": pl.String,
    "seconds": pl.Float64, "received": pl.Float64,
}  # fmt: skip
_ANSWERS = """
SELECT p.id, p.name, p.image_id, p.sample_id, p.shown_class, p.shift, p.severity, p.width, p.height,
  a.role, a.batch, a.id AS assignment,
  w.id AS who, w.name AS annotator, s.question, s.value, c.id AS click, c.seconds, c.received
FROM answers s JOIN assignments a ON a.id = s.assignment JOIN pictures p ON p.id = a.picture
  JOIN annotators w ON w.id = a.annotator JOIN clicks c ON c.id = s.click
ORDER BY p.id, c.id, s.question
"""


@dataclass(frozen=True)
class Judged:
    """A picture with the answers of all who had it for work, in the order in which they came."""

    facts: Mapping[str, Any]
    given: tuple[Given, ...]


def judged(database: sqlite3.Connection) -> Iterator[Judged]:
    """Yield every picture that somebody answered for, known pictures aside."""
    checks = checks_of(database)
    facts: dict[int, dict[str, Any]] = {}
    found: dict[int, dict[int, Given]] = {}
    for row in database.execute(_ANSWERS):
        if row["role"] == "work":
            facts.setdefault(row["id"], _facts(row))
            one = found.setdefault(row["id"], {}).setdefault(row["assignment"], _given(row, checks))
            one.values[row["question"]] = json.loads(row["value"])
    for picture, some in found.items():
        yield Judged(facts[picture], tuple(some.values()))


def _facts(row: sqlite3.Row) -> dict[str, Any]:
    return {
        "picture": row["name"], "image_id": row["image_id"], "sample_id": row["sample_id"], "class": row["shown_class"],
        "shift": row["shift"], "severity": row["severity"], "width": row["width"], "height": row["height"],
    }  # fmt: skip


def _given(row: sqlite3.Row, checks: Checks) -> Given:
    return Given(
        row["annotator"], {}, checks.of_batch(row["batch"]), checks.of_annotator(row["who"]), row["click"], row["seconds"]
    )


def chosen_of(database: sqlite3.Connection, task: Task) -> Iterator[tuple[Judged, dict[str, Any]]]:
    """Yield every picture with its chosen answers by question."""
    for one in judged(database):
        yield one, {choice.question: choice.value for choice in chosen(task, one.given)}


def chosen_answers(path: Path, question: str | None = None) -> pl.DataFrame:
    """Return the chosen answers of a labelling, one row per picture and question (``CHOSEN``)."""
    with opened(path) as database:
        task = task_of(database)
        if question is not None:
            task.question(question)
        rows = [
            {**one.facts, **vars(choice), "value": dumped(choice.value)}
            for one in judged(database)
            for choice in chosen(task, one.given)
            if question in (None, choice.question)
        ]
    return _frame(rows, CHOSEN)


def given_answers(path: Path) -> pl.DataFrame:
    """Return what each person answered, one row per picture, person and question (``GIVEN``), known pictures too."""
    own = ("role", "annotator", "question", "value", "seconds", "received")
    with opened(path) as database:
        rows = [{**_facts(row), **{key: row[key] for key in own}} for row in database.execute(_ANSWERS)]
    return _frame(rows, GIVEN)


def _frame(rows: list[dict[str, Any]], schema: Mapping[str, Any]) -> pl.DataFrame:
    return pl.DataFrame({name: [row[name] for row in rows] for name in schema}, schema=dict(schema))
