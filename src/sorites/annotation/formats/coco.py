"""COCO's annotation file of boxes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sorites.annotation.formats.rows import Answered, Labelled, picture_name
from sorites.annotation.task import Question, Task
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.reading.texts import json_file


def write(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write images, annotations and categories; ids begin with 1, because 0 means unmatched in COCO's tools."""
    question = _boxes(task)
    numbers = {value: i for i, value in enumerate(question.values, 1)}
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, row in enumerate(rows, 1):
        width, height = row.size()
        images.append({"id": number, "file_name": row.picture, "width": width, "height": height})
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
    return {"category_id": numbers[box["label"]], "bbox": [x0, y0, across, down], "area": round(across * down, 4), "iscrowd": 0}


def task_text(path: Path) -> str:
    """Return the task of boxes that asks for the categories of a file."""
    names = [str(category["name"]) for category in _content(path)["categories"]]
    choices = ", ".join(f"{{ value = {json.dumps(name)} }}" for name in names)
    from sorites.annotation.task import load

    return re.sub(r"choices = \[.*?\n\]", lambda found: f"choices = [{choices}]", load("boxes")[1], flags=re.DOTALL)


def _content(path: Path) -> dict[str, Any]:
    found = json_file(path, "COCO's annotations of boxes")
    keys = ("images", "annotations", "categories")
    if not isinstance(found, dict) or any(not isinstance(found.get(key), list) for key in keys):
        raise SoritesError(f"{path}: wanted COCO's annotations, with the lists {', '.join(keys)}")
    return found


def read(path: Path, task: Task) -> Iterator[Labelled]:
    """Yield the pictures of a file with their boxes; crowds and boxes of no size are left out."""
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
            name = picture_name(image["file_name"], path)
            yield Labelled(name, [Answered({question.id: boxes[image["id"]]})], image.get("width"), image.get("height"))
    except (KeyError, TypeError, ValueError) as error:
        raise SoritesError(f"{path}: it is not COCO's file of boxes ({type(error).__name__}: {error})") from error
