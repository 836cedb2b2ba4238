"""Hand out images to people: first the qualification, then batches with known images hidden
among the others.

An image goes to as many people as the task says, never twice to one. What a person leaves
unanswered goes to another after a while, and an answer that comes late is kept all the same.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass

import numpy as np

from sorites.apps.annotation.answers import checks_of
from sorites.apps.annotation.store import about, writing
from sorites.apps.annotation.task import Task
from sorites.core.rng import rng_for

# With so few images left, the next batch is handed out, so that the page has it before it needs
# it.
AHEAD = 6
# The number of answered images that the page gets with the new ones, so that a person can go back
# to them.
BEFORE = 8
# Seconds without a click after which the images of a batch may go to others.
LEASE = 3600.0

_UNSEEN = "known = 0 AND given < wanted AND id NOT IN (SELECT image FROM assignments WHERE annotator = ?)"


@dataclass(frozen=True)
class Person:
    """An annotator: their number, name and state."""

    id: int
    name: str
    state: str


def person(database: sqlite3.Connection, id_: int) -> Person:
    """Return an annotator in their present state."""
    row = database.execute("SELECT id, name, state FROM annotators WHERE id = ?", (id_,)).fetchone()
    return Person(row["id"], row["name"], row["state"])


def refresh(database: sqlite3.Connection, task: Task, who: int, lease: float = LEASE) -> Person:
    """Bring a person's work up to date: judge a finished qualification, hand out the next batch
    where one is due.
    """
    with writing(database):
        one = person(database, who)
        if one.state == "qualifying":
            _qualify(database, task, one)
            one = person(database, who)
        if one.state == "working" and _left(database, who) <= AHEAD:
            _next_batch(database, task, one, lease)
    return one


def _left(database: sqlite3.Connection, who: int) -> int:
    query = "SELECT count(*) FROM assignments WHERE annotator = ? AND answered = 0 AND released = 0"
    return int(database.execute(query, (who,)).fetchone()[0])


def _qualify(database: sqlite3.Connection, task: Task, one: Person) -> None:
    """Hand out the qualification once; when all of it is answered, let the person work or refuse them."""
    batch = database.execute(
        "SELECT id FROM batches WHERE annotator = ? AND kind = 'qualification'", (one.id,)
    ).fetchone()
    if batch is None:
        if images := qualification(database, task):
            _hand_out(database, one, "qualification", [(image, "qualification") for image in images])
        else:
            _set_state(database, one.id, "working")
    elif not _left(database, one.id):
        score = checks_of(database, batch["id"]).of_batch(batch["id"])
        database.execute("UPDATE batches SET closed = ? WHERE id = ?", (time.time(), batch["id"]))
        _set_state(
            database, one.id, "working" if score is None or score >= task.qualification.bar else "refused"
        )


def _set_state(database: sqlite3.Connection, who: int, state: str) -> None:
    database.execute("UPDATE annotators SET state = ? WHERE id = ?", (state, who))


def qualification(database: sqlite3.Connection, task: Task) -> list[int]:
    """Return the known images that everybody answers first."""
    query = "SELECT id FROM images WHERE known = 1 AND error IS NULL ORDER BY id LIMIT ?"
    return [row["id"] for row in database.execute(query, (task.qualification.images,))]


def _next_batch(database: sqlite3.Connection, task: Task, one: Person, lease: float) -> None:
    checks = _checks(database, task, one)
    images = _unseen(database, one.id, task.batch.size - len(checks))
    if not images and _release(database, one.id, lease):
        images = _unseen(database, one.id, task.batch.size - len(checks))
    if images:
        _hand_out(database, one, "work", [(p, "work") for p in images] + [(p, "check") for p in checks])
        database.executemany(
            "UPDATE images SET given = given + 1 WHERE id = ?", [(image,) for image in images]
        )


def _unseen(database: sqlite3.Connection, who: int, n: int) -> list[int]:
    """Return images that the person has not had: those that others had first, so that pairs of
    answers come early.
    """
    query = f"SELECT id FROM images WHERE {_UNSEEN} ORDER BY given DESC, id LIMIT ?"
    return [row["id"] for row in database.execute(query, (who, n))]


def _checks(database: sqlite3.Connection, task: Task, one: Person) -> list[int]:
    """Return known images for a batch: those that the person saw least, those of the qualification last."""
    first = set(qualification(database, task))
    query = """SELECT p.id, count(a.id) AS seen FROM images p LEFT JOIN assignments a ON a.image = p.id AND a.annotator = ?
      WHERE p.known = 1 AND p.error IS NULL GROUP BY p.id"""
    rows = [(row["seen"], row["id"] in first, row["id"]) for row in database.execute(query, (one.id,))]
    order = _rng(database, one, "checks").permutation(len(rows))
    ranked = sorted(zip(rows, order, strict=True), key=lambda pair: (pair[0][:2], pair[1]))
    return [row[2] for row, _ in ranked[: task.batch.known]]


def _rng(database: sqlite3.Connection, one: Person, what: str) -> np.random.Generator:
    number = database.execute("SELECT count(*) FROM batches WHERE annotator = ?", (one.id,)).fetchone()[0]
    return rng_for(int(about(database).get("seed", 0)), f"{one.name} {number}", what)


def _hand_out(database: sqlite3.Connection, one: Person, kind: str, items: list[tuple[int, str]]) -> None:
    order, now = _rng(database, one, "order").permutation(len(items)), time.time()
    made = database.execute(
        "INSERT INTO batches (annotator, kind, made, last) VALUES (?, ?, ?, ?)", (one.id, kind, now, now)
    )
    rows = [(made.lastrowid, one.id, items[i][0], place, items[i][1]) for place, i in enumerate(order)]
    database.executemany(
        "INSERT INTO assignments (batch, annotator, image, place, role) VALUES (?, ?, ?, ?, ?)", rows
    )


def _release(database: sqlite3.Connection, who: int, lease: float) -> int:
    """Take back images that others left unanswered, and return how many."""
    query = """SELECT a.id, a.image FROM assignments a JOIN batches b ON b.id = a.batch
      WHERE a.role = 'work' AND a.answered = 0 AND a.released = 0 AND a.annotator != ? AND b.last < ?"""
    rows = database.execute(query, (who, time.time() - lease)).fetchall()
    database.executemany("UPDATE assignments SET released = 1 WHERE id = ?", [(row["id"],) for row in rows])
    database.executemany(
        "UPDATE images SET given = given - 1 WHERE id = ?", [(row["image"],) for row in rows]
    )
    return len(rows)


_SHOWN = """SELECT a.id, a.answered, a.place, a.batch, p.shown_class, p.shift,
  (SELECT count(*) FROM assignments o WHERE o.batch = a.batch) AS of {more}
FROM assignments a JOIN images p ON p.id = a.image JOIN batches b ON b.id = a.batch {join}
WHERE a.annotator = ? AND b.closed IS NULL AND {which}"""
_LEFT = _SHOWN.format(more="", join="", which="a.answered = 0 AND a.released = 0 ORDER BY a.batch, a.place")
_BEFORE = _SHOWN.format(
    more=", max(c.id) AS last",
    join="JOIN clicks c ON c.assignment = a.id",
    which=f"a.answered = 1 GROUP BY a.id ORDER BY last DESC LIMIT {BEFORE}",
)


def items(database: sqlite3.Connection, who: int) -> list[sqlite3.Row]:
    """Return what the page shows a person: the last images that were answered, then those that
    are left, in order.
    """
    return [*reversed(database.execute(_BEFORE, (who,)).fetchall()), *database.execute(_LEFT, (who,))]


def set_aside(database: sqlite3.Connection, image: int, why: str) -> None:
    """Stop handing out an image that cannot be shown, and note why."""
    with writing(database):
        database.execute("UPDATE images SET error = ?, wanted = 0 WHERE id = ?", (why, image))
        database.execute("UPDATE assignments SET released = 1 WHERE image = ? AND answered = 0", (image,))
