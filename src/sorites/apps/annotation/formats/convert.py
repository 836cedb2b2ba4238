"""Write and read a labelling in every format."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from sorites.apps.annotation.begin import add_known
from sorites.apps.annotation.clicks import keep
from sorites.apps.annotation.formats import label_studio, tables, via
from sorites.apps.annotation.formats.rows import Answered, Labelled, labelled
from sorites.apps.annotation.store import add_annotator, create, opened, task_of, writing
from sorites.apps.annotation.task import Task, load, parse
from sorites.apps.annotation.values import checked_value
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.rng import digest
from sorites.io.paths import is_file

Write = Callable[[Task, list[Labelled], Path], int]
Read = Callable[[Path, Task], Iterable[Labelled]]
WRITERS: dict[str, Write] = {
    "csv": tables.write_table, "focus": tables.write_focus, "label_studio": label_studio.write, "via2": via.write_via2, "via3": via.write_via3,
    "coco": tables.write_coco, "facts": tables.write_facts,
}  # fmt: skip
READERS: dict[str, Read] = {
    "csv": tables.read_table, "focus": tables.read_focus, "label_studio": label_studio.read, "via2": via.read_via2, "via3": via.read_via3,
    "coco": tables.read_coco,
}  # fmt: skip
# The formats that can hold the answers of several people to one image.
FOR_ALL = ("csv", "label_studio")
# The tasks of formats that say what is asked.
DEFAULTS: dict[str, Callable[[Path], str]] = {
    "focus": lambda path: load("context")[1],
    "coco": tables.task_text,
}


def write(path: Path, name: str, out: Path, *, all_answers: bool = False) -> int:
    """Write a labelling in a format, and return how many images it holds."""
    if name not in WRITERS:
        raise UnknownName("format", name, WRITERS, f"There are {', '.join(WRITERS)}.")
    if all_answers and name not in FOR_ALL:
        raise SoritesError(
            f"the format {name} holds one answer an image; leave out --all, or choose {' or '.join(FOR_ALL)}"
        )
    with opened(path) as database:
        task = task_of(database)
        rows = list(labelled(database, task, all_answers))
    if not rows:
        raise SoritesError(f"{path} holds no answers yet")
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
    """Take the answers of a file into a labelling, made if new; return for how many images.

    What is there is not doubled.
    """
    if name not in READERS:
        raise UnknownName("format", name, READERS, f"There are {', '.join(READERS)}.")
    if not is_file(file):
        raise SoritesError(f"there is no file {file}")
    if not is_file(out):
        text = load(task)[1] if task else DEFAULTS[name](file) if name in DEFAULTS else None
        if text is None:
            raise SoritesError(
                f"{out} is new: say what was asked with --task in_class, context, visible, boxes or a .toml"
                " file"
            )
        rows = list(READERS[name](file, parse(text)))
        create(out, text, {"source": "", "seed": "0"})
    with opened(out, write=True) as database:
        asked = task_of(database)
        rows = list(READERS[name](file, asked))
        if not rows:
            raise SoritesError(
                f"{file} holds no answers to {', '.join(question.id for question in asked.questions)}"
            )
        with writing(database):
            _take(database, asked, rows, annotator, known)
    return len(rows)


def _take(
    database: sqlite3.Connection, task: Task, rows: list[Labelled], annotator: str, known: bool
) -> None:
    for row in rows:
        _add_image(database, task, row)
    if known:
        add_known(database, {row.image: _checked(task, row.answers[0]) for row in rows})
        return
    for row in rows:
        for one in row.answers:
            _answer(database, task, row, one, one.annotator or annotator)


def _checked(task: Task, one: Answered) -> dict[str, object]:
    return {question: checked_value(task.question(question), value) for question, value in one.values.items()}


def _add_image(database: sqlite3.Connection, task: Task, row: Labelled) -> None:
    database.execute(
        """INSERT INTO images (name, image_id, sample_id, shown_class, shift, severity, width, height, wanted)
          VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
          ON CONFLICT (name) DO UPDATE SET width = coalesce(width, excluded.width), height = coalesce(height, excluded.height)""",
        (row.image, row.facts.get("image_id"), row.facts.get("sample_id") or row.image, row.facts.get("class"),
         row.facts.get("shift"), row.facts.get("severity"), row.width, row.height, task.annotators),
    )  # fmt: skip


def _answer(database: sqlite3.Connection, task: Task, row: Labelled, one: Answered, annotator: str) -> None:
    """Keep one imported answer as a click of its own; the same answer of the same person is kept once."""
    image = database.execute("SELECT id FROM images WHERE name = ?", (row.image,)).fetchone()["id"]
    click = digest("import", annotator, row.image, size=16).hex()
    if database.execute("SELECT 1 FROM clicks WHERE click = ?", (click,)).fetchone():
        return
    who, batch = _person(database, annotator)
    place = database.execute("SELECT count(*) FROM assignments WHERE batch = ?", (batch,)).fetchone()[0]
    made = database.execute(
        "INSERT INTO assignments (batch, annotator, image, place, role) VALUES (?, ?, ?, ?, 'work')",
        (batch, who, image, place),
    )
    database.execute("UPDATE images SET given = given + 1 WHERE id = ?", (image,))
    try:
        sent = {"assignment": made.lastrowid, "action": "answer", "value": one.values, "seconds": one.seconds}
        keep(database, task, who, click, sent)
    except SoritesError as error:
        raise SoritesError(f"{row.image}: {error}") from error


def _person(database: sqlite3.Connection, name: str) -> tuple[int, int]:
    """Return the number of whoever gave imported answers, and of the batch that holds them."""
    found = database.execute("SELECT id FROM annotators WHERE name = ?", (name,)).fetchone()
    who = found["id"] if found else add_annotator(database, name, "imported")
    batch = database.execute(
        "SELECT id FROM batches WHERE annotator = ? AND kind = 'imported'", (who,)
    ).fetchone()
    if batch is not None:
        return who, batch["id"]
    now = time.time()
    made = database.execute(
        "INSERT INTO batches (annotator, kind, made, last, closed) VALUES (?, 'imported', ?, ?, NULL)",
        (who, now, now),
    )
    return who, int(made.lastrowid or 0)
