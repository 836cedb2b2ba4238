"""The file of a labelling: one SQLite database that any tool reads, with every click in the order
in which it came.

``clicks`` is the record and is only ever added to; ``answers`` is what stands after all clicks,
kept beside it so that nothing has to be replayed, and equal to the replay at any time. Both are
written in one transaction before a click is acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sorites.apps.annotation.task import Task, parse
from sorites.core.errors import SoritesError
from sorites.io.paths import is_file, reason

VERSION = "1"
# The key of a choice that may be typed later than the task: whether images on which people differ
# go to one more person.
THIRD = "third"
SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE images (
  id INTEGER PRIMARY KEY,          -- in the order in which images are handed out
  name TEXT NOT NULL UNIQUE,       -- the id of the sample, or the image_id of an image of a run
  image_id TEXT,                   -- of an image of a run
  sample_id TEXT NOT NULL,
  shown_class TEXT,                -- the class that is asked for, in words
  shift TEXT, severity REAL,
  width INTEGER, height INTEGER,   -- known once it was shown
  error TEXT,                      -- why it could not be shown
  known INTEGER NOT NULL DEFAULT 0,-- 1: its answers are known, it serves for qualification or as a check
  wanted INTEGER NOT NULL DEFAULT 0,
  given INTEGER NOT NULL DEFAULT 0 -- how many annotators have it, and how many should
);
CREATE INDEX images_open ON images (given, id) WHERE known = 0 AND given < wanted;
CREATE TABLE known (image INTEGER NOT NULL REFERENCES images, question TEXT NOT NULL, value TEXT NOT NULL,
  PRIMARY KEY (image, question));
CREATE TABLE annotators (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, token TEXT NOT NULL UNIQUE,
  state TEXT NOT NULL,             -- qualifying, working, refused, imported
  made REAL NOT NULL
);
CREATE TABLE batches (
  id INTEGER PRIMARY KEY, annotator INTEGER NOT NULL REFERENCES annotators,
  kind TEXT NOT NULL,              -- qualification, work, imported
  made REAL NOT NULL, last REAL NOT NULL, closed REAL
);
CREATE INDEX batches_of ON batches (annotator, closed);
CREATE TABLE assignments (
  id INTEGER PRIMARY KEY, batch INTEGER NOT NULL REFERENCES batches, annotator INTEGER NOT NULL REFERENCES annotators,
  image INTEGER NOT NULL REFERENCES images, place INTEGER NOT NULL,
  role TEXT NOT NULL,              -- qualification, work, check
  answered INTEGER NOT NULL DEFAULT 0, released INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX assignments_of_batch ON assignments (batch);
CREATE INDEX assignments_of_image ON assignments (image);
CREATE INDEX assignments_of_annotator ON assignments (annotator, image);
CREATE INDEX assignments_left ON assignments (annotator) WHERE answered = 0 AND released = 0;

CREATE TABLE clicks (
  id INTEGER PRIMARY KEY AUTOINCREMENT, click TEXT NOT NULL UNIQUE, assignment INTEGER NOT NULL REFERENCES assignments,
  action TEXT NOT NULL,            -- answer, undo
  value TEXT,                      -- JSON: the answer to each question
  seconds REAL,                    -- how long the image was looked at
  received REAL NOT NULL
);
CREATE INDEX clicks_of ON clicks (assignment);
CREATE TABLE answers (
  assignment INTEGER NOT NULL REFERENCES assignments, question TEXT NOT NULL,
  value TEXT NOT NULL,             -- JSON
  click INTEGER NOT NULL REFERENCES clicks (id),
  PRIMARY KEY (assignment, question)
) WITHOUT ROWID;
"""


