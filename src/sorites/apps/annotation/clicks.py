"""Store clicks.

Each has a unique id and is stored once however often it is sent, for assigned images only.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from typing import Any

from sorites.apps.annotation.answers import Given, differ
from sorites.apps.annotation.store import canonical_json, writing
from sorites.apps.annotation.task import Task
from sorites.apps.annotation.values import Value, validate_answers
from sorites.core.errors import SoritesError

# Maximum number of clicks per request.
MAX_CLICKS = 200
MAX_SECONDS = 86_400.0
ACTIONS = ("answer", "undo")


def receive(database: sqlite3.Connection, task: Task, who: int, clicks: object) -> dict[str, Any]:
    """Store clicks of one annotator in one transaction.

    Returns:
        The ids that are stored (``kept``), and the reasons why others are not (``refused``).
    """
    if not isinstance(clicks, list) or len(clicks) > MAX_CLICKS:
        raise SoritesError(f"expected a list of at most {MAX_CLICKS} clicks")
    stored: list[str] = []
    refused: dict[str, str] = {}
    with writing(database):
        for click in clicks:
            id_ = _id(click)
            try:
                keep(database, task, who, id_, click)
                stored.append(id_)
            except SoritesError as error:
                refused[id_] = str(error)
    return {"kept": stored, "refused": refused}


def _id(click: object) -> str:
    id_ = click.get("id") if isinstance(click, Mapping) else None
    if not isinstance(id_, str) or not 8 <= len(id_) <= 64 or not id_.isascii():
        raise SoritesError("a click needs an id of 8 to 64 ASCII characters")
    return id_


def keep(database: sqlite3.Connection, task: Task, who: int, id_: str, click: Mapping[str, Any]) -> None:
    """Store one click; a duplicate is ignored."""
    row = _assignment(database, who, click.get("assignment"))
    existing = database.execute("SELECT assignment FROM clicks WHERE click = ?", (id_,)).fetchone()
    if existing is not None:
        if existing["assignment"] != row["id"]:
            raise SoritesError("another click has this id")
        return
    if row["closed"] is not None:
        raise SoritesError("this qualification is closed")
    action = click.get("action")
    if action not in ACTIONS:
        raise SoritesError(f"the action must be {' or '.join(ACTIONS)}")
    values = validate_answers(task, click.get("value")) if action == "answer" else None
    _write(database, row["id"], id_, action, values, _seconds(click.get("seconds")))
    _update_state(database, task, row, action)


def _assignment(database: sqlite3.Connection, who: int, number: object) -> sqlite3.Row:
    query = """SELECT a.id, a.image, a.batch, a.role, a.answered, a.released, b.closed FROM assignments a
      JOIN batches b ON b.id = a.batch WHERE a.id = ? AND a.annotator = ?"""
    is_valid = isinstance(number, int) and not isinstance(number, bool) and 0 < number < 2**62
    row: sqlite3.Row | None = database.execute(query, (number, who)).fetchone() if is_valid else None
    if row is None:
        raise SoritesError("this image is not assigned to you")
    return row


def _seconds(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return round(min(float(value), MAX_SECONDS), 3) if is_number and value >= 0 else None  # type: ignore[arg-type, operator]


def _write(
    database: sqlite3.Connection,
    assignment: int,
    id_: str,
    action: str,
    values: Mapping[str, Value] | None,
    seconds: float | None,
) -> None:
    click = database.execute(
        "INSERT INTO clicks (click, assignment, action, value, seconds, received) VALUES (?, ?, ?, ?, ?, ?)",
        (id_, assignment, action, None if values is None else canonical_json(values), seconds, time.time()),
    )
    database.execute("DELETE FROM answers WHERE assignment = ?", (assignment,))
    rows = [
        (assignment, question, canonical_json(value), click.lastrowid)
        for question, value in (values or {}).items()
    ]
    database.executemany("INSERT INTO answers VALUES (?, ?, ?, ?)", rows)


def _update_state(database: sqlite3.Connection, task: Task, row: sqlite3.Row, action: str) -> None:
    """Update the assignment, its batch, and how many annotators the image needs."""
    answered = int(action == "answer")
    database.execute("UPDATE assignments SET answered = ?, released = 0 WHERE id = ?", (answered, row["id"]))
    database.execute("UPDATE batches SET last = ? WHERE id = ?", (time.time(), row["batch"]))
    if row["released"] and row["role"] == "work":
        database.execute("UPDATE images SET given = given + 1 WHERE id = ?", (row["image"],))
    if task.third and row["role"] == "work":
        _update_wanted(database, task, row["image"])


def _update_wanted(database: sqlite3.Connection, task: Task, image: int) -> None:
    """Request one more answer if the annotators of an image differ, and otherwise none."""
    query = """SELECT a.id, s.question, s.value FROM assignments a JOIN answers s ON s.assignment = a.id
      WHERE a.image = ? AND a.role = 'work'"""
    answers: dict[int, dict[str, Value]] = {}
    for row in database.execute(query, (image,)):
        answers.setdefault(row["id"], {})[row["question"]] = json.loads(row["value"])
    by_annotator = [Given("", values) for values in answers.values()]
    wanted = task.annotators + (len(by_annotator) >= task.annotators and differ(task, by_annotator))
    database.execute("UPDATE images SET wanted = ? WHERE id = ?", (wanted, image))


def ask_thirds(database: sqlite3.Connection, task: Task) -> None:
    """Request third answers for all answered images; used when this is switched on later."""
    query = "SELECT DISTINCT image FROM assignments WHERE role = 'work' AND answered = 1"
    for row in database.execute(query).fetchall():
        _update_wanted(database, task, row["image"])


def replay_answers(database: sqlite3.Connection) -> dict[int, dict[str, Value]]:
    """Return the answers by assignment, recomputed from the log of clicks."""
    answers: dict[int, dict[str, Value]] = {}
    for row in database.execute("SELECT assignment, action, value FROM clicks ORDER BY id"):
        answers.pop(row["assignment"], None)
        if row["action"] == "answer":
            answers[row["assignment"]] = json.loads(row["value"])
    return {assignment: values for assignment, values in answers.items() if values}


def current_answers(database: sqlite3.Connection) -> dict[int, dict[str, Value]]:
    """Return the current answers by assignment, which must equal ``replayed``."""
    answers: dict[int, dict[str, Value]] = {}
    for row in database.execute("SELECT assignment, question, value FROM answers"):
        answers.setdefault(row["assignment"], {})[row["question"]] = json.loads(row["value"])
    return answers
