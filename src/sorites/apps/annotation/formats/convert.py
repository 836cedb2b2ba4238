"""Export and import labellings in any supported format."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from sorites.apps.annotation.begin import add_known
from sorites.apps.annotation.clicks import MAX_SECONDS, keep, parse_click
from sorites.apps.annotation.formats import label_studio, tables, via
from sorites.apps.annotation.formats.rows import Answered, Labelled, labelled
from sorites.apps.annotation.store import add_annotator, create, open_labelling, task_of, writing
from sorites.apps.annotation.task import Task, load, parse
from sorites.apps.annotation.values import validate_value
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.messages import option
from sorites.core.rng import digest
from sorites.io.paths import is_file

Write = Callable[[Task, list[Labelled], Path], int]
Read = Callable[[Path, Task], Iterable[Labelled]]
WRITERS: dict[str, Write] = {
    "csv": tables.write_table,
    "focus": tables.write_focus,
    "label_studio": label_studio.write,
    "via2": via.write_via2,
    "via3": via.write_via3,
    "coco": tables.write_coco,
    "facts": tables.write_facts,
}
READERS: dict[str, Read] = {
    "csv": tables.read_table,
    "focus": tables.read_focus,
    "label_studio": label_studio.read,
    "via2": via.read_via2,
    "via3": via.read_via3,
    "coco": tables.read_coco,
}
# Formats that can store several answers per image.
MULTI_ANSWER_FORMATS = ("csv", "label_studio")
# Default tasks of formats that imply one.
DEFAULT_TASKS: dict[str, Callable[[Path], str]] = {
    "focus": lambda path: load("context")[1],
    "coco": tables.task_text,
}


def write(path: Path, name: str, out: Path, *, all_answers: bool = False) -> int:
    """Export a labelling, and return its number of images.

    Args:
        path: The labelling.
        name: Name of a format in ``WRITERS``.
        out: Output file.
        all_answers: Write the answers of all annotators instead of the chosen ones.
    """
    if name not in WRITERS:
        raise UnknownName("format", name, WRITERS, f"Available: {', '.join(WRITERS)}.")
    if all_answers and name not in MULTI_ANSWER_FORMATS:
        raise SoritesError(
            f"the format {name} stores one answer per image; drop {option('all')}, or use "
            f"{' or '.join(MULTI_ANSWER_FORMATS)}"
        )
    with open_labelling(path) as database:
        task = task_of(database)
        rows = list(labelled(database, task, all_answers))
    if not rows:
        raise SoritesError(f"{path} has no answers yet")
    return WRITERS[name](task, rows, out)


def read_into(
    file: Path,
    name: str,
    out: Path,
    *,
    task: str | None = None,
    annotator: str = "imported",
    known: bool = False,
) -> int:
    """Import the answers in a file into a new or existing labelling, and return the number of images.

    Answers that were imported before are skipped.

    Args:
        file: The file to import.
        name: Name of a format in ``READERS``.
        out: The labelling.
        task: Task of a new labelling.
        annotator: Annotator of answers without one.
        known: Import as known answers.
    """
    if name not in READERS:
        raise UnknownName("format", name, READERS, f"Available: {', '.join(READERS)}.")
    if not is_file(file):
        raise SoritesError(f"File {file} not found")
    if not is_file(out):
        text = load(task)[1] if task else DEFAULT_TASKS[name](file) if name in DEFAULT_TASKS else None
        if text is None:
            raise SoritesError(
                f"{out} is new; choose its task with {option('task', 'TASK')}: in_class, context, "
                "visible, boxes or a .toml file"
            )
        rows = list(READERS[name](file, parse(text)))
        create(out, text, {"source": "", "seed": "0"})
    with open_labelling(out, write=True) as database:
        stored_task = task_of(database)
        rows = list(READERS[name](file, stored_task))
        if not rows:
            raise SoritesError(
                f"{file} has no answers to {', '.join(question.id for question in stored_task.questions)}"
            )
        with writing(database):
            _store(database, stored_task, rows, annotator, known)
    return len(rows)


def _store(
    database: sqlite3.Connection, task: Task, rows: list[Labelled], annotator: str, known: bool
) -> None:
    for row in rows:
        _add_image(database, task, row)
    if known:
        add_known(database, {row.image: _checked(task, row.answers[0]) for row in rows})
        return
    for row in rows:
        for answer in row.answers:
            _store_answer(database, task, row, answer, answer.annotator or annotator)


def _checked(task: Task, answer: Answered) -> dict[str, object]:
    return {
        question: validate_value(task.question(question), value) for question, value in answer.values.items()
    }


def _add_image(database: sqlite3.Connection, task: Task, row: Labelled) -> None:
    database.execute(
        """INSERT INTO images (name, image_id, sample_id, shown_class, shift, severity, width, height, wanted)
          VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
          ON CONFLICT (name) DO UPDATE SET
            width = coalesce(width, excluded.width), height = coalesce(height, excluded.height)""",
        (
            row.image,
            row.facts.get("image_id"),
            row.facts.get("sample_id") or row.image,
            row.facts.get("class"),
            row.facts.get("shift"),
            row.facts.get("severity"),
            row.width,
            row.height,
            task.annotators,
        ),
    )


def _store_answer(
    database: sqlite3.Connection, task: Task, row: Labelled, answer: Answered, annotator: str
) -> None:
    """Store an imported answer as a click; each annotator's answer is stored once."""
    image = database.execute("SELECT id FROM images WHERE name = ?", (row.image,)).fetchone()["id"]
    click = digest("import", annotator, row.image, size=16).hex()
    if database.execute("SELECT 1 FROM clicks WHERE click = ?", (click,)).fetchone():
        return
    who, batch = _importer(database, annotator)
    position = database.execute("SELECT count(*) FROM assignments WHERE batch = ?", (batch,)).fetchone()[0]
    assignment = database.execute(
        "INSERT INTO assignments (batch, annotator, image, place, role) VALUES (?, ?, ?, ?, 'work')",
        (batch, who, image, position),
    )
    database.execute("UPDATE images SET given = given + 1 WHERE id = ?", (image,))
    # Times of other tools may be negative or missing; they are no reason to refuse an answer.
    seconds = answer.seconds if answer.seconds is not None and 0 <= answer.seconds <= MAX_SECONDS else None
    content = {"assignment": assignment.lastrowid, "action": "answer", "value": answer.values}
    try:
        keep(database, task, who, parse_click(task, click, {**content, "seconds": seconds}))
    except SoritesError as error:
        raise SoritesError(f"{row.image}: {error}") from error


def _importer(database: sqlite3.Connection, name: str) -> tuple[int, int]:
    """Return the ids of the annotator of imported answers and of the batch for them."""
    row = database.execute("SELECT id FROM annotators WHERE name = ?", (name,)).fetchone()
    who = row["id"] if row else add_annotator(database, name, "imported")
    batch = database.execute(
        "SELECT id FROM batches WHERE annotator = ? AND kind = 'imported'", (who,)
    ).fetchone()
    if batch is not None:
        return who, batch["id"]
    now = time.time()
    inserted = database.execute(
        "INSERT INTO batches (annotator, kind, made, last, closed) VALUES (?, 'imported', ?, ?, NULL)",
        (who, now, now),
    )
    return who, int(inserted.lastrowid or 0)
