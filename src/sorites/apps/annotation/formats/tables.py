"""Tabular formats: CSV and parquet, facts of a run, FOCUS's database, and COCO boxes."""

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

from sorites.analysis.filter.filtering import ANNOTATED, is_partial
from sorites.analysis.filter.rules import OUTSIDE
from sorites.apps.annotation.begin import cell_value
from sorites.apps.annotation.formats.rows import Answered, Labelled, image_name
from sorites.apps.annotation.task import NONE as NO_CATEGORY
from sorites.apps.annotation.task import Question, Task
from sorites.apps.annotation.values import Value
from sorites.core import CLEAN, table
from sorites.core.errors import SoritesError
from sorites.io.files import write_bytes
from sorites.io.readers import json_file
from sorites.io.tables import sheet
from sorites.io.tables import table as table_of
from sorites.metrics.rows import SAMPLE_KEY
from sorites.sources.detection.boxes import refuse_oriented
from sorites.sources.papers.focus import NONE, WORDS, CategorySetting, is_common, read_uncommon

FACTS = ("image_id", "sample_id", "class", "shift", "severity")
# All columns that say something of the image or of who answered.
OTHER_COLUMNS = ("image", *FACTS, "width", "height", "seconds", "annotator", OUTSIDE)


def answer_column(question: Question) -> str:
    """Return the column of the answers to a question: its id, or ``answer_ID`` if another column has it."""
    return f"answer_{question.id}" if question.id in OTHER_COLUMNS else question.id


