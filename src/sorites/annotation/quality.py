"""Count how often people were right on pictures whose answers are known: in the checks of a batch, and over all."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field

from sorites.annotation.store import task_of
from sorites.annotation.values import Value, rightness

_KNOWN_ANSWERS = """
SELECT a.id, a.batch, a.annotator, a.picture, s.question, s.value FROM assignments a JOIN answers s ON s.assignment = a.id
WHERE a.role IN ('check', 'qualification') {where}
"""


@dataclass
class Checks:
    """The scores on known pictures, each from 0 to 1, by batch and by annotator."""

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
    """Return the known answers by picture and question."""
    found: dict[int, dict[str, Value]] = {}
    for row in database.execute("SELECT picture, question, value FROM known"):
        found.setdefault(row["picture"], {})[row["question"]] = json.loads(row["value"])
    return found


def checks_of(database: sqlite3.Connection, batch: int | None = None) -> Checks:
    """Return the scores of all answers to known pictures, or of those in one batch."""
    task, known, checks = task_of(database), known_answers(database), Checks()
    query = _KNOWN_ANSWERS.format(where="" if batch is None else "AND a.batch = ?")
    given: dict[tuple[int, int, int, int], dict[str, Value]] = {}
    for row in database.execute(query, () if batch is None else (batch,)):
        key = (row["id"], row["batch"], row["annotator"], row["picture"])
        given.setdefault(key, {})[row["question"]] = json.loads(row["value"])
    for (_, of, annotator, picture), values in given.items():
        score = rightness(task, values, known.get(picture, {}))
        if score is not None:
            checks.add(of, annotator, score)
    return checks
