"""Read what people answered and which answers were chosen: rows by image and question.

from sorites.apps.annotation.answers import chosen_answers rows =
chosen_answers(Path("labels.sqlite")) # image, image_id, sample_id, shift, severity, question,
value, agree, n
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from sorites.apps.annotation.store import dumped, opened, task_of
from sorites.apps.annotation.task import Question, Task
from sorites.apps.annotation.values import Value, nearness, rightness, same

# Choose one answer from those of several people, by the rule that a task names.


# The number of answers from which the majority counts for more than who was better.
ENOUGH = 3


@dataclass(frozen=True)
class Given:
    """The answers of one person to the questions of one image, and how good that person was on
    known images.
    """

    annotator: str
    values: dict[str, Value]
    batch_check: float | None = None
    all_checks: float | None = None
    order: int = 0
    """The place of the click among all clicks."""
    seconds: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Chosen:
    """One question's chosen answer, whose it is, and how many of how many gave the same."""

    question: str
    value: Value
    annotator: str
    agree: int
    n: int


def chosen(task: Task, given: Sequence[Given]) -> list[Chosen]:
    """Return the chosen answer to each question that anybody answered."""
    found = []
    for question in task.questions:
        some = [one for one in ranked(given) if question.id in one.values]
        if some:
            best = _RULES[task.rule_of(question)](question, some)
            value = best.values[question.id]
            agree = sum(same(question, one.values[question.id], value) for one in some)
            found.append(Chosen(question.id, value, best.annotator, agree, len(some)))
    return found


def ranked(given: Sequence[Given]) -> list[Given]:
    """Return the answers in the order of their weight: by the checks of the batch, by all checks,
    then the earlier.
    """
    return sorted(given, key=lambda one: (-(one.batch_check or 0.0), -(one.all_checks or 0.0), one.order))


def _better_check(question: Question, some: Sequence[Given]) -> Given:
    return _majority(question, some) if len(some) >= ENOUGH else some[0]


def _majority(question: Question, some: Sequence[Given]) -> Given:
    """The answer that is nearest to all, which is what most gave; of equals the one of most weight."""
    values = [one.values[question.id] for one in some]
    support = [sum(nearness(question, value, other) for other in values) for value in values]
    return some[support.index(max(support))]


def _at_least_one(question: Question, some: Sequence[Given]) -> Given:
    """The strongest value that anybody gave; where the question names none, what most gave."""
    for value in question.first:
        for one in some:
            if one.values[question.id] == value:
                return one
    return _majority(question, some)


_RULES = {"better_check": _better_check, "majority": _majority, "at_least_one": _at_least_one}


def differ(task: Task, given: Sequence[Given]) -> bool:
    """Return whether people gave different answers to a question, free texts aside."""
    for question in task.questions:
        values = [one.values.get(question.id) for one in given]
        if question.kind != "text" and any(not same(question, value, values[0]) for value in values[1:]):
            return True
    return False


# Count how often people were right on images whose answers are known: in the checks of a batch, and
# over all.


_KNOWN_ANSWERS = """
SELECT a.id, a.batch, a.annotator, a.image, s.question, s.value FROM assignments a JOIN answers s ON s.assignment = a.id
WHERE a.role IN ('check', 'qualification') {where}
"""


@dataclass
class Checks:
    """The scores on known images, each from 0 to 1, by batch and by annotator."""

    by_batch: dict[int, list[float]] = field(default_factory=dict)
    by_annotator: dict[int, list[float]] = field(default_factory=dict)

    def add(self, batch: int, annotator: int, score: float) -> None:
        self.by_batch.setdefault(batch, []).append(score)
        self.by_annotator.setdefault(annotator, []).append(score)

    def of_batch(self, batch: int) -> float | None:
        return _mean(self.by_batch.get(batch, []))

    def of_annotator(self, annotator: int) -> float | None:
        return _mean(self.by_annotator.get(annotator, []))


def _mean(scores: list[float]) -> float | None:
    return sum(scores) / len(scores) if scores else None


def known_answers(database: sqlite3.Connection) -> dict[int, dict[str, Value]]:
    """Return the known answers by image and question."""
    found: dict[int, dict[str, Value]] = {}
    for row in database.execute("SELECT image, question, value FROM known"):
        found.setdefault(row["image"], {})[row["question"]] = json.loads(row["value"])
    return found