def write_table(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write CSV, or parquet if the file name ends in ``.parquet``.

    Several choices are separated by commas; boxes are JSON. For tasks about validity, the column ``outside``
    says whether the image lost its class, as the out-of-class filter reads it.
    """
    records = []
    judges = any(question.valid for question in task.questions)
    for row in rows:
        for answer in row.answers:
            cells = {answer_column(q): cell(q, answer.values.get(q.id)) for q in task.questions}
            facts = {name: row.facts.get(name) for name in FACTS}
            sizes = {"width": row.width, "height": row.height, "seconds": answer.seconds}
            lost = {OUTSIDE: lost_class(task, answer.values)} if judges else {}
            records.append(
                {"image": row.image, **facts, **sizes, "annotator": answer.annotator or None, **cells, **lost}
            )
    kinds = {OUTSIDE: pl.Boolean} if judges else {}
    frame = pl.DataFrame(records, infer_schema_length=None, schema_overrides=kinds)
    buffer = io.BytesIO()
    frame.write_parquet(buffer) if out.suffix.lower() == ".parquet" else frame.write_csv(buffer)
    write_bytes(buffer.getvalue(), out)
    return len(rows)


def cell(question: Question, value: Value) -> str | None:
    """Format an answer as a table cell."""
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
    """Yield the images of a table with a column ``image`` and columns for some of the task's questions."""
    frame = sheet(path, "a CSV or parquet file with the column image and one column per question")
    questions = [(question, name) for question in task.questions if (name := _column_in(frame, question))]
    taken = {column for _, column in questions}
    if "image" not in frame.columns or not questions:
        ids = ", ".join(answer_column(question) for question in task.questions)
        raise SoritesError(
            f"{path}: expected the column image and some of {ids}; found {', '.join(frame.columns)}"
        )
    images: dict[str, Labelled] = {}
    for number, row in enumerate(frame.iter_rows(named=True), 1):
        where = f"{path}, row {number}"
        name = str(row["image"]) if row.get("image_id") else image_name(row["image"], where)
        try:
            values = {
                q.id: cell_value(q, row[column]) for q, column in questions if row[column] not in (None, "")
            }
            width, height = _integer(row.get("width")), _integer(row.get("height"))
            seconds = _number(row.get("seconds"))
        except (SoritesError, ValueError) as error:
            raise SoritesError(f"{where}: {error}") from error
        facts = {key: None if key in taken else row.get(key) or None for key in FACTS}
        facts["severity"] = _number(facts["severity"])
        image = images.setdefault(name, Labelled(name, [], width, height, facts))
        image.answers.append(Answered(values, row.get("annotator") or "", seconds))
    yield from images.values()


def _column_in(frame: pl.DataFrame, question: Question) -> str | None:
    """Return the column with the answers to a question; a file without its own column may use the id."""
    return next((name for name in (answer_column(question), question.id) if name in frame.columns), None)


def _integer(cell: Any) -> int | None:
    return None if cell in (None, "") else int(cell)


def _number(cell: Any) -> float | None:
    return None if cell in (None, "") else float(cell)


# Facts of a run: validity and attributes of images, which are joined to its table when it is read.


FACTS_NAME = ANNOTATED
CLASS = "class"
# Severities that differ by less are equal.
SEVERITY_TOLERANCE = 1e-6


def write_facts(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write ``facts/annotated.parquet`` of a run, and return the number of its images with facts.

    Images of a run are matched by image id. For images of a source, attributes apply to all images of the
    sample, and validity to the image that was shown: the clean one, or the captured one of its shift and
    severity. Whether an image lost its class is kept among its degrees too, where the out-of-class filter
    finds it.

    Raises:
        SoritesError: No image is one of the run, or a sample is in several sources of the run.
    """
    images = table.read(out).select("image_id", *SAMPLE_KEY, "shift", "severity").unique("image_id").collect()
    by_id, by_sample = set(images["image_id"]), images.partition_by("sample_id", as_dict=True)
    facts: dict[str, dict[str, Any]] = {}
    for row in rows:
        verdict = _verdict(task, row.values)
        attrs = list(_attributes(task, row.values)) or None
        image_id, sample = str(row.facts.get("image_id") or ""), (row.facts.get("sample_id"),)
        if image_id in by_id:
            facts[image_id] = {"image_id": image_id, **verdict, "attrs": attrs}
        elif sample in by_sample and not image_id:
            own = by_sample[sample]
            if own["source"].n_unique() > 1:
                raise SoritesError(
                    f"several sources of the run {out} have a sample {sample[0]}; annotate the images of the"
                    " run instead"
                )
            for key, shift, severity in own.select("image_id", "shift", "severity").iter_rows():
                shown = verdict if _is_shown(row, shift, severity) else {}
                facts[key] = {**facts.get(key, {"image_id": key}), **shown, "attrs": attrs}
    nonempty = [fact for fact in facts.values() if fact.get("valid") is not None or fact["attrs"]]
    if not nonempty:
        raise SoritesError(
            f"none of the {len(rows)} answered images is an image or a sample of the run {out}"
        )
    schema = pl.Schema({name: table.SCHEMA[name] for name in ("image_id", "valid", "attrs", "degrees")})
    table.write_facts(out, FACTS_NAME, pl.DataFrame(nonempty, schema=schema))
    return len(nonempty)


def _is_shown(row: Labelled, shift: str, severity: float | None) -> bool:
    """Return whether an image of a run is the one of its sample that was shown."""
    if not row.facts.get("shift"):
        return shift == CLEAN
    asked = row.facts.get("severity")
    same = (
        severity == asked if severity is None or asked is None else abs(severity - asked) < SEVERITY_TOLERANCE
    )
    return shift == row.facts["shift"] and same


def _verdict(task: Task, values: Mapping[str, Value]) -> dict[str, Any]:
    """Return the validity of an image, and whether it lost its class as a degree, if that was asked."""
    valid = _valid(task, values)
    if valid is None:
        return {"valid": None, "degrees": None}
    lost = lost_class(task, values)
    value = None if lost is None else float(lost)
    return {"valid": valid, "degrees": [{"measure": OUTSIDE, "value": value}]}


def lost_class(task: Task, values: Mapping[str, Value]) -> bool | None:
    """Return whether an image lost its class by the answers about validity; None if in part, or not asked."""
    valid = _valid(task, values)
    words = [str(values[q.id]) for q in task.questions if q.valid and q.id in values]
    if valid and any(is_partial(word) for word in words):
        return None
    return None if valid is None else not valid


def _valid(task: Task, values: Mapping[str, Value]) -> bool | None:
    """Return whether all validity questions keep the image; None if none was answered."""
    verdicts = [values[q.id] in q.valid for q in task.questions if q.valid and q.id in values]
    return all(verdicts) if verdicts else None


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
    """Return whether a word is common for a category by FOCUS's table.

    None if the table does not cover it.
    """
    uncommon = _uncommon()
    if key not in WORDS or word == NONE or category not in {listed for listed, _, _ in uncommon}:
        return None
    return is_common(uncommon, str(category), key, word)


@cache
def _uncommon() -> frozenset[CategorySetting]:
    name = "focus_uncommon.tsv"
    return read_uncommon(files("sorites.sources").joinpath(name).read_text(encoding="utf-8"), name)


# FOCUS's annotations.db: one table with category, time, weather, locations and humans of each file.


FOCUS_COLUMNS = ("category", "time", "weather", "locations", "humans")
FOCUS_REQUIRED = FOCUS_COLUMNS[:4]
FOCUS_SCHEMA = (
    "CREATE TABLE annotations (file_name TEXT PRIMARY KEY, category TEXT, time TEXT, weather TEXT, locations"
    " TEXT, humans TEXT)"
)


def write_focus(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write images that show one of the categories; names start with a slash, as in the published file."""
    ids = {question.id for question in task.questions}
    if missing := [name for name in FOCUS_REQUIRED if name not in ids]:
        raise SoritesError(
            f"FOCUS's table needs the questions {', '.join(FOCUS_REQUIRED)}; the task {task.name} "
            f"lacks {', '.join(missing)}"
        )
    complete = [
        row
        for row in rows
        if all(name in row.values for name in FOCUS_REQUIRED) and row.values["category"] != NO_CATEGORY
    ]
    if not complete:
        raise SoritesError("none of the images shows one of the categories")
    records = [
        (f"/{row.image}", *(_text(row.values.get(name, "no")) for name in FOCUS_COLUMNS)) for row in complete
    ]
    write_bytes(_database(records), out)
    return len(complete)


def _text(value: object) -> str:
    return ", ".join(sorted(value)) if isinstance(value, list) else str(value)


def _database(records: list[tuple[str, ...]]) -> bytes:
    """Return the bytes of a SQLite file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "annotations.db")
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(FOCUS_SCHEMA)
            database.executemany("INSERT INTO annotations VALUES (?, ?, ?, ?, ?, ?)", records)
        return path.read_bytes()


def read_focus(path: Path, task: Task) -> Iterator[Labelled]:
    """Yield the images of an ``annotations.db``."""
    names, rows = table_of(path, "annotations", "file_name")
    if missing := [name for name in ("file_name", *FOCUS_REQUIRED) if name not in names]:
        raise SoritesError(
            f"{path}: expected the columns file_name, {', '.join(FOCUS_REQUIRED)}; missing "
            f"{', '.join(missing)}"
        )
    several = {question.id for question in task.questions if question.kind == "several"}
    for row in rows:
        cells = dict(zip(names, row, strict=True))
        values = {
            name: _value(cells[name] or "", name in several) for name in FOCUS_COLUMNS if cells.get(name)
        }
        yield Labelled(image_name(cells["file_name"], path), [Answered(values)])


def _value(text: str, several: bool) -> str | list[str]:
    words = [word.strip().lower().replace("_", " ") for word in text.split(",")]
    return [word for word in words if word] if several else words[0]


# COCO's annotation file for boxes.


def write_coco(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write images, annotations and categories. Ids start at 1, because 0 means unmatched in COCO's tools."""
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
    content = {"images": images, "annotations": annotations, "categories": categories}
    write_bytes((json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode(), out)
    return len(rows)


def _boxes(task: Task) -> Question:
    for question in task.questions:
        if question.kind == "boxes":
            return question
    raise SoritesError(f"COCO files store boxes, and the task {task.name} has no boxes question")


def _annotation(box: dict[str, Any], numbers: dict[str, int]) -> dict[str, Any]:
    x0, y0, x1, y1 = box["box"]
    width, height = round(x1 - x0, 2), round(y1 - y0, 2)
    return {
        "category_id": numbers[box["label"]],
        "bbox": [x0, y0, width, height],
        "area": round(width * height, 4),
        "iscrowd": 0,
    }


def task_text(path: Path) -> str:
    """Return a boxes task with the categories of a COCO file."""
    names = [str(category["name"]) for category in _content(path)["categories"]]
    choices = ", ".join(f"{{ value = {json.dumps(name)} }}" for name in names)
    from sorites.apps.annotation.task import load

    return re.sub(
        r"choices = \[.*?\n\]", lambda match: f"choices = [{choices}]", load("boxes")[1], flags=re.DOTALL
    )


def _content(path: Path) -> dict[str, Any]:
    content = json_file(path, "COCO's annotations of boxes")
    keys = ("images", "annotations", "categories")
    if not isinstance(content, dict) or any(not isinstance(content.get(key), list) for key in keys):
        raise SoritesError(f"{path}: expected COCO annotations with the lists {', '.join(keys)}")
    return content


def read_coco(path: Path, task: Task) -> Iterator[Labelled]:
    """Yield the images of a COCO file with their boxes, without crowds and empty boxes."""
    question, content = _boxes(task), _content(path)
    try:
        names = {category["id"]: str(category["name"]) for category in content["categories"]}
        boxes: dict[Any, list[dict[str, Any]]] = {image["id"]: [] for image in content["images"]}
        for annotation in content["annotations"]:
            refuse_oriented(annotation["bbox"], str(path))
            x, y, width, height = (float(number) for number in annotation["bbox"])
            if not annotation.get("iscrowd") and width > 0 and height > 0:
                corners = [round(number, 2) for number in (max(x, 0), max(y, 0), x + width, y + height)]
                boxes[annotation["image_id"]].append(
                    {"box": corners, "label": names[annotation["category_id"]]}
                )
        for image in content["images"]:
            name = image_name(image["file_name"], path)
            yield Labelled(
                name, [Answered({question.id: boxes[image["id"]]})], image.get("width"), image.get("height")
            )
    except (KeyError, TypeError, ValueError) as error:
        raise SoritesError(f"{path}: not a COCO file of boxes ({type(error).__name__}: {error})") from error
