"""Read the answers of a labelling, and resolve those of several annotators into one per question.

Example:
    rows = chosen_answers(Path("labels.sqlite"))
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from sorites.apps.annotation.store import canonical_json, open_labelling, task_of
from sorites.apps.annotation.task import Question, Task
from sorites.apps.annotation.values import Value, mean_nearness, nearness, same

# Resolution of differing answers by the rule of the task.


# From this many answers on, the majority outweighs accuracy on known images.
MIN_MAJORITY = 3


@dataclass(frozen=True)
class Given:
    """One annotator's answers for an image, with the annotator's accuracy on known images."""

    annotator: str
    values: dict[str, Value]
    batch_check: float | None = None
    all_checks: float | None = None
    order: int = 0
    """Sequence number of the click."""
    seconds: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Chosen:
    """The chosen answer to a question, its annotator, and how many of ``n`` annotators agree."""

    question: str
    value: Value
    annotator: str
    agree: int
    n: int


def chosen(task: Task, given: Sequence[Given]) -> list[Chosen]:
    """Return the chosen answer to each question that has answers."""
    choices = []
    for question in task.questions:
        answers = [answer for answer in ranked(given) if question.id in answer.values]
        if answers:
            best = _RULES[task.rule_of(question)](question, answers)
            value = best.values[question.id]
            agree = sum(same(question, answer.values[question.id], value) for answer in answers)
            choices.append(Chosen(question.id, value, best.annotator, agree, len(answers)))
    return choices


def ranked(answers: Sequence[Given]) -> list[Given]:
    """Sort answers by accuracy on the checks of the batch, then on all checks, then by time."""
    return sorted(
        answers, key=lambda answer: (-(answer.batch_check or 0.0), -(answer.all_checks or 0.0), answer.order)
    )


def _better_check(question: Question, answers: Sequence[Given]) -> Given:
    return _majority(question, answers) if len(answers) >= MIN_MAJORITY else answers[0]


def _majority(question: Question, answers: Sequence[Given]) -> Given:
    """Return the answer nearest to all others; ties go to the higher ranked."""
    values = [answer.values[question.id] for answer in answers]
    support = [sum(nearness(question, value, other) for other in values) for value in values]
    return answers[support.index(max(support))]


def _at_least_one(question: Question, answers: Sequence[Given]) -> Given:
    """Return the first value of ``question.first`` that anyone gave, or else the majority."""
    for value in question.first:
        for answer in answers:
            if answer.values[question.id] == value:
                return answer
    return _majority(question, answers)


_RULES = {"better_check": _better_check, "majority": _majority, "at_least_one": _at_least_one}


def differ(task: Task, answers: Sequence[Given]) -> bool:
    """Return whether annotators differ on any question, ignoring free text."""
    for question in task.questions:
        values = [answer.values.get(question.id) for answer in answers]
        if question.kind != "text" and any(not same(question, value, values[0]) for value in values[1:]):
            return True
    return False


# Accuracy on images with known answers.


_KNOWN_ANSWERS = """
SELECT a.id, a.batch, a.annotator, a.image, a.role, s.question, s.value
FROM assignments a JOIN answers s ON s.assignment = a.id
WHERE a.role IN ('check', 'qualification') {where} ORDER BY a.id
"""
# The role of the images of the qualification, and of hidden check images.
QUALIFICATION, CHECK = "qualification", "check"
# The state of an annotator whose work does not count.
SUSPENDED = "suspended"


@dataclass
class Checks:
    """Scores on images with known answers, from 0 to 1, in the order of assignment: by batch, by annotator,
    and by annotator and role, because annotators know that the qualification is one.
    """

    by_batch: dict[int, list[float]] = field(default_factory=dict)
    by_annotator: dict[int, list[float]] = field(default_factory=dict)
    by_role: dict[tuple[int, str], list[float]] = field(default_factory=dict)

    def add(self, batch: int, annotator: int, role: str, score: float) -> None:
        self.by_batch.setdefault(batch, []).append(score)
        self.by_annotator.setdefault(annotator, []).append(score)
        self.by_role.setdefault((annotator, role), []).append(score)

    def hidden(self, annotator: int) -> list[float]:
        """Return the scores of an annotator on hidden check images."""
        return self.by_role.get((annotator, CHECK), [])

    def of_batch(self, batch: int) -> float | None:
        return mean_score(self.by_batch.get(batch, []))

    def of_annotator(self, annotator: int) -> float | None:
        return mean_score(self.by_annotator.get(annotator, []))


def mean_score(scores: Sequence[float]) -> float | None:
    """Return the mean of scores, or None if there are none."""
    return sum(scores) / len(scores) if scores else None


def known_answers(database: sqlite3.Connection) -> dict[int, dict[str, Value]]:
    """Return the known answers by image and question."""
    answers: dict[int, dict[str, Value]] = {}
    for row in database.execute("SELECT image, question, value FROM known"):
        answers.setdefault(row["image"], {})[row["question"]] = json.loads(row["value"])
    return answers


def checks_of(database: sqlite3.Connection, batch: int | None = None, annotator: int | None = None) -> Checks:
    """Return the scores on images with known answers: all, or those of one batch or annotator."""
    task, known_values, checks = task_of(database), known_answers(database), Checks()
    limits = {"AND a.batch = ?": batch, "AND a.annotator = ?": annotator}
    chosen = {text: value for text, value in limits.items() if value is not None}
    query = _KNOWN_ANSWERS.format(where=" ".join(chosen))
    answers: dict[tuple[int, int, int, int, str], dict[str, Value]] = {}
    for row in database.execute(query, tuple(chosen.values())):
        key = (row["id"], row["batch"], row["annotator"], row["image"], row["role"])
        answers.setdefault(key, {})[row["question"]] = json.loads(row["value"])
    for (_, of_batch, who, image, role), values in answers.items():
        score = mean_nearness(task, values, known_values.get(image, {}))
        if score is not None:
            checks.add(of_batch, who, role, score)
    return checks


# Columns of the chosen answers. ``value`` is JSON: ``"day"`` with quotes, or ``["grass","sand"]``.
CHOSEN: dict[str, pl.DataType | type[pl.DataType]] = {
    "image": pl.String,
    "image_id": pl.String,
    "sample_id": pl.String,
    "class": pl.String,
    "shift": pl.String,
    "severity": pl.Float64,
    "question": pl.String,
    "value": pl.String,
    "annotator": pl.String,
    "agree": pl.Int64,
    "n": pl.Int64,
}
GIVEN: dict[str, pl.DataType | type[pl.DataType]] = {
    "image": pl.String,
    "image_id": pl.String,
    "sample_id": pl.String,
    "class": pl.String,
    "shift": pl.String,
    "severity": pl.Float64,
    "role": pl.String,
    "annotator": pl.String,
    "question": pl.String,
    "value": pl.String,
    "seconds": pl.Float64,
    "received": pl.Float64,
}
_ANSWERS = """
SELECT p.id, p.name, p.image_id, p.sample_id, p.shown_class, p.shift, p.severity, p.width, p.height,
  a.role, a.batch, a.id AS assignment,
  w.id AS who, w.name AS annotator, w.state, s.question, s.value, c.id AS click, c.seconds, c.received
