"""A project of the VGG Image Annotator 2: attributes of files for questions, rectangles for boxes.

An image is known by its name and the size of its file, which is -1 where it is not known, as for
images behind an address.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sorites.apps.annotation.formats.rows import Answered, Labelled, image_name
from sorites.apps.annotation.task import Question, Task
from sorites.apps.annotation.values import Value
from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.io.files import write_bytes
from sorites.io.readers import json_file

SIZE = -1
# The attribute of regions that holds the label of a box.
LABEL = "label"
_TYPES = {"single": "radio", "several": "checkbox", "scale": "text", "text": "text"}


def write_via2(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write a project that VIA 2 opens."""
    boxes = next((question for question in task.questions if question.kind == "boxes"), None)
    images = {f"{row.image}{SIZE}": _image(task, row, boxes) for row in rows}
    project = {
        "_via_settings": _settings(task.name),
        "_via_img_metadata": images,
        "_via_attributes": {
            "region": {} if boxes is None else {LABEL: _attribute(boxes, "dropdown")},
            "file": {q.id: _attribute(q, _TYPES[q.kind]) for q in task.questions if q.kind != "boxes"},
        },
        "_via_data_format_version": "2.0.10",
        "_via_image_id_list": list(images),
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
    return {
        **made,
        "options": {choice.value: choice.shown for choice in question.choices},
        "default_options": {},
    }


def _image(task: Task, row: Labelled, boxes: Question | None) -> dict[str, Any]:
    attributes = {
        q.id: _held(q, row.values[q.id]) for q in task.questions if q.kind != "boxes" and q.id in row.values
    }
    regions = [] if boxes is None else [_region(box) for box in row.values.get(boxes.id, ())]
    return {"filename": row.image, "size": SIZE, "regions": regions, "file_attributes": attributes}


def _held(question: Question, value: Value) -> Any:
    return dict.fromkeys(value, True) if question.kind == "several" else str(value)


def _region(box: Mapping[str, Any]) -> dict[str, Any]:
    x0, y0, x1, y1 = box["box"]
    shape = {"name": "rect", "x": x0, "y": y0, "width": round(x1 - x0, 2), "height": round(y1 - y0, 2)}
    return {"shape_attributes": shape, "region_attributes": {LABEL: box["label"]}}


def read_via2(path: Path, task: Task) -> Iterator[Labelled]:
    """Yield the images of a project, or of VIA's exported annotations; those without any answer
    are left out.
    """
    found = json_file(path, "a project of VIA 2")
    images = found.get("_via_img_metadata", found) if isinstance(found, dict) else None
    if not isinstance(images, dict) or not all(
        isinstance(one, dict) and "filename" in one for one in images.values()
    ):
        raise SoritesError(f"{path}: wanted a project of VIA 2 with _via_img_metadata")
    for one in images.values():
        name = image_name(one["filename"], path)
        try:
            values = _values(task, one)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SoritesError(
                f"{path}, {name}: it is not what VIA writes ({type(error).__name__}: {error})"
            ) from error
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
    """The rectangles of an image, which VIA keeps in a list or, in older files, by number."""
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
    return {
        "box": [x, y, round(x + width, 2), round(y + height, 2)],
        "label": region["region_attributes"][LABEL],
    }


# A project of VIA 3: attributes of the whole file for questions, rectangles for boxes; options are kept
# by number.


# VIA's codes for an attribute that describes a whole file, and for one that describes a shape in
# it.
WHOLE, REGION = "FILE1_Z0_XY0", "FILE1_Z0_XY1"
TEXT, CHECKBOX, RADIO = 1, 2, 3
RECTANGLE = 2
IMAGE, LOCAL = 2, 1
_VIA3_TYPES = {"single": RADIO, "several": CHECKBOX, "scale": TEXT, "text": TEXT, "boxes": RADIO}


def write_via3(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write a project that VIA 3 opens."""
    numbers = {question.id: str(i) for i, question in enumerate(task.questions, 1)}
    files = {
        str(i): {"fid": str(i), "fname": row.image, "type": IMAGE, "loc": LOCAL, "src": ""}
        for i, row in enumerate(rows, 1)
    }
    metadata = {
        key: entry for i, row in enumerate(rows, 1) for key, entry in _entries(task, numbers, str(i), row)
    }
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
        "attribute": {numbers[question.id]: _via3_attribute(question) for question in task.questions},
        "file": files,
        "metadata": metadata,
        "view": {key: {"fid_list": [key]} for key in files},
    }
    write_bytes((json.dumps(made, ensure_ascii=False) + "\n").encode(), out)
    return len(rows)


def _via3_attribute(question: Question) -> dict[str, Any]:
    kind = _VIA3_TYPES[question.kind]
    options = {} if kind == TEXT else {str(i): value for i, value in enumerate(question.values)}
    anchor = REGION if question.kind == "boxes" else WHOLE
    return {
        "aname": question.id, "anchor_id": anchor, "type": kind, "desc": question.ask, "options": options,
        "default_option_id": "",
    }  # fmt: skip


def _entries(
    task: Task, numbers: Mapping[str, str], view: str, row: Labelled
) -> Iterator[tuple[str, dict[str, Any]]]:
    whole = {
        numbers[q.id]: _via3_held(q, row.values[q.id])
        for q in task.questions
        if q.kind != "boxes" and q.id in row.values
    }
    if whole:
        yield _key(view, "whole"), {"vid": view, "flg": 0, "z": [], "xy": [], "av": whole}
    for question in task.questions:
        if question.kind == "boxes":
            for i, box in enumerate(row.values.get(question.id, ())):
                x0, y0, x1, y1 = box["box"]
                xy = [RECTANGLE, x0, y0, round(x1 - x0, 2), round(y1 - y0, 2)]
                label = str(question.values.index(box["label"]))
                yield (
                    _key(view, str(i)),
                    {"vid": view, "flg": 0, "z": [], "xy": xy, "av": {numbers[question.id]: label}},
                )


def _key(view: str, what: str) -> str:
    return f"{view}_{digest('via', view, what, size=4).hex()}"


def _via3_held(question: Question, value: Value) -> str:
    if question.kind == "several":
        return ",".join(str(question.values.index(word)) for word in value)
    return str(question.values.index(value)) if question.kind == "single" else str(value)


def read_via3(path: Path, task: Task) -> Iterator[Labelled]:
    """Yield the images of a project whose attributes have the names of the task's questions, and
    the words of its choices.
    """
    found = json_file(path, "a project of VIA 3")
    try:
        yield from _read(found, task, path)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise SoritesError(
            f"{path}: it is not a project of VIA 3 ({type(error).__name__}: {error})"
        ) from error


def _read(found: Mapping[str, Any], task: Task, path: Path) -> Iterator[Labelled]:
    asked = {
        number: (task.question(about["aname"]), about)
        for number, about in found["attribute"].items()
        if _is_asked(task, about)
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
            yield Labelled(image_name(file["fname"], path), [Answered(some)])


def _is_asked(task: Task, about: Mapping[str, Any]) -> bool:
    return any(question.id == about["aname"] for question in task.questions)


def _add(
    values: dict[str, Value], question: Question, about: Mapping[str, Any], held: str, xy: list[float]
) -> None:
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
