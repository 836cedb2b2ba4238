"""A project of VIA 3: attributes of the whole file for questions, rectangles for boxes; options are kept by number."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sorites.annotation.formats.rows import Answered, Labelled, picture_name
from sorites.annotation.task import Question, Task
from sorites.annotation.values import Value
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.reading.texts import json_file
from sorites.rng import digest

WHOLE, REGION = "FILE1_Z0_XY0", "FILE1_Z0_XY1"
"""VIA's codes for an attribute that describes a whole file, and for one that describes a shape in it."""
TEXT, CHECKBOX, RADIO = 1, 2, 3
RECTANGLE = 2
IMAGE, LOCAL = 2, 1
_TYPES = {"single": RADIO, "several": CHECKBOX, "scale": TEXT, "text": TEXT, "boxes": RADIO}


def write(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write a project that VIA 3 opens."""
    numbers = {question.id: str(i) for i, question in enumerate(task.questions, 1)}
    files = {
        str(i): {"fid": str(i), "fname": row.picture, "type": IMAGE, "loc": LOCAL, "src": ""} for i, row in enumerate(rows, 1)
    }
    metadata = {key: entry for i, row in enumerate(rows, 1) for key, entry in _entries(task, numbers, str(i), row)}
    project = {
        "pid": "__VIA_PROJECT_ID__", "rev": "__VIA_PROJECT_REV_ID__", "rev_timestamp": "__VIA_PROJECT_REV_TIMESTAMP__",
        "pname": task.name, "creator": "Sorites", "created": int(time.time() * 1000), "data_format_version": "3.1.1",
        "vid_list": list(files),
    }  # fmt: skip
    labelled = next((numbers[question.id] for question in task.questions if question.kind == "boxes"), "")
    ui = {
        "file_content_align": "center", "file_metadata_editor_visible": True, "spatial_metadata_editor_visible": True,
        "spatial_region_label_attribute_id": labelled,
    }  # fmt: skip
    made = {
        "project": project,
        "config": {"file": {"loc_prefix": dict.fromkeys("1234", "")}, "ui": ui},
        "attribute": {numbers[question.id]: _attribute(question) for question in task.questions},
        "file": files,
        "metadata": metadata,
        "view": {key: {"fid_list": [key]} for key in files},
    }
    write_bytes((json.dumps(made, ensure_ascii=False) + "\n").encode(), out)
    return len(rows)


def _attribute(question: Question) -> dict[str, Any]:
    kind = _TYPES[question.kind]
    options = {} if kind == TEXT else {str(i): value for i, value in enumerate(question.values)}
    anchor = REGION if question.kind == "boxes" else WHOLE
    return {
        "aname": question.id, "anchor_id": anchor, "type": kind, "desc": question.ask, "options": options,
        "default_option_id": "",
    }  # fmt: skip


def _entries(task: Task, numbers: Mapping[str, str], view: str, row: Labelled) -> Iterator[tuple[str, dict[str, Any]]]:
    whole = {numbers[q.id]: _held(q, row.values[q.id]) for q in task.questions if q.kind != "boxes" and q.id in row.values}
    if whole:
        yield _key(view, "whole"), {"vid": view, "flg": 0, "z": [], "xy": [], "av": whole}
    for question in task.questions:
        if question.kind == "boxes":
            for i, box in enumerate(row.values.get(question.id, ())):
                x0, y0, x1, y1 = box["box"]
                xy = [RECTANGLE, x0, y0, round(x1 - x0, 2), round(y1 - y0, 2)]
                label = str(question.values.index(box["label"]))
                yield _key(view, str(i)), {"vid": view, "flg": 0, "z": [], "xy": xy, "av": {numbers[question.id]: label}}


def _key(view: str, what: str) -> str:
    return f"{view}_{digest('via', view, what, size=4).hex()}"


def _held(question: Question, value: Value) -> str:
    if question.kind == "several":
        return ",".join(str(question.values.index(word)) for word in value)
    return str(question.values.index(value)) if question.kind == "single" else str(value)


def read(path: Path, task: Task) -> Iterator[Labelled]:
    """Yield the pictures of a project whose attributes have the names of the task's questions, and the words of its choices."""
    found = json_file(path, "a project of VIA 3")
    try:
        yield from _read(found, task, path)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise SoritesError(f"{path}: it is not a project of VIA 3 ({type(error).__name__}: {error})") from error


def _read(found: Mapping[str, Any], task: Task, path: Path) -> Iterator[Labelled]:
    asked = {
        number: (task.question(about["aname"]), about) for number, about in found["attribute"].items() if _is_asked(task, about)
    }
    boxes = [question.id for question in task.questions if question.kind == "boxes"]
    values: dict[str, dict[str, Value]] = {view: {name: [] for name in boxes} for view in found["view"]}
    for entry in found["metadata"].values():
        for number, held in entry["av"].items():
            if number in asked and held != "":
                _add(values[str(entry["vid"])], *asked[number], held, entry["xy"])
    for view, some in values.items():
        file = found["file"][str(found["view"][view]["fid_list"][0])]
        if some:
            yield Labelled(picture_name(file["fname"], path), [Answered(some)])


def _is_asked(task: Task, about: Mapping[str, Any]) -> bool:
    return any(question.id == about["aname"] for question in task.questions)


def _add(values: dict[str, Value], question: Question, about: Mapping[str, Any], held: str, xy: list[float]) -> None:
    """Add what one entry says. Options are named by number in the file, by word here."""
    if question.kind == "boxes":
        if xy and xy[0] == RECTANGLE:
            x, y, width, height = (float(number) for number in xy[1:5])
            box = [x, y, round(x + width, 2), round(y + height, 2)]
            values[question.id].append({"box": box, "label": about["options"][held]})
    elif question.kind == "several":
        values[question.id] = sorted(about["options"][number] for number in held.split(",") if number)
    elif question.kind == "single":
        values[question.id] = about["options"][held]
    else:
        values[question.id] = int(held) if question.kind == "scale" else held
