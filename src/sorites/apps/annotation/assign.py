"""Assign images to annotators: first the qualification, then batches that contain hidden check images.

Each image goes to as many annotators as the task requires, and never twice to the same one. Unanswered images
are reassigned after a while; late answers still count. An annotator whose hidden checks are too bad is
suspended before the next batch, and the images go to others.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass

import numpy as np

from sorites.apps.annotation.answers import SUSPENDED, checks_of, mean_score
from sorites.apps.annotation.store import about, writing
from sorites.apps.annotation.task import Task
from sorites.core.rng import rng_for

# Assign the next batch when this many images or fewer are left, so that the page can prefetch.
PREFETCH_AT = 6
# Number of answered images sent along, so that annotators can go back.
ANSWERED_SENT = 8
# Seconds without a click after which a batch may be reassigned.
LEASE_SECONDS = 3600.0

_UNSEEN = "known = 0 AND given < wanted AND id NOT IN (SELECT image FROM assignments WHERE annotator = ?)"


@dataclass(frozen=True)
class Person:
    """An annotator."""

    id: int
    name: str
    state: str


def person(database: sqlite3.Connection, id_: int) -> Person:
    """Return an annotator with the current state."""
    row = database.execute("SELECT id, name, state FROM annotators WHERE id = ?", (id_,)).fetchone()
    return Person(row["id"], row["name"], row["state"])


def refresh(database: sqlite3.Connection, task: Task, who: int, lease: float = LEASE_SECONDS) -> Person:
    """Update an annotator's work: evaluate a finished qualification, and assign the next batch if due."""
    with writing(database):
        annotator = person(database, who)
        if annotator.state == "qualifying":
            _qualify(database, task, annotator)
            annotator = person(database, who)
        if annotator.state == "working" and _count_open(database, who) <= PREFETCH_AT:
            if is_careless(database, task, who):
                suspend(database, who)
                return person(database, who)
            _next_batch(database, task, annotator, lease)
    return annotator


def is_careless(database: sqlite3.Connection, task: Task, who: int) -> bool:
    """Return whether the last hidden check images of an annotator say that the work cannot be used."""
    rule = task.suspension
    recent = checks_of(database, annotator=who).hidden(who)[-rule.checks :] if rule.checks else []
    score = mean_score(recent)
    return score is not None and len(recent) >= rule.checks and score < rule.bar


def suspend(database: sqlite3.Connection, who: int) -> None:
    """Suspend an annotator: release the open images, and queue the answered ones for others again."""
    query = "SELECT image FROM assignments WHERE annotator = ? AND role = 'work' AND released = 0"
    images = [(row["image"],) for row in database.execute(query, (who,)).fetchall()]
    database.executemany("UPDATE images SET given = given - 1 WHERE id = ?", images)
    database.execute("UPDATE assignments SET released = 1 WHERE annotator = ? AND answered = 0", (who,))
    _set_state(database, who, SUSPENDED)


def _count_open(database: sqlite3.Connection, who: int) -> int:
    query = "SELECT count(*) FROM assignments WHERE annotator = ? AND answered = 0 AND released = 0"
    return int(database.execute(query, (who,)).fetchone()[0])


def _qualify(database: sqlite3.Connection, task: Task, annotator: Person) -> None:
    """Assign the qualification once; when it is answered, admit or refuse the annotator."""
    batch = database.execute(
        "SELECT id FROM batches WHERE annotator = ? AND kind = 'qualification'", (annotator.id,)
    ).fetchone()
    if batch is None:
        if images := qualification(database, task):
            _assign_batch(
                database, annotator, "qualification", [(image, "qualification") for image in images]
            )
        else:
            _set_state(database, annotator.id, "working")
    elif not _count_open(database, annotator.id):
        score = checks_of(database, batch["id"]).of_batch(batch["id"])
        database.execute("UPDATE batches SET closed = ? WHERE id = ?", (time.time(), batch["id"]))
        _set_state(
            database,
            annotator.id,
            "working" if score is None or score >= task.qualification.bar else "refused",
        )


def _set_state(database: sqlite3.Connection, who: int, state: str) -> None:
    database.execute("UPDATE annotators SET state = ? WHERE id = ?", (state, who))


def qualification(database: sqlite3.Connection, task: Task) -> list[int]:
    """Return the known images that every annotator answers first."""
    query = "SELECT id FROM images WHERE known = 1 AND error IS NULL ORDER BY id LIMIT ?"
    return [row["id"] for row in database.execute(query, (task.qualification.images,))]


