"""Clicks as they come in: each has an id of its own, is kept once however often it is sent, and
only for an image given out.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from typing import Any

from sorites.apps.annotation.answers import Given, differ
from sorites.apps.annotation.store import dumped, writing
from sorites.apps.annotation.task import Task
from sorites.apps.annotation.values import Value, checked
from sorites.core.errors import SoritesError

# The most clicks that are sent at once.
MOST = 200
LONGEST_LOOK = 86_400.0
ACTIONS = ("answer", "undo")


def receive(database: sqlite3.Connection, task: Task, who: int, clicks: object) -> dict[str, Any]:
    """Keep clicks of one person in one transaction; return the ids of those that are kept, and why
    others are not.
    """
    if not isinstance(clicks, list) or len(clicks) > MOST:
        raise SoritesError(f"wanted a list of at most {MOST} clicks")
    kept: list[str] = []
    refused: dict[str, str] = {}
    with writing(database):
        for click in clicks:
            id_ = _id(click)
            try:
                keep(database, task, who, id_, click)
                kept.append(id_)
            except SoritesError as error:
                refused[id_] = str(error)
    return {"kept": kept, "refused": refused}


def _id(click: object) -> str:
    id_ = click.get("id") if isinstance(click, Mapping) else None
    if not isinstance(id_, str) or not 8 <= len(id_) <= 64 or not id_.isascii():
        raise SoritesError("a click wants an id of 8 to 64 characters")
    return id_


def keep(database: sqlite3.Connection, task: Task, who: int, id_: str, click: Mapping[str, Any]) -> None:
    """Keep one click; one that is kept already is passed over."""
    row = _assignment(database, who, click.get("assignment"))
    known = database.execute("SELECT assignment FROM clicks WHERE click = ?", (id_,)).fetchone()
    if known is not None:
        if known["assignment"] != row["id"]:
            raise SoritesError("another click has this id")
        return
    if row["closed"] is not None:
        raise SoritesError("this qualification is closed")
    action = click.get("action")
    if action not in ACTIONS:
        raise SoritesError(f"wanted the action {' or '.join(ACTIONS)}")
    values = checked(task, click.get("value")) if action == "answer" else None
    _write(database, row["id"], id_, action, values, _seconds(click.get("seconds")))
    _follow(database, task, row, action)


def _assignment(database: sqlite3.Connection, who: int, number: object) -> sqlite3.Row:
    query = """SELECT a.id, a.image, a.batch, a.role, a.answered, a.released, b.closed FROM assignments a
      JOIN batches b ON b.id = a.batch WHERE a.id = ? AND a.annotator = ?"""
    whole = isinstance(number, int) and not isinstance(number, bool) and 0 < number < 2**62
    row: sqlite3.Row | None = database.execute(query, (number, who)).fetchone() if whole else None
    if row is None:
        raise SoritesError("this image was not given to you")
    return row


def _seconds(value: object) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return round(min(float(value), LONGEST_LOOK), 3) if number and value >= 0 else None  # type: ignore[arg-type, operator]


def _write(
    database: sqlite3.Connection,
    assignment: int,
    id_: str,
    action: str,
    values: Mapping[str, Value] | None,
    seconds: float | None,
) -> None:
    made = database.execute(
        "INSERT INTO clicks (click, assignment, action, value, seconds, received) VALUES (?, ?, ?, ?, ?, ?)",
        (id_, assignment, action, None if values is None else dumped(values), seconds, time.time()),
    )
    database.execute("DELETE FROM answers WHERE assignment = ?", (assignment,))
    rows = [
        (assignment, question, dumped(value), made.lastrowid) for question, value in (values or {}).items()
    ]
    database.executemany("INSERT INTO answers VALUES (?, ?, ?, ?)", rows)


def _follow(database: sqlite3.Connection, task: Task, row: sqlite3.Row, action: str) -> None:
    """Bring what follows from a click up to date: the assignment, its batch, and how many more
    should see the image.
    """
    answered = int(action == "answer")
    database.execute("UPDATE assignments SET answered = ?, released = 0 WHERE id = ?", (answered, row["id"]))
    database.execute("UPDATE batches SET last = ? WHERE id = ?", (time.time(), row["batch"]))
    if row["released"] and row["role"] == "work":
        database.execute("UPDATE images SET given = given + 1 WHERE id = ?", (row["image"],))
    if task.third and row["role"] == "work":
        _ask_a_third(database, task, row["image"])


def _ask_a_third(database: sqlite3.Connection, task: Task, image: int) -> None:
    """Want one more answer where those who had the image differ, and no more where they do not."""
    query = """SELECT a.id, s.question, s.value FROM assignments a JOIN answers s ON s.assignment = a.id
      WHERE a.image = ? AND a.role = 'work'"""
    found: dict[int, dict[str, Value]] = {}
    for row in database.execute(query, (image,)):
        found.setdefault(row["id"], {})[row["question"]] = json.loads(row["value"])
    given = [Given("", values) for values in found.values()]
    wanted = task.annotators + (len(given) >= task.annotators and differ(task, given))
    database.execute("UPDATE images SET wanted = ? WHERE id = ?", (wanted, image))


def ask_thirds(database: sqlite3.Connection, task: Task) -> None:
    """Ask a third person for every answered image that needs one; called where this is switched
    on after the start.
    """
    query = "SELECT DISTINCT image FROM assignments WHERE role = 'work' AND answered = 1"
    for row in database.execute(query).fetchall():
        _ask_a_third(database, task, row["image"])


def replayed(database: sqlite3.Connection) -> dict[int, dict[str, Value]]:
    """Return the answers after all clicks, by assignment, computed from the record alone."""
    found: dict[int, dict[str, Value]] = {}
    for row in database.execute("SELECT assignment, action, value FROM clicks ORDER BY id"):
        found.pop(row["assignment"], None)
        if row["action"] == "answer":
            found[row["assignment"]] = json.loads(row["value"])
    return {assignment: values for assignment, values in found.items() if values}


def standing(database: sqlite3.Connection) -> dict[int, dict[str, Value]]:
    """Return the answers that are kept beside the record, by assignment; they equal ``replayed``."""
    found: dict[int, dict[str, Value]] = {}
    for row in database.execute("SELECT assignment, question, value FROM answers"):
        found.setdefault(row["assignment"], {})[row["question"]] = json.loads(row["value"])
    return found