def checks_of(database: sqlite3.Connection, batch: int | None = None) -> Checks:
    """Return the scores of all answers to known images, or of those in one batch."""
    task, known, checks = task_of(database), known_answers(database), Checks()
    query = _KNOWN_ANSWERS.format(where="" if batch is None else "AND a.batch = ?")
    given: dict[tuple[int, int, int, int], dict[str, Value]] = {}
    for row in database.execute(query, () if batch is None else (batch,)):
        key = (row["id"], row["batch"], row["annotator"], row["image"])
        given.setdefault(key, {})[row["question"]] = json.loads(row["value"])
    for (_, of, annotator, image), values in given.items():
        score = rightness(task, values, known.get(image, {}))
        if score is not None:
            checks.add(of, annotator, score)
    return checks


# The columns of the chosen answers. ``value`` is JSON: a word is ``"day"`` with quotes, several are
# ``["grass","sand"]``.
CHOSEN: dict[str, pl.DataType | type[pl.DataType]] = {
    "image": pl.String, "image_id": pl.String, "sample_id": pl.String, "class": pl.String, "shift": pl.String,
    "severity": pl.Float64, "question": pl.String, "value": pl.String, "annotator": pl.String, "agree": pl.Int64, "n": pl.Int64,
}  # fmt: skip
GIVEN: dict[str, pl.DataType | type[pl.DataType]] = {
    "image": pl.String, "image_id": pl.String, "sample_id": pl.String, "class": pl.String, "shift": pl.String,
    "severity": pl.Float64, "role": pl.String, "annotator": pl.String, "question": pl.String, "value": pl.String,
    "seconds": pl.Float64, "received": pl.Float64,
}  # fmt: skip
_ANSWERS = """
SELECT p.id, p.name, p.image_id, p.sample_id, p.shown_class, p.shift, p.severity, p.width, p.height,
  a.role, a.batch, a.id AS assignment,
  w.id AS who, w.name AS annotator, s.question, s.value, c.id AS click, c.seconds, c.received
FROM answers s JOIN assignments a ON a.id = s.assignment JOIN images p ON p.id = a.image
  JOIN annotators w ON w.id = a.annotator JOIN clicks c ON c.id = s.click
ORDER BY p.id, c.id, s.question
"""


@dataclass(frozen=True)
class Judged:
    """An image with the answers of all who had it for work, in the order in which they came."""

    facts: Mapping[str, Any]
    given: tuple[Given, ...]


def judged(database: sqlite3.Connection) -> Iterator[Judged]:
    """Yield every image that somebody answered for, known images aside."""
    checks = checks_of(database)
    facts: dict[int, dict[str, Any]] = {}
    found: dict[int, dict[int, Given]] = {}
    for row in database.execute(_ANSWERS):
        if row["role"] == "work":
            facts.setdefault(row["id"], _facts(row))
            one = found.setdefault(row["id"], {}).setdefault(row["assignment"], _given(row, checks))
            one.values[row["question"]] = json.loads(row["value"])
    for image, some in found.items():
        yield Judged(facts[image], tuple(some.values()))


def _facts(row: sqlite3.Row) -> dict[str, Any]:
    return {
        "image": row["name"], "image_id": row["image_id"], "sample_id": row["sample_id"], "class": row["shown_class"],
        "shift": row["shift"], "severity": row["severity"], "width": row["width"], "height": row["height"],
    }  # fmt: skip


def _given(row: sqlite3.Row, checks: Checks) -> Given:
    return Given(
        row["annotator"],
        {},
        checks.of_batch(row["batch"]),
        checks.of_annotator(row["who"]),
        row["click"],
        row["seconds"],
    )


def chosen_of(database: sqlite3.Connection, task: Task) -> Iterator[tuple[Judged, dict[str, Any]]]:
    """Yield every image with its chosen answers by question."""
    for one in judged(database):
        yield one, {choice.question: choice.value for choice in chosen(task, one.given)}


def chosen_answers(path: Path, question: str | None = None) -> pl.DataFrame:
    """Return the chosen answers of a labelling, one row per image and question (``CHOSEN``)."""
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
    """Return what each person answered, one row per image, person and question (``GIVEN``), known
    images too.
    """
    own = ("role", "annotator", "question", "value", "seconds", "received")
    with opened(path) as database:
        rows = [{**_facts(row), **{key: row[key] for key in own}} for row in database.execute(_ANSWERS)]
    return _frame(rows, GIVEN)


def _frame(rows: list[dict[str, Any]], schema: Mapping[str, Any]) -> pl.DataFrame:
    return pl.DataFrame({name: [row[name] for row in rows] for name in schema}, schema=dict(schema))
