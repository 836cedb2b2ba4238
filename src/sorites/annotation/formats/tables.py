"""A table: one row per picture (and person), one column per question."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from sorites.annotation.begin import cell_value
from sorites.annotation.formats.rows import Answered, Labelled, picture_name
from sorites.annotation.task import Question, Task
from sorites.annotation.values import Value
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.reading.frames import sheet

FACTS = ("image_id", "sample_id", "class", "shift", "severity")


def write(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write CSV, or parquet where the name ends so. Of several words, commas stand between them; boxes are JSON."""
    records = []
    for row in rows:
        for one in row.answers:
            cells = {q.id: cell(q, one.values.get(q.id)) for q in task.questions}
            facts = {name: row.facts.get(name) for name in FACTS}
            sizes = {"width": row.width, "height": row.height, "seconds": one.seconds}
            records.append({"picture": row.picture, **facts, **sizes, "annotator": one.annotator or None, **cells})
    frame = pl.DataFrame(records, infer_schema_length=None)
    buffer = io.BytesIO()
    frame.write_parquet(buffer) if out.suffix.lower() == ".parquet" else frame.write_csv(buffer)
    write_bytes(buffer.getvalue(), out)
    return len(rows)


def cell(question: Question, value: Value) -> str | None:
    """Return an answer as a cell of text."""
    if value is None:
        return None
    return ", ".join(value) if question.kind == "several" else value if isinstance(value, str) else json.dumps(value)


def read(path: Path, task: Task) -> Iterator[Labelled]:
    """Yield the pictures of a table with the column ``picture`` and some of the task's questions."""
    frame = sheet(path, "a CSV or parquet file with the column picture and one column per question")
    asked = [question for question in task.questions if question.id in frame.columns]
    if "picture" not in frame.columns or not asked:
        wanted = ", ".join(question.id for question in task.questions)
        raise SoritesError(f"{path}: wanted the column picture and some of {wanted}; got {', '.join(frame.columns)}")
    found: dict[str, Labelled] = {}
    for number, row in enumerate(frame.iter_rows(named=True), 1):
        where = f"{path}, row {number}"
        name = str(row["picture"]) if row.get("image_id") else picture_name(row["picture"], where)
        try:
            values = {q.id: cell_value(q, row[q.id]) for q in asked if row[q.id] not in (None, "")}
            width, height = (int(row[key]) if row.get(key) not in (None, "") else None for key in ("width", "height"))
            seconds = float(row["seconds"]) if row.get("seconds") not in (None, "") else None
        except (SoritesError, ValueError) as error:
            raise SoritesError(f"{where}: {error}") from error
        facts = {key: row.get(key) or None for key in FACTS}
        facts["severity"] = float(facts["severity"]) if facts["severity"] is not None else None
        one = found.setdefault(name, Labelled(name, [], width, height, facts))
        one.answers.append(Answered(values, row.get("annotator") or "", seconds))
    yield from found.values()
