"""A table: one row per image (and person), one column per question."""

from __future__ import annotations

import io
import json
import re
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from sorites.apps.annotation.begin import cell_value
from sorites.apps.annotation.formats.rows import Answered, Labelled, image_name
from sorites.apps.annotation.task import NONE as NONE_of
from sorites.apps.annotation.task import Question, Task
from sorites.apps.annotation.values import Value
from sorites.core import table
from sorites.core.errors import SoritesError
from sorites.io.files import write_bytes
from sorites.io.readers import json_file
from sorites.io.tables import sheet
from sorites.io.tables import table as table_of
from sorites.sources.papers.focus import NONE, WORDS, CategorySetting, is_common, read_uncommon

FACTS = ("image_id", "sample_id", "class", "shift", "severity")


def write_table(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write CSV, or parquet where the name ends so.

    Of several words, commas stand between them; boxes are JSON.
    """
    records = []
    for row in rows:
        for one in row.answers:
            cells = {q.id: cell(q, one.values.get(q.id)) for q in task.questions}
            facts = {name: row.facts.get(name) for name in FACTS}
            sizes = {"width": row.width, "height": row.height, "seconds": one.seconds}
            records.append(
                {"image": row.image, **facts, **sizes, "annotator": one.annotator or None, **cells}
            )
    frame = pl.DataFrame(records, infer_schema_length=None)
    buffer = io.BytesIO()
    frame.write_parquet(buffer) if out.suffix.lower() == ".parquet" else frame.write_csv(buffer)
    write_bytes(buffer.getvalue(), out)
    return len(rows)


def cell(question: Question, value: Value) -> str | None:
    """Return an answer as a cell of text."""
    if value is None:
        return None
    return (
        ", ".join(value)
        if question.kind == "several"
        else value
        if isinstance(value, str)
        else json.dumps(value)
    )


def read_table(path: Path, task: Task) -> Iterator[Labelled]:
    """Yield the images of a table with the column ``image`` and some of the task's questions."""
    frame = sheet(path, "a CSV or parquet file with the column image and one column per question")
    asked = [question for question in task.questions if question.id in frame.columns]
    if "image" not in frame.columns or not asked:
        wanted = ", ".join(question.id for question in task.questions)
        raise SoritesError(
            f"{path}: wanted the column image and some of {wanted}; got {', '.join(frame.columns)}"
        )
    found: dict[str, Labelled] = {}
    for number, row in enumerate(frame.iter_rows(named=True), 1):
        where = f"{path}, row {number}"
        name = str(row["image"]) if row.get("image_id") else image_name(row["image"], where)
        try:
            values = {q.id: cell_value(q, row[q.id]) for q in asked if row[q.id] not in (None, "")}
            width, height = (
                int(row[key]) if row.get(key) not in (None, "") else None for key in ("width", "height")
            )
            seconds = float(row["seconds"]) if row.get("seconds") not in (None, "") else None
        except (SoritesError, ValueError) as error:
            raise SoritesError(f"{where}: {error}") from error
        facts = {key: row.get(key) or None for key in FACTS}
        facts["severity"] = float(facts["severity"]) if facts["severity"] is not None else None
        one = found.setdefault(name, Labelled(name, [], width, height, facts))
        one.answers.append(Answered(values, row.get("annotator") or "", seconds))
    yield from found.values()


# Facts of a run: whether an image stays (``valid``) and its attributes, joined to the table when it is
# read.


NAME = "annotated"
CLASS = "class"


def write_facts(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write ``facts/annotated.parquet`` of a run, and return for how many of its images it says something.

    Images of a run are known by their image ids. For those of a source, attributes go to all
    images of the sample, and ``valid`` to its clean image alone.
    """
    images = table.read(out).select("image_id", "sample_id", "shift").unique().collect()
    by_id, by_sample = set(images["image_id"]), images.partition_by("sample_id", as_dict=True)
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        said = {"valid": _valid(task, row.values), "attrs": list(_attributes(task, row.values)) or None}
        if row.facts.get("image_id") in by_id:
            found[row.facts["image_id"]] = said
        elif (row.facts.get("sample_id"),) in by_sample and not row.facts.get("image_id"):
            for image in by_sample[(row.facts["sample_id"],)].iter_rows(named=True):
                found[image["image_id"]] = {
                    **said,
                    "valid": said["valid"] if image["shift"] == "clean" else None,
                }
    kept = {key: said for key, said in found.items() if said["valid"] is not None or said["attrs"]}
    if not kept:
        raise SoritesError(
            f"none of the {len(rows)} answered images is an image or a sample of the run {out}"
        )
    names = ("image_id", "valid", "attrs")
    schema = pl.Schema({name: table.SCHEMA[name] for name in names})
    table.write_facts(
        out, NAME, pl.DataFrame([{"image_id": key, **said} for key, said in kept.items()], schema=schema)
    )
    return len(kept)


def _valid(task: Task, values: Mapping[str, Value]) -> bool | None:
    """Return whether the image stays by every question that says so, None where none does."""
    said = [values[q.id] in q.valid for q in task.questions if q.valid and q.id in values]
    return all(said) if said else None


def _attributes(task: Task, values: Mapping[str, Value]) -> Iterator[dict[str, Any]]:
    category = next(
        (str(values[q.id]) for q in task.questions if q.attribute == CLASS and q.id in values), None
    )
    for question in task.questions:
        if question.kind in ("single", "several", "scale") and not question.valid and question.id in values:
            value, key = values[question.id], question.attribute or question.id
            for word in value if isinstance(value, list) else [value]:
                yield {"key": key, "value": str(word), "common": _common(category, key, str(word))}


def _common(category: str | None, key: str, word: str) -> bool | None:
    """Return whether a setting is common for a category by FOCUS's table; None where that says nothing."""
    uncommon = _uncommon()
    if key not in WORDS or word == NONE or category not in {one for one, _, _ in uncommon}:
        return None
    return is_common(uncommon, str(category), key, word)


@cache
def _uncommon() -> frozenset[CategorySetting]:
    name = "focus_uncommon.tsv"
    return read_uncommon(files("sorites.sources").joinpath(name).read_text(encoding="utf-8"), name)


# FOCUS's ``annotations.db``: one table, with the words of category, time, weather, locations and humans
# for each file.


COLUMNS = ("category", "time", "weather", "locations", "humans")
NEEDED = COLUMNS[:4]
CREATE = (
    "CREATE TABLE annotations (file_name TEXT PRIMARY KEY, category TEXT, time TEXT, weather TEXT, locations"
    " TEXT, humans TEXT)"
)


def write_focus(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write the images that show one of the categories; names begin with a slash, as in the
    published file.
    """
    ids = {question.id for question in task.questions}
    if lost := [name for name in NEEDED if name not in ids]:
        raise SoritesError(
            f"FOCUS's table wants the questions {', '.join(NEEDED)}; the task {task.name} has no"
            f" {', '.join(lost)}"
        )
    kept = [
        row
        for row in rows
        if all(name in row.values for name in NEEDED) and row.values["category"] != NONE_of
    ]
    if not kept:
        raise SoritesError("none of the images shows one of the categories")
    records = [(f"/{row.image}", *(_text(row.values.get(name, "no")) for name in COLUMNS)) for row in kept]
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


def read_focus(path: Path, task: Task) -> Iterator[Labelled]:
    """Yield the images of an ``annotations.db``; a question of the task that it has no column for
    must be optional.
    """
    names, rows = table_of(path, "annotations", "file_name")
    if lost := [name for name in ("file_name", *NEEDED) if name not in names]:
        raise SoritesError(
            f"{path}: wanted the columns file_name, {', '.join(NEEDED)}; {', '.join(lost)} missing"
        )
    several = {question.id for question in task.questions if question.kind == "several"}
    for row in rows:
        cells = dict(zip(names, row, strict=True))
        values = {name: _value(cells[name] or "", name in several) for name in COLUMNS if cells.get(name)}
        yield Labelled(image_name(cells["file_name"], path), [Answered(values)])


def _value(text: str, several: bool) -> str | list[str]:
    words = [word.strip().lower().replace("_", " ") for word in text.split(",")]
    return [word for word in words if word] if several else words[0]


# COCO's annotation file of boxes.


def write_coco(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write images, annotations and categories; ids begin with 1, because 0 means unmatched in
    COCO's tools.
    """
    question = _boxes(task)
    numbers = {value: i for i, value in enumerate(question.values, 1)}
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, row in enumerate(rows, 1):
        width, height = row.size()
        images.append({"id": number, "file_name": row.image, "width": width, "height": height})
        for box in row.values.get(question.id, ()):
            annotations.append({"id": len(annotations) + 1, "image_id": number, **_annotation(box, numbers)})
    categories = [{"id": number, "name": name} for name, number in numbers.items()]
    made = {"images": images, "annotations": annotations, "categories": categories}
    write_bytes((json.dumps(made, indent=1, ensure_ascii=False) + "\n").encode(), out)
    return len(rows)


def _boxes(task: Task) -> Question:
    for question in task.questions:
        if question.kind == "boxes":
            return question
    raise SoritesError(f"COCO's file holds boxes, and the task {task.name} asks for none")


def _annotation(box: dict[str, Any], numbers: dict[str, int]) -> dict[str, Any]:
    x0, y0, x1, y1 = box["box"]
    across, down = round(x1 - x0, 2), round(y1 - y0, 2)
    return {
        "category_id": numbers[box["label"]],
        "bbox": [x0, y0, across, down],
        "area": round(across * down, 4),
        "iscrowd": 0,
    }


def task_text(path: Path) -> str:
    """Return the task of boxes that asks for the categories of a file."""
    names = [str(category["name"]) for category in _content(path)["categories"]]
    choices = ", ".join(f"{{ value = {json.dumps(name)} }}" for name in names)
    from sorites.apps.annotation.task import load

    return re.sub(
        r"choices = \[.*?\n\]", lambda found: f"choices = [{choices}]", load("boxes")[1], flags=re.DOTALL
    )


def _content(path: Path) -> dict[str, Any]:
    found = json_file(path, "COCO's annotations of boxes")
    keys = ("images", "annotations", "categories")
    if not isinstance(found, dict) or any(not isinstance(found.get(key), list) for key in keys):
        raise SoritesError(f"{path}: wanted COCO's annotations, with the lists {', '.join(keys)}")
    return found


def read_coco(path: Path, task: Task) -> Iterator[Labelled]:
    """Yield the images of a file with their boxes; crowds and boxes of no size are left out."""
    question, found = _boxes(task), _content(path)
    try:
        names = {category["id"]: str(category["name"]) for category in found["categories"]}
        boxes: dict[Any, list[dict[str, Any]]] = {image["id"]: [] for image in found["images"]}
        for one in found["annotations"]:
            x, y, width, height = (float(number) for number in one["bbox"])
            if not one.get("iscrowd") and width > 0 and height > 0:
                corners = [round(number, 2) for number in (max(x, 0), max(y, 0), x + width, y + height)]
                boxes[one["image_id"]].append({"box": corners, "label": names[one["category_id"]]})
        for image in found["images"]:
            name = image_name(image["file_name"], path)
            yield Labelled(
                name, [Answered({question.id: boxes[image["id"]]})], image.get("width"), image.get("height")
            )
    except (KeyError, TypeError, ValueError) as error:
        raise SoritesError(
            f"{path}: it is not COCO's file of boxes ({type(error).__name__}: {error})"
        ) from error