@contextlib.contextmanager
def opened(path: Path, *, write: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a labelling that exists; without ``write`` nothing in it can change."""
    if not is_file(path):
        raise SoritesError(
            f'there is no labelling {path}. Start one with "sorites annotate serve TASK --source SPEC --out'
            f' {path}"'
        )
    try:
        database = _connected(path, "rw" if write else "ro")
    except sqlite3.Error as error:
        raise SoritesError(f"cannot open {path}: {reason(error)}") from error
    try:
        _refuse_others(database, path)
        yield database
    finally:
        database.close()


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    """Return a connection that reaches the disk before a write is done, and waits for other writers."""
    database = sqlite3.connect(
        f"file:{quote(os.path.abspath(path))}?mode={mode}",
        uri=True,
        timeout=20,
        isolation_level=None,
        check_same_thread=False,
    )
    database.row_factory = sqlite3.Row
    database.execute("PRAGMA foreign_keys = ON")
    if mode != "ro":
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
    return database


def _refuse_others(database: sqlite3.Connection, path: Path) -> None:
    try:
        version = about(database).get("version")
    except sqlite3.Error as error:
        raise SoritesError(f"{path} is no labelling of Sorites: {reason(error)}") from error
    if version != VERSION:
        raise SoritesError(f"{path}: wanted a labelling of version {VERSION}, got {version}")


def create(path: Path, task: str, facts: Mapping[str, str]) -> None:
    """Make an empty labelling for the task of this TOML text; only its owner may read it, since it
    holds the links' tokens.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError as error:
        raise SoritesError(f"{path} exists already; choose another --out FILE") from error
    try:
        with contextlib.closing(_connected(path, "rw")) as database, database:
            database.executescript(f"BEGIN; {SCHEMA} COMMIT;")
            entries = {"version": VERSION, "task": task, "made": str(time.time()), **facts}
            database.executemany("INSERT INTO about VALUES (?, ?)", entries.items())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def about(database: sqlite3.Connection) -> dict[str, str]:
    """Return what the labelling was made with: its version, task, source and seed."""
    return {row["key"]: row["value"] for row in database.execute("SELECT key, value FROM about")}


def task_of(database: sqlite3.Connection) -> Task:
    """Return the task of a labelling, as it was when the labelling began."""
    facts = about(database)
    task = parse(facts["task"], "of the labelling")
    return task.model_copy(update={"third": True}) if THIRD in facts else task


@contextlib.contextmanager
def writing(database: sqlite3.Connection) -> Iterator[None]:
    """Write all or nothing, other writers wait meanwhile; inside another ``writing`` it is a part
    that can fail alone.
    """
    begin, end, undo = ("BEGIN IMMEDIATE", "COMMIT", ["ROLLBACK"])
    if database.in_transaction:
        begin, end, undo = "SAVEPOINT part", "RELEASE part", ["ROLLBACK TO part", "RELEASE part"]
    database.execute(begin)
    try:
        yield
    except BaseException:
        for command in undo:
            database.execute(command)
        raise
    database.execute(end)


def add_annotator(database: sqlite3.Connection, name: str, state: str) -> int:
    """Add a person with a token of their own, and return their number."""
    made = database.execute(
        "INSERT INTO annotators (name, token, state, made) VALUES (?, ?, ?, ?)",
        (name, secrets.token_urlsafe(18), state, time.time()),
    )
    return int(made.lastrowid or 0)


def dumped(value: Any) -> str:
    """Return a value as the one JSON text that stands for it."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


# Write many requests in few transactions: those that come while one reaches the disk go with the next.


T = TypeVar("T")
Job = Callable[[sqlite3.Connection], Any]
Outcome = tuple[Any, Exception | None]
# The most jobs of one transaction.
MOST = 256


class Writer:
    """The only writer of a labelling in this process: a thread, one transaction after the other."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database
        self._jobs: list[tuple[Job, asyncio.Future[Any]]] = []
        self._task: asyncio.Task[None] | None = None

    async def do(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job inside a transaction, and return what it returns once that is on the disk; its
        error undoes it alone.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.append((job, future))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        while self._jobs:
            some, self._jobs = self._jobs[:MOST], self._jobs[MOST:]
            outcomes = await asyncio.to_thread(self._write, [job for job, _ in some])
            for (_, future), (value, error) in zip(some, outcomes, strict=True):
                if future.done():
                    continue  # whoever asked is gone
                future.set_result(value) if error is None else future.set_exception(error)
        self._task = None

    def _write(self, jobs: Sequence[Job]) -> list[Outcome]:
        try:
            with writing(self.database):
                return [self._one(job) for job in jobs]
        except Exception as error:  # the transaction itself failed, as on a full disk: nothing of it is kept
            return [(None, error)] * len(jobs)

    def _one(self, job: Job) -> Outcome:
        try:
            with writing(self.database):
                return job(self.database), None
        except (SoritesError, sqlite3.Error) as error:
            return None, error

    async def finish(self) -> None:
        """Wait for what is under way."""
        if self._task is not None:
            await self._task
