"""Store clicks.

Each has a unique id and is stored once however often it is sent, for assigned images only.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sorites.apps.annotation.answers import Given, differ
from sorites.apps.annotation.store import canonical_json, writing
from sorites.apps.annotation.task import Task
from sorites.apps.annotation.values import Value, validate_answers
from sorites.core.errors import SoritesError

# Maximum number of clicks per request.
MAX_CLICKS = 200
# Time that is kept for an image that was open for longer, and the highest that is accepted.
MAX_KEPT_SECONDS, MAX_SECONDS = 86_400.0, 1e9
MAX_ID = 2**62
ACTIONS = ("answer", "undo")


@dataclass(frozen=True)
class Click:
    """A valid click; ``values`` is None for undo."""

    id: str
    assignment: int
    action: str
    values: Mapping[str, Value] | None
    seconds: float | None


@dataclass
class Parsed:
    """The clicks of a request: the valid ones, and why others are refused."""

    clicks: list[Click] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def receive(database: sqlite3.Connection, task: Task, who: int, clicks: object) -> dict[str, Any]:
    """Parse and store clicks of one annotator; see ``parse`` and ``store``."""
    return store(database, task, who, parse(task, clicks))


def parse(task: Task, clicks: object) -> Parsed:
    """Validate the clicks of a request, without a database.

    The server does this before a request enters the queue of writes that it shares with others.

    Raises:
        SoritesError: It is no list, too long, or a click has no valid id.
    """
    if not isinstance(clicks, list) or len(clicks) > MAX_CLICKS:
        raise SoritesError(f"expected a list of at most {MAX_CLICKS} clicks")
    parsed = Parsed()
    for click in clicks:
        id_ = _id(click)
        try:
            parsed.clicks.append(parse_click(task, id_, click))
        except SoritesError as error:
            parsed.refused[id_] = str(error)
    return parsed


def store(database: sqlite3.Connection, task: Task, who: int, parsed: Parsed) -> dict[str, Any]:
    """Store clicks of one annotator in one transaction.

    Returns:
        The ids that are stored (``kept``), and the reasons why others are not (``refused``).
    """
    stored: list[str] = []
    refused = dict(parsed.refused)
    with writing(database):
        for click in parsed.clicks:
            try:
                keep(database, task, who, click)
                stored.append(click.id)
            except SoritesError as error:
                refused[click.id] = str(error)
    return {"kept": stored, "refused": refused}


def _id(click: object) -> str:
    id_ = click.get("id") if isinstance(click, Mapping) else None
    if not isinstance(id_, str) or not 8 <= len(id_) <= 64 or not id_.isascii():
        raise SoritesError("a click needs an id of 8 to 64 ASCII characters")
    return id_


def parse_click(task: Task, id_: str, click: Mapping[str, Any]) -> Click:
    """Validate one click.

    Raises:
        SoritesError: A value is missing or out of bounds.
    """
    assignment, action = click.get("assignment"), click.get("action")
    if not isinstance(assignment, int) or isinstance(assignment, bool) or not 0 < assignment < MAX_ID:
        raise SoritesError("this image is not assigned to you")
    if not isinstance(action, str) or action not in ACTIONS:
        raise SoritesError(f"the action must be {' or '.join(ACTIONS)}")
    values = validate_answers(task, click.get("value")) if action == "answer" else None
    return Click(id_, assignment, action, values, _seconds(click.get("seconds")))


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MAX_SECONDS:
        raise SoritesError(f"seconds must be a number from 0 to {MAX_SECONDS:.0f}")
    return round(min(float(value), MAX_KEPT_SECONDS), 3)


def keep(database: sqlite3.Connection, task: Task, who: int, click: Click) -> None:
    """Store one click; a duplicate is ignored."""
    row = _assignment(database, who, click.assignment)
    existing = database.execute("SELECT assignment FROM clicks WHERE click = ?", (click.id,)).fetchone()
    if existing is not None:
        if existing["assignment"] != row["id"]:
            raise SoritesError("another click has this id")
        return
    if row["closed"] is not None:
        raise SoritesError("this qualification is closed")
    _write(database, click)
    _update_state(database, task, row, click.action)


def _assignment(database: sqlite3.Connection, who: int, number: int) -> sqlite3.Row:
    query = """SELECT a.id, a.image, a.batch, a.role, a.answered, a.released, b.closed FROM assignments a
      JOIN batches b ON b.id = a.batch WHERE a.id = ? AND a.annotator = ?"""
    row: sqlite3.Row | None = database.execute(query, (number, who)).fetchone()
    if row is None:
        raise SoritesError("this image is not assigned to you")
    return row


def _write(database: sqlite3.Connection, click: Click) -> None:
    values = None if click.values is None else canonical_json(click.values)
    inserted = database.execute(
        "INSERT INTO clicks (click, assignment, action, value, seconds, received) VALUES (?, ?, ?, ?, ?, ?)",
        (click.id, click.assignment, click.action, values, click.seconds, time.time()),
    )
    database.execute("DELETE FROM answers WHERE assignment = ?", (click.assignment,))
    rows = [
        (click.assignment, question, canonical_json(value), inserted.lastrowid)
        for question, value in (click.values or {}).items()
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
      JOIN annotators w ON w.id = a.annotator
      WHERE a.image = ? AND a.role = 'work' AND w.state != 'suspended'"""
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
