"""Projects of the VGG Image Annotator, versions 2 and 3: file attributes for questions, rectangles for boxes.

VIA 2 identifies an image by its name and file size, which is -1 if unknown, as for remote images.
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

UNKNOWN_SIZE = -1
# The region attribute with the label of a box.
LABEL = "label"
_TYPES = {"single": "radio", "several": "checkbox", "scale": "text", "text": "text"}


def write_via2(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write a project for VIA 2."""
    boxes = next((question for question in task.questions if question.kind == "boxes"), None)
    images = {f"{row.image}{UNKNOWN_SIZE}": _image(task, row, boxes) for row in rows}
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
        "img_height": 80,
        "rshape_fill": "none",
        "rshape_fill_opacity": 0.3,
        "rshape_stroke": "yellow",
        "rshape_stroke_width": 2,
        "show_region_shape": True,
        "show_image_policy": "all",
    }
    image = {
        "region_label": "__via_region_id__",
        "region_color": "__via_default_region_color__",
        "region_label_font": "10px Sans",
        "on_image_annotation_editor_placement": "NEAR_REGION",
    }
    ui = {"annotation_editor_height": 25, "annotation_editor_fontsize": 0.8, "leftsidebar_width": 18}
    core = {"buffer_size": 18, "filepath": {}, "default_filepath": ""}
    return {"ui": {**ui, "image_grid": grid, "image": image}, "core": core, "project": {"name": name}}


def _attribute(question: Question, kind: str) -> dict[str, Any]:
    attribute: dict[str, Any] = {"type": kind, "description": question.ask}
    if kind == "text":
        return {**attribute, "default_value": ""}
    return {
        **attribute,
        "options": {choice.value: choice.shown for choice in question.choices},
        "default_options": {},
    }


def _image(task: Task, row: Labelled, boxes: Question | None) -> dict[str, Any]:
    attributes = {
        q.id: _via2_value(q, row.values[q.id])
        for q in task.questions
        if q.kind != "boxes" and q.id in row.values
    }
    regions = [] if boxes is None else [_region(box) for box in row.values.get(boxes.id, ())]
    return {"filename": row.image, "size": UNKNOWN_SIZE, "regions": regions, "file_attributes": attributes}


def _via2_value(question: Question, value: Value) -> Any:
    return dict.fromkeys(value, True) if question.kind == "several" else str(value)


def _region(box: Mapping[str, Any]) -> dict[str, Any]:
    x0, y0, x1, y1 = box["box"]
    shape = {"name": "rect", "x": x0, "y": y0, "width": round(x1 - x0, 2), "height": round(y1 - y0, 2)}
    return {"shape_attributes": shape, "region_attributes": {LABEL: box["label"]}}


def read_via2(path: Path, task: Task) -> Iterator[Labelled]:
    """Yield the images with answers of a VIA 2 project, or of its exported annotations."""
    content = json_file(path, "a project of VIA 2")
    images = content.get("_via_img_metadata", content) if isinstance(content, dict) else None
    if not isinstance(images, dict) or not all(
        isinstance(image, dict) and "filename" in image for image in images.values()
    ):
        raise SoritesError(f"{path}: expected a VIA 2 project with _via_img_metadata")
    for image in images.values():
        name = image_name(image["filename"], path)
        try:
            values = _values(task, image)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SoritesError(
                f"{path}, {name}: not a VIA annotation ({type(error).__name__}: {error})"
            ) from error
        if values:
            yield Labelled(name, [Answered(values)])


def _values(task: Task, image: Mapping[str, Any]) -> dict[str, Value]:
    attributes, values = image.get("file_attributes") or {}, {}
    for question in task.questions:
        if question.kind == "boxes":
            values[question.id] = [_box(region) for region in _regions(image)]
        elif attributes.get(question.id) not in (None, "", {}):
            values[question.id] = _value(question, attributes[question.id])
    return values


