"""The labelling file: a SQLite database with the complete log of clicks.

``clicks`` is append-only. ``answers`` is the current state after all clicks, which always equals a replay of
the log. Both are written in one transaction before a click is acknowledged.
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
from sorites.core.messages import command, option
from sorites.io.paths import is_file, reason

VERSION = "2"
# Key of an option that can be switched on later: send images on which annotators differ to one more.
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
  state TEXT NOT NULL,             -- qualifying, working, refused, suspended, imported
  made REAL NOT NULL
);
CREATE TABLE batches (
  id INTEGER PRIMARY KEY, annotator INTEGER NOT NULL REFERENCES annotators,
  kind TEXT NOT NULL,              -- qualification, work, imported
  made REAL NOT NULL, last REAL NOT NULL, closed REAL
);
CREATE INDEX batches_of ON batches (annotator, closed);
CREATE TABLE assignments (
  id INTEGER PRIMARY KEY, batch INTEGER NOT NULL REFERENCES batches,
  annotator INTEGER NOT NULL REFERENCES annotators,
  image INTEGER NOT NULL REFERENCES images, place INTEGER NOT NULL,
  role TEXT NOT NULL,              -- qualification, work, check
  answered INTEGER NOT NULL DEFAULT 0, released INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX assignments_of_batch ON assignments (batch);
CREATE INDEX assignments_of_image ON assignments (image);
CREATE INDEX assignments_of_annotator ON assignments (annotator, image);
CREATE INDEX assignments_left ON assignments (annotator) WHERE answered = 0 AND released = 0;

CREATE TABLE clicks (
  id INTEGER PRIMARY KEY AUTOINCREMENT, click TEXT NOT NULL UNIQUE,
  assignment INTEGER NOT NULL REFERENCES assignments,
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
def open_labelling(path: Path, *, write: bool = False) -> Iterator[sqlite3.Connection]:
    """Open an existing labelling, read-only unless ``write``."""
    if not is_file(path):
        raise SoritesError(
            f"there is no labelling {path}. Start one with "
            f"{command('annotate serve', 'TASK', source='SPEC', out=str(path))}"
        )
    try:
        database = _connect(path, "rw" if write else "ro")
    except sqlite3.Error as error:
        raise SoritesError(f"cannot open {path}: {reason(error)}") from error
    try:
        _check_version(database, path)
        yield database
    finally:
        database.close()


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """Return a connection that syncs every write to disk and waits for other writers."""
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


def _check_version(database: sqlite3.Connection, path: Path) -> None:
    try:
        version = about(database).get("version")
    except sqlite3.Error as error:
        raise SoritesError(f"{path} is not a labelling: {reason(error)}") from error
    if version != VERSION:
        raise SoritesError(f"{path}: expected a labelling of version {VERSION}, got {version}")


def create(path: Path, task: str, facts: Mapping[str, str]) -> None:
    """Create an empty labelling for a task given as TOML text.

    The file is readable only by its owner, since it contains the annotators' tokens.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError as error:
        raise SoritesError(f"{path} exists already; use another {option('out', 'FILE')}") from error
    try:
        with contextlib.closing(_connect(path, "rw")) as database, database:
            database.executescript(f"BEGIN; {SCHEMA} COMMIT;")
            entries = {"version": VERSION, "task": task, "made": str(time.time()), **facts}
            database.executemany("INSERT INTO about VALUES (?, ?)", entries.items())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def about(database: sqlite3.Connection) -> dict[str, str]:
    """Return the metadata of a labelling: version, task, source and seed."""
    return {row["key"]: row["value"] for row in database.execute("SELECT key, value FROM about")}


def task_of(database: sqlite3.Connection) -> Task:
    """Return the task stored in a labelling."""
    facts = about(database)
    task = parse(facts["task"], "of the labelling")
    return task.model_copy(update={"third": True}) if THIRD in facts else task


@contextlib.contextmanager
def writing(database: sqlite3.Connection) -> Iterator[None]:
    """Run a transaction that excludes other writers; nested use creates a savepoint."""
    begin, end, undo = ("BEGIN IMMEDIATE", "COMMIT", ["ROLLBACK"])
    if database.in_transaction:
        begin, end, undo = "SAVEPOINT part", "RELEASE part", ["ROLLBACK TO part", "RELEASE part"]
    database.execute(begin)
    try:
        yield
    except BaseException:
        for statement in undo:
            database.execute(statement)
        raise
    database.execute(end)


def add_annotator(database: sqlite3.Connection, name: str, state: str) -> int:
    """Add an annotator with a new token, and return the id."""
    inserted = database.execute(
        "INSERT INTO annotators (name, token, state, made) VALUES (?, ?, ?, ?)",
        (name, secrets.token_urlsafe(18), state, time.time()),
    )
    return int(inserted.lastrowid or 0)


def canonical_json(value: Any) -> str:
    """Return the canonical JSON text of a value."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


# Batched writes: requests that arrive during a transaction share the next one.


T = TypeVar("T")
Job = Callable[[sqlite3.Connection], Any]
Outcome = tuple[Any, Exception | None]
# Maximum number of jobs per transaction.
MAX_JOBS = 256


class Writer:
    """The only writer of a labelling in this process; a thread runs one transaction at a time."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database
        self._jobs: list[tuple[Job, asyncio.Future[Any]]] = []
        self._task: asyncio.Task[None] | None = None

    async def do(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job in a transaction and return its result once that is on disk.

        An error only undoes this job.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.append((job, future))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        while self._jobs:
            batch, self._jobs = self._jobs[:MAX_JOBS], self._jobs[MAX_JOBS:]
            outcomes = await asyncio.to_thread(self._write, [job for job, _ in batch])
            for (_, future), (value, error) in zip(batch, outcomes, strict=True):
                if future.done():
                    continue  # the request was cancelled
                future.set_result(value) if error is None else future.set_exception(error)
        self._task = None

    def _write(self, jobs: Sequence[Job]) -> list[Outcome]:
        try:
            with writing(self.database):
                return [self._run_job(job) for job in jobs]
        except Exception as error:  # the transaction itself failed, e.g. the disk is full
            return [(None, error)] * len(jobs)

    def _run_job(self, job: Job) -> Outcome:
        try:
            with writing(self.database):
                return job(self.database), None
        except Exception as error:  # whatever it is, the other jobs of the transaction go on
            return None, error

    async def finish(self) -> None:
        """Wait for pending jobs."""
        if self._task is not None:
            await self._task