FROM answers s JOIN assignments a ON a.id = s.assignment JOIN images p ON p.id = a.image
  JOIN annotators w ON w.id = a.annotator JOIN clicks c ON c.id = s.click
ORDER BY p.id, c.id, s.question
"""


@dataclass(frozen=True)
class AnsweredImage:
    """An image with the answers of all its annotators, in order of arrival."""

    facts: Mapping[str, Any]
    given: tuple[Given, ...]


def answered_images(database: sqlite3.Connection) -> Iterator[AnsweredImage]:
    """Yield every image with answers, except those with known answers; those of suspended annotators do not
    count.
    """
    checks = checks_of(database)
    facts: dict[int, dict[str, Any]] = {}
    answers: dict[int, dict[int, Given]] = {}
    for row in database.execute(_ANSWERS):
        if row["role"] == "work" and row["state"] != SUSPENDED:
            facts.setdefault(row["id"], _facts(row))
            answer = answers.setdefault(row["id"], {}).setdefault(
                row["assignment"], _empty_answers(row, checks)
            )
            answer.values[row["question"]] = json.loads(row["value"])
    for image, by_assignment in answers.items():
        yield AnsweredImage(facts[image], tuple(by_assignment.values()))


def _facts(row: sqlite3.Row) -> dict[str, Any]:
    return {
        "image": row["name"],
        "image_id": row["image_id"],
        "sample_id": row["sample_id"],
        "class": row["shown_class"],
        "shift": row["shift"],
        "severity": row["severity"],
        "width": row["width"],
        "height": row["height"],
    }


def _empty_answers(row: sqlite3.Row, checks: Checks) -> Given:
    return Given(
        row["annotator"],
        {},
        checks.of_batch(row["batch"]),
        checks.of_annotator(row["who"]),
        row["click"],
        row["seconds"],
    )


def chosen_by_image(
    database: sqlite3.Connection, task: Task
) -> Iterator[tuple[AnsweredImage, dict[str, Any]]]:
    """Yield every image with its chosen answers by question."""
    for item in answered_images(database):
        yield item, {choice.question: choice.value for choice in chosen(task, item.given)}


def chosen_answers(path: Path, question: str | None = None) -> pl.DataFrame:
    """Return the chosen answers of a labelling, one row per image and question (columns ``CHOSEN``).

    Args:
        path: The labelling.
        question: Return only the answers to this question.
    """
    with open_labelling(path) as database:
        task = task_of(database)
        if question is not None:
            task.question(question)
        rows = [
            {**item.facts, **vars(choice), "value": canonical_json(choice.value)}
            for item in answered_images(database)
            for choice in chosen(task, item.given)
            if question in (None, choice.question)
        ]
    return _frame(rows, CHOSEN)


def given_answers(path: Path) -> pl.DataFrame:
    """Return all answers, one row per image, annotator and question (columns ``GIVEN``)."""
    columns = ("role", "annotator", "question", "value", "seconds", "received")
    with open_labelling(path) as database:
        rows = [{**_facts(row), **{key: row[key] for key in columns}} for row in database.execute(_ANSWERS)]
    return _frame(rows, GIVEN)


def _frame(rows: list[dict[str, Any]], schema: Mapping[str, Any]) -> pl.DataFrame:
    return pl.DataFrame({name: [row[name] for row in rows] for name in schema}, schema=dict(schema))