def _regions(image: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the rectangles of an image. VIA stores regions as a list or, in older files, by number."""
    regions = image.get("regions") or []
    all_regions = list(regions.values()) if isinstance(regions, Mapping) else regions
    return [region for region in all_regions if region["shape_attributes"]["name"] == "rect"]


def _value(question: Question, stored: Any) -> Value:
    if question.kind == "several":
        return sorted(word for word, on in stored.items() if on)
    return int(stored) if question.kind == "scale" else stored


def _box(region: Mapping[str, Any]) -> dict[str, Any]:
    shape = region["shape_attributes"]
    x, y, width, height = (float(shape[key]) for key in ("x", "y", "width", "height"))
    return {
        "box": [x, y, round(x + width, 2), round(y + height, 2)],
        "label": region["region_attributes"][LABEL],
    }


# VIA 3. Options are stored by number.


# VIA's codes for attributes of a whole file, and of a region.
FILE_ANCHOR, REGION_ANCHOR = "FILE1_Z0_XY0", "FILE1_Z0_XY1"
TEXT, CHECKBOX, RADIO = 1, 2, 3
RECTANGLE = 2
IMAGE, LOCAL = 2, 1
_VIA3_TYPES = {"single": RADIO, "several": CHECKBOX, "scale": TEXT, "text": TEXT, "boxes": RADIO}


def write_via3(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write a project for VIA 3."""
    numbers = {question.id: str(i) for i, question in enumerate(task.questions, 1)}
    files = {
        str(i): {"fid": str(i), "fname": row.image, "type": IMAGE, "loc": LOCAL, "src": ""}
        for i, row in enumerate(rows, 1)
    }
    metadata = {
        key: entry for i, row in enumerate(rows, 1) for key, entry in _entries(task, numbers, str(i), row)
    }
    project = {
        "pid": "__VIA_PROJECT_ID__",
        "rev": "__VIA_PROJECT_REV_ID__",
        "rev_timestamp": "__VIA_PROJECT_REV_TIMESTAMP__",
        "pname": task.name,
        "creator": "Sorites",
        "created": int(time.time() * 1000),
        "data_format_version": "3.1.1",
        "vid_list": list(files),
    }
    box_attribute = next(
        (numbers[question.id] for question in task.questions if question.kind == "boxes"), ""
    )
    ui = {
        "file_content_align": "center",
        "file_metadata_editor_visible": True,
        "spatial_metadata_editor_visible": True,
        "spatial_region_label_attribute_id": box_attribute,
    }
    content = {
        "project": project,
        "config": {"file": {"loc_prefix": dict.fromkeys("1234", "")}, "ui": ui},
        "attribute": {numbers[question.id]: _via3_attribute(question) for question in task.questions},
        "file": files,
        "metadata": metadata,
        "view": {key: {"fid_list": [key]} for key in files},
    }
    write_bytes((json.dumps(content, ensure_ascii=False) + "\n").encode(), out)
    return len(rows)


def _via3_attribute(question: Question) -> dict[str, Any]:
    kind = _VIA3_TYPES[question.kind]
    options = {} if kind == TEXT else {str(i): value for i, value in enumerate(question.values)}
    anchor = REGION_ANCHOR if question.kind == "boxes" else FILE_ANCHOR
    return {
        "aname": question.id, "anchor_id": anchor, "type": kind, "desc": question.ask, "options": options,
        "default_option_id": "",
    }  # fmt: skip


def _entries(
    task: Task, numbers: Mapping[str, str], view: str, row: Labelled
) -> Iterator[tuple[str, dict[str, Any]]]:
    file_values = {
        numbers[q.id]: _via3_value(q, row.values[q.id])
        for q in task.questions
        if q.kind != "boxes" and q.id in row.values
    }
    if file_values:
        yield _key(view, "whole"), {"vid": view, "flg": 0, "z": [], "xy": [], "av": file_values}
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


def _via3_value(question: Question, value: Value) -> str:
    if question.kind == "several":
        return ",".join(str(question.values.index(word)) for word in value)
    return str(question.values.index(value)) if question.kind == "single" else str(value)


def read_via3(path: Path, task: Task) -> Iterator[Labelled]:
    """Yield the images of a VIA 3 project whose attribute names and options match the task's questions."""
    content = json_file(path, "a project of VIA 3")
    try:
        yield from _read(content, task, path)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise SoritesError(f"{path}: not a VIA 3 project ({type(error).__name__}: {error})") from error


def _read(content: Mapping[str, Any], task: Task, path: Path) -> Iterator[Labelled]:
    questions = {
        number: (task.question(attribute["aname"]), attribute)
        for number, attribute in content["attribute"].items()
        if any(question.id == attribute["aname"] for question in task.questions)
    }
    boxes = [question.id for question in task.questions if question.kind == "boxes"]
    values: dict[str, dict[str, Value]] = {view: {name: [] for name in boxes} for view in content["view"]}
    for entry in content["metadata"].values():
        for number, stored in entry["av"].items():
            if number in questions and stored != "":
                _add(values[str(entry["vid"])], *questions[number], stored, entry["xy"])
    for view, view_values in values.items():
        file = content["file"][str(content["view"][view]["fid_list"][0])]
        if view_values:
            yield Labelled(image_name(file["fname"], path), [Answered(view_values)])


def _add(
    values: dict[str, Value], question: Question, attribute: Mapping[str, Any], stored: str, xy: list[float]
) -> None:
    """Add the value of one metadata entry. Options are numbers in the file and words here."""
    if question.kind == "boxes":
        if xy and xy[0] == RECTANGLE:
            x, y, width, height = (float(number) for number in xy[1:5])
            box = [x, y, round(x + width, 2), round(y + height, 2)]
            values[question.id].append({"box": box, "label": attribute["options"][stored]})
    elif question.kind == "several":
        values[question.id] = sorted(attribute["options"][number] for number in stored.split(",") if number)
    elif question.kind == "single":
        values[question.id] = attribute["options"][stored]
    else:
        values[question.id] = int(stored) if question.kind == "scale" else stored