def _next_batch(database: sqlite3.Connection, task: Task, annotator: Person, lease: float) -> None:
    checks = _check_images(database, task, annotator)
    images = _open_images(database, annotator.id, task.batch.size - len(checks))
    if not images and _release(database, annotator.id, lease):
        images = _open_images(database, annotator.id, task.batch.size - len(checks))
    if images:
        _assign_batch(
            database, annotator, "work", [(p, "work") for p in images] + [(p, "check") for p in checks]
        )
        database.executemany(
            "UPDATE images SET given = given + 1 WHERE id = ?", [(image,) for image in images]
        )


def _open_images(database: sqlite3.Connection, who: int, n: int) -> list[int]:
    """Return images the annotator has not had, started ones first so that images are completed early."""
    query = f"SELECT id FROM images WHERE {_UNSEEN} ORDER BY given DESC, id LIMIT ?"
    return [row["id"] for row in database.execute(query, (who, n))]


def _check_images(database: sqlite3.Connection, task: Task, annotator: Person) -> list[int]:
    """Return check images for a batch: those seen least often, those of the qualification last."""
    qualifying = set(qualification(database, task))
    query = """SELECT p.id, count(a.id) AS seen FROM images p
      LEFT JOIN assignments a ON a.image = p.id AND a.annotator = ?
      WHERE p.known = 1 AND p.error IS NULL GROUP BY p.id"""
    rows = [
        (row["seen"], row["id"] in qualifying, row["id"]) for row in database.execute(query, (annotator.id,))
    ]
    order = _rng(database, annotator, "checks").permutation(len(rows))
    ranked = sorted(zip(rows, order, strict=True), key=lambda pair: (pair[0][:2], pair[1]))
    return [row[2] for row, _ in ranked[: task.batch.known]]


def _rng(database: sqlite3.Connection, annotator: Person, purpose: str) -> np.random.Generator:
    number = database.execute("SELECT count(*) FROM batches WHERE annotator = ?", (annotator.id,)).fetchone()[
        0
    ]
    return rng_for(int(about(database).get("seed", 0)), f"{annotator.name} {number}", purpose)


def _assign_batch(
    database: sqlite3.Connection, annotator: Person, kind: str, items: list[tuple[int, str]]
) -> None:
    order, now = _rng(database, annotator, "order").permutation(len(items)), time.time()
    batch = database.execute(
        "INSERT INTO batches (annotator, kind, made, last) VALUES (?, ?, ?, ?)",
        (annotator.id, kind, now, now),
    )
    rows = [
        (batch.lastrowid, annotator.id, items[i][0], position, items[i][1])
        for position, i in enumerate(order)
    ]
    database.executemany(
        "INSERT INTO assignments (batch, annotator, image, place, role) VALUES (?, ?, ?, ?, ?)", rows
    )


def _release(database: sqlite3.Connection, who: int, lease: float) -> int:
    """Release images that others left unanswered, and return their number."""
    query = """SELECT a.id, a.image FROM assignments a JOIN batches b ON b.id = a.batch
      WHERE a.role = 'work' AND a.answered = 0 AND a.released = 0 AND a.annotator != ? AND b.last < ?"""
    rows = database.execute(query, (who, time.time() - lease)).fetchall()
    database.executemany("UPDATE assignments SET released = 1 WHERE id = ?", [(row["id"],) for row in rows])
    database.executemany(
        "UPDATE images SET given = given - 1 WHERE id = ?", [(row["image"],) for row in rows]
    )
    return len(rows)


_ITEMS = """SELECT a.id, a.answered, a.place, a.batch, p.shown_class, p.shift,
  (SELECT count(*) FROM assignments o WHERE o.batch = a.batch) AS of {more}
FROM assignments a JOIN images p ON p.id = a.image JOIN batches b ON b.id = a.batch {join}
WHERE a.annotator = ? AND b.closed IS NULL AND {which}"""
_OPEN = _ITEMS.format(more="", join="", which="a.answered = 0 AND a.released = 0 ORDER BY a.batch, a.place")
_ANSWERED = _ITEMS.format(
    more=", max(c.id) AS last",
    join="JOIN clicks c ON c.assignment = a.id",
    which=f"a.answered = 1 GROUP BY a.id ORDER BY last DESC LIMIT {ANSWERED_SENT}",
)


def items(database: sqlite3.Connection, who: int) -> list[sqlite3.Row]:
    """Return the items for the page: the last answered images, then the open ones, in order."""
    return [*reversed(database.execute(_ANSWERED, (who,)).fetchall()), *database.execute(_OPEN, (who,))]


def set_aside(database: sqlite3.Connection, image: int, why: str) -> None:
    """Stop assigning an image that cannot be shown, and record why."""
    with writing(database):
        database.execute("UPDATE images SET error = ?, wanted = 0 WHERE id = ?", (why, image))
        database.execute("UPDATE assignments SET released = 1 WHERE image = ? AND answered = 0", (image,))
