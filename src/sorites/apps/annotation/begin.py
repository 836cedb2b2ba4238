"""Create or extend a labelling: its images, known answers and annotators."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sorites.apps.annotation.clicks import ask_thirds
from sorites.apps.annotation.images import Entry
from sorites.apps.annotation.store import (
    THIRD,
    about,
    add_annotator,
    canonical_json,
    create,
    open_labelling,
    task_of,
    writing,
)
from sorites.apps.annotation.task import Question, Task, parse
from sorites.apps.annotation.values import Value, validate_value
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.io.paths import is_file
from sorites.io.tables import sheet

_NAME = re.compile(r"[\w .@+-]{1,60}")


def begin(
    path: Path,
    text: str,
    entries: Sequence[Entry],
    source: str,
    *,
    known: Path | None = None,
    seed: int = 0,
    third: bool = False,
) -> None:
    """Create a labelling, or extend an existing one of the same task and source with new images.

    Args:
        path: File of the labelling.
        text: The task as TOML.
        entries: The images.
        source: Spec of the images' source.
        known: Table of known answers.
        seed: Seed of the assignment.
        third: Send images on which annotators differ to one more, including those answered before.
    """
    task = parse(text)
    known_values = read_known(known, task) if known is not None else {}
    if not is_file(path):
        create(path, text, {"source": source, "seed": str(seed)})
    with open_labelling(path, write=True) as database:
        _check_same(about(database), text, source, path)
        with writing(database):
            database.execute("UPDATE about SET value = ? WHERE key = 'source' AND value = ''", (source,))
            add_images(database, task, entries)
            add_known(database, known_values)
            if third:
                database.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (THIRD, "yes"))
                ask_thirds(database, task_of(database))


def _check_same(facts: Mapping[str, str], text: str, source: str, path: Path) -> None:
    if parse(facts["task"]) != parse(text):
        raise SoritesError(
            f"{path} was created with a different task ({parse(facts['task']).name}, or other "
            f"settings of it); use another {option('out', 'FILE')}"
        )
    if facts.get("source") not in (source, ""):
        raise SoritesError(
            f"{path} was created with the images of {facts.get('source')}, not {source}; use "
            f"another {option('out', 'FILE')}"
        )


def add_images(database: sqlite3.Connection, task: Task, entries: Sequence[Entry]) -> None:
    """Add new images; existing ones only get a missing class."""
    database.executemany(
        """INSERT INTO images (name, image_id, sample_id, shown_class, shift, severity, wanted)
          VALUES (?, ?, ?, ?, ?, ?, ?)
          ON CONFLICT (name) DO UPDATE SET shown_class = coalesce(shown_class, excluded.shown_class)""",
        [
            (e.name, e.image_id, e.sample_id, e.shown_class, e.shift, e.severity, task.annotators)
            for e in entries
        ],
    )


def read_known(path: Path, task: Task) -> dict[str, dict[str, Value]]:
    """Read known answers from a table with a column ``image`` or ``image_id`` and one per question.

    Several choices are separated by commas; boxes are JSON. Empty cells are not known.
    """
    frame = sheet(path, "a CSV or parquet file with the column image and one column per question")
    key = next((name for name in ("image", "image_id") if name in frame.columns), None)
    questions = [question for question in task.questions if question.id in frame.columns]
    if key is None or not questions:
        ids = ", ".join(question.id for question in task.questions)
        raise SoritesError(
            f"{path}: expected the column image and some of {ids}; found {', '.join(frame.columns)}"
        )
    answers = {}
    for number, row in enumerate(frame.iter_rows(named=True), 1):
        try:
            values = {q.id: cell_value(q, row[q.id]) for q in questions if row[q.id] not in (None, "")}
        except SoritesError as error:
            raise SoritesError(f"{path}, row {number}: {error}") from error
        answers[str(row[key])] = values
    return answers


def cell_value(question: Question, cell: Any) -> Value:
    """Parse a table cell as an answer."""
    if not isinstance(cell, str):
        return validate_value(question, list(cell) if hasattr(cell, "__iter__") else cell)
    if question.kind == "several":
        return validate_value(question, [word.strip() for word in cell.split(",") if word.strip()])
    try:
        return validate_value(question, json.loads(cell) if question.kind in ("scale", "boxes") else cell)
    except ValueError as error:
        raise SoritesError(f"question {question.id}: {error}") from error


def add_known(database: sqlite3.Connection, known: Mapping[str, Mapping[str, Value]]) -> None:
    """Store known answers; their images serve for qualification and checks instead of work."""
    for name, values in known.items():
        row = database.execute(
            "SELECT id, given FROM images WHERE name = ? OR image_id = ?", (name, name)
        ).fetchone()
        if row is None:
            raise SoritesError(f"the known image {name} is not among the images of the source")
        if row["given"]:
            continue  # already assigned as work; its answers stay
        database.execute("UPDATE images SET known = 1 WHERE id = ?", (row["id"],))
        entries = [
            (row["id"], question, canonical_json(value))
            for question, value in values.items()
            if value is not None
        ]
        database.executemany("INSERT OR REPLACE INTO known VALUES (?, ?, ?)", entries)


def add_annotators(path: Path, names: Sequence[str]) -> list[tuple[str, str, str]]:
    """Add new annotators, and return name, token and state of everyone with a link."""
    if invalid := [name for name in names if not _NAME.fullmatch(name)]:
        raise SoritesError(
            "Names of annotators may have letters, digits, spaces and . @ + - _, at most 60 "
            f"characters; got {invalid[0][:80]!r}"
        )
    with open_labelling(path, write=True) as database:
        with writing(database):
            existing = {row["name"] for row in database.execute("SELECT name FROM annotators")}
            for name in dict.fromkeys(names):
                if name not in existing:
                    add_annotator(database, name, "qualifying")
        rows = database.execute(
            "SELECT name, token, state FROM annotators WHERE state != 'imported' ORDER BY id"
        )
        return [(row["name"], row["token"], row["state"]) for row in rows]


def set_annotator_state(path: Path, name: str, state: str = "working") -> None:
    """Admit or refuse an annotator regardless of the qualification."""
    with open_labelling(path, write=True) as database, writing(database):
        changed = database.execute(
            "UPDATE annotators SET state = ? WHERE name = ? AND state != 'imported'", (state, name)
        )
        if not changed.rowcount:
            raise SoritesError(f"{path} has no annotator {name!r} with a link")
