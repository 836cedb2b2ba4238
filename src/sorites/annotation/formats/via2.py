"""A project of the VGG Image Annotator 2: attributes of files for questions, rectangles for boxes.

A picture is known by its name and the size of its file, which is -1 where it is not known, as for pictures behind an address.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sorites.annotation.formats.rows import Answered, Labelled, picture_name
from sorites.annotation.task import Question, Task
from sorites.annotation.values import Value
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.reading.texts import json_file

SIZE = -1
LABEL = "label"
"""The attribute of regions that holds the label of a box."""
_TYPES = {"single": "radio", "several": "checkbox", "scale": "text", "text": "text"}


def write(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write a project that VIA 2 opens."""
    boxes = next((question for question in task.questions if question.kind == "boxes"), None)
    pictures = {f"{row.picture}{SIZE}": _picture(task, row, boxes) for row in rows}
    project = {
        "_via_settings": _settings(task.name),
        "_via_img_metadata": pictures,
        "_via_attributes": {
            "region": {} if boxes is None else {LABEL: _attribute(boxes, "dropdown")},
            "file": {q.id: _attribute(q, _TYPES[q.kind]) for q in task.questions if q.kind != "boxes"},
        },
        "_via_data_format_version": "2.0.10",
        "_via_image_id_list": list(pictures),
    }
    write_bytes((json.dumps(project, ensure_ascii=False) + "\n").encode(), out)
    return len(rows)


def _settings(name: str) -> dict[str, Any]:
    grid = {
        "img_height": 80, "rshape_fill": "none", "rshape_fill_opacity": 0.3, "rshape_stroke": "yellow", "rshape_stroke_width": 2,
        "show_region_shape": True, "show_image_policy": "all",
    }  # fmt: skip
    image = {
        "region_label": "__via_region_id__", "region_color": "__via_default_region_color__", "region_label_font": "10px Sans",
        "on_image_annotation_editor_placement": "NEAR_REGION",
    }  # fmt: skip
    ui = {"annotation_editor_height": 25, "annotation_editor_fontsize": 0.8, "leftsidebar_width": 18}
    core = {"buffer_size": 18, "filepath": {}, "default_filepath": ""}
    return {"ui": {**ui, "image_grid": grid, "image": image}, "core": core, "project": {"name": name}}


def _attribute(question: Question, kind: str) -> dict[str, Any]:
    made: dict[str, Any] = {"type": kind, "description": question.ask}
    if kind == "text":
        return {**made, "default_value": ""}
    return {**made, "options": {choice.value: choice.shown for choice in question.choices}, "default_options": {}}


def _picture(task: Task, row: Labelled, boxes: Question | None) -> dict[str, Any]:
    attributes = {q.id: _held(q, row.values[q.id]) for q in task.questions if q.kind != "boxes" and q.id in row.values}
    regions = [] if boxes is None else [_region(box) for box in row.values.get(boxes.id, ())]
    return {"filename": row.picture, "size": SIZE, "regions": regions, "file_attributes": attributes}


def _held(question: Question, value: Value) -> Any:
    return dict.fromkeys(value, True) if question.kind == "several" else str(value)


def _region(box: Mapping[str, Any]) -> dict[str, Any]:
    x0, y0, x1, y1 = box["box"]
    shape = {"name": "rect", "x": x0, "y": y0, "width": round(x1 - x0, 2), "height": round(y1 - y0, 2)}
    return {"shape_attributes": shape, "region_attributes": {LABEL: box["label"]}}


def read(path: Path, task: Task) -> Iterator[Labelled]:
    """Yield the pictures of a project, or of VIA's exported annotations; those without any answer are left out."""
    found = json_file(path, "a project of VIA 2")
    pictures = found.get("_via_img_metadata", found) if isinstance(found, dict) else None
    if not isinstance(pictures, dict) or not all(isinstance(one, dict) and "filename" in one for one in pictures.values()):
        raise SoritesError(f"{path}: wanted a project of VIA 2 with _via_img_metadata")
    for one in pictures.values():
        name = picture_name(one["filename"], path)
        try:
            values = _values(task, one)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SoritesError(f"{path}, {name}: it is not what VIA writes ({type(error).__name__}: {error})") from error
        if values:
            yield Labelled(name, [Answered(values)])


def _values(task: Task, one: Mapping[str, Any]) -> dict[str, Value]:
    attributes, values = one.get("file_attributes") or {}, {}
    for question in task.questions:
        if question.kind == "boxes":
            values[question.id] = [_box(region) for region in _regions(one)]
        elif attributes.get(question.id) not in (None, "", {}):
            values[question.id] = _value(question, attributes[question.id])
    return values


def _regions(one: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The rectangles of a picture, which VIA keeps in a list or, in older files, by number."""
    regions = one.get("regions") or []
    every = list(regions.values()) if isinstance(regions, Mapping) else regions
    return [region for region in every if region["shape_attributes"]["name"] == "rect"]


def _value(question: Question, held: Any) -> Value:
    if question.kind == "several":
        return sorted(word for word, on in held.items() if on)
    return int(held) if question.kind == "scale" else held


def _box(region: Mapping[str, Any]) -> dict[str, Any]:
    shape = region["shape_attributes"]
    x, y, width, height = (float(shape[key]) for key in ("x", "y", "width", "height"))
    return {"box": [x, y, round(x + width, 2), round(y + height, 2)], "label": region["region_attributes"][LABEL]}
