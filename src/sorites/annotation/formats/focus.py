"""FOCUS's ``annotations.db``: one table, with the words of category, time, weather, locations and humans for each file."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from sorites.annotation.formats.rows import Answered, Labelled, picture_name
from sorites.annotation.task import NONE, Task
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.reading.databases import table

COLUMNS = ("category", "time", "weather", "locations", "humans")
NEEDED = COLUMNS[:4]
CREATE = (
    "CREATE TABLE annotations (file_name TEXT PRIMARY KEY, category TEXT, time TEXT, weather TEXT, locations TEXT, humans TEXT)"
)


def write(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write the pictures that show one of the categories; names begin with a slash, as in the published file."""
    ids = {question.id for question in task.questions}
    if lost := [name for name in NEEDED if name not in ids]:
        raise SoritesError(
            f"FOCUS's table wants the questions {', '.join(NEEDED)}; the task {task.name} has no {', '.join(lost)}"
        )
    kept = [row for row in rows if all(name in row.values for name in NEEDED) and row.values["category"] != NONE]
    if not kept:
        raise SoritesError("none of the pictures shows one of the categories")
    records = [(f"/{row.picture}", *(_text(row.values.get(name, "no")) for name in COLUMNS)) for row in kept]
    write_bytes(_database(records), out)
    return len(kept)


def _text(value: object) -> str:
    return ", ".join(sorted(value)) if isinstance(value, list) else str(value)


def _database(records: list[tuple[str, ...]]) -> bytes:
    """Return the bytes of a SQLite file, made in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "annotations.db")
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(CREATE)
            database.executemany("INSERT INTO annotations VALUES (?, ?, ?, ?, ?, ?)", records)
        return path.read_bytes()


def read(path: Path, task: Task) -> Iterator[Labelled]:
    """Yield the pictures of an ``annotations.db``; a question of the task that it has no column for must be optional."""
    names, rows = table(path, "annotations", "file_name")
    if lost := [name for name in ("file_name", *NEEDED) if name not in names]:
        raise SoritesError(f"{path}: wanted the columns file_name, {', '.join(NEEDED)}; {', '.join(lost)} missing")
    several = {question.id for question in task.questions if question.kind == "several"}
    for row in rows:
        cells = dict(zip(names, row, strict=True))
        values = {name: _value(cells[name] or "", name in several) for name in COLUMNS if cells.get(name)}
        yield Labelled(picture_name(cells["file_name"], path), [Answered(values)])


def _value(text: str, several: bool) -> str | list[str]:
    words = [word.strip().lower().replace("_", " ") for word in text.split(",")]
    return [word for word in words if word] if several else words[0]
