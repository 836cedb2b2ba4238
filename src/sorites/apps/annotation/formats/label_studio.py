"""Label Studio's JSON: a list of tasks with annotations, and beside it the labelling configuration
that fits it.

Choices, ratings, texts and rectangles are results of the controls named by question; rectangles are
in percent of the image. The key ``image`` of a task's data holds the name that the image has
here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import quoteattr

from sorites.apps.annotation.formats.rows import Answered, Labelled, image_name
from sorites.apps.annotation.task import Question, Task
from sorites.apps.annotation.values import Value
from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.io.files import write_bytes
from sorites.io.readers import json_file

LOCAL = "/data/local-files/?d="
IMAGE = "image"


def write(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write the tasks to a JSON file, and the configuration to an XML file of the same name."""
    made = [_task(task, number, row) for number, row in enumerate(rows, 1)]
    write_bytes((json.dumps(made, indent=1, ensure_ascii=False) + "\n").encode(), out)
    write_bytes(configuration(task).encode(), out.with_suffix(".xml"))
    return len(rows)


def _task(task: Task, number: int, row: Labelled) -> dict[str, Any]:
    facts = {
        key: value
        for key, value in row.facts.items()
        if value is not None and key not in ("width", "height", "image")
    }
    annotations = [_annotation(task, number * 1000 + i, row, one) for i, one in enumerate(row.answers, 1)]
    data = {IMAGE: f"{LOCAL}{row.image}", "image": row.image, **facts}
    return {"id": number, "data": data, "annotations": annotations, "predictions": []}


def _annotation(task: Task, number: int, row: Labelled, one: Answered) -> dict[str, Any]:
    results = [
        result for q in task.questions if q.id in one.values for result in _results(q, one.values[q.id], row)
    ]
    made: dict[str, Any] = {
        "id": number,
        "result": results,
        "was_cancelled": False,
        "ground_truth": False,
        "lead_time": one.seconds,
    }
    if one.annotator:
        made["completed_by"] = {"email": one.annotator}
    return made


def _results(question: Question, value: Value, row: Labelled) -> Iterator[dict[str, Any]]:
    base = {"from_name": question.id, "to_name": IMAGE, "origin": "manual"}
    if question.kind == "boxes":
        for i, box in enumerate(value):
            yield {
                "id": _id(row, question, i),
                **base,
                "type": "rectanglelabels",
                **_rectangle(box, *row.size()),
            }
        return
    kind, held = {
        "single": ("choices", {"choices": [value]}),
        "several": ("choices", {"choices": value}),
        "scale": ("number", {"number": value}),
        "text": ("textarea", {"text": [value]}),
    }[question.kind]
    yield {"id": _id(row, question, 0), **base, "type": kind, "value": held}


def _id(row: Labelled, question: Question, number: int) -> str:
    return digest("label studio", row.image, question.id, str(number), size=5).hex()


def _rectangle(box: Mapping[str, Any], width: int, height: int) -> dict[str, Any]:
    x0, y0, x1, y1 = box["box"]
    corner = {
        "x": 100 * x0 / width,
        "y": 100 * y0 / height,
        "width": 100 * (x1 - x0) / width,
        "height": 100 * (y1 - y0) / height,
    }
    value = {**corner, "rotation": 0, "rectanglelabels": [box["label"]]}
    return {"original_width": width, "original_height": height, "image_rotation": 0, "value": value}


def configuration(task: Task) -> str:
    """Return the labelling configuration of a task: one control per question."""
    controls = "\n".join(_control(question) for question in task.questions)
    return f'<View>\n  <Image name="{IMAGE}" value="$image"/>\n{controls}\n</View>\n'


def _control(question: Question) -> str:
    head = f"  <Header value={quoteattr(question.ask)}/>\n  "
    need = "" if question.optional or question.kind == "boxes" else ' required="true"'
    names = f'name="{question.id}" toName="{IMAGE}"'
    if question.kind == "scale":
        return f'{head}<Number {names} min="{question.low}" max="{question.high}" step="1"{need}/>'
    if question.kind == "text":
        return f"{head}<TextArea {names}{need}/>"
    tag, inner = ("RectangleLabels", "Label") if question.kind == "boxes" else ("Choices", "Choice")
    how = (
        ""
        if question.kind == "boxes"
        else f' choice="{"multiple" if question.kind == "several" else "single"}"'
    )
    words = "".join(f"\n    <{inner} value={quoteattr(value)}/>" for value in question.values)
    return f"{head}<{tag} {names}{how}{need}>{words}\n  </{tag}>"


def read(path: Path, task: Task) -> Iterator[Labelled]:
    """Yield the images of an export of Label Studio (JSON, not JSON-MIN) with their annotations,
    cancelled ones left out.
    """
    found = json_file(path, "a list of tasks, as Label Studio exports it")
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise SoritesError(f"{path}: wanted a list of tasks, as Label Studio exports it")
    for number, one in enumerate(found, 1):
        where = f"{path}, task {number}"
        try:
            answers, size = _answers(task, one.get("annotations") or [])
            data = one.get("data") or {}
            name = str(data["image"]) if data.get("image_id") else image_name(_name(data), where)
        except (KeyError, TypeError, AttributeError, ValueError, ZeroDivisionError) as error:
            raise SoritesError(
                f"{where}: it is not what Label Studio writes ({type(error).__name__}: {error})"
            ) from error
        if answers:
            facts = {key: data.get(key) for key in ("image_id", "sample_id", "class", "shift", "severity")}
            yield Labelled(name, answers, *size, facts)


def _name(data: Mapping[str, Any]) -> str:
    """Return the name of a task's image: ours if it is there, else what its address ends in."""
    if "image" in data:
        return str(data["image"])
    address = urlsplit(str(data[IMAGE]))
    local = parse_qs(address.query).get("d")
    return local[0] if local else address.path.lstrip("/")


def _answers(
    task: Task, annotations: Sequence[Mapping[str, Any]]
) -> tuple[list[Answered], tuple[int | None, int | None]]:
    found, size = [], (None, None)
    for one in annotations:
        if one.get("was_cancelled"):
            continue
        values, size = _values(task, one["result"], size)
        by = one.get("completed_by")
        name = (
            by.get("email") or str(by.get("id", ""))
            if isinstance(by, Mapping)
            else f"label studio {by}"
            if by
            else ""
        )
        found.append(Answered(values, name, one.get("lead_time")))
    return found, size


def _values(
    task: Task, results: Sequence[Mapping[str, Any]], size: tuple[Any, Any]
) -> tuple[dict[str, Value], tuple[Any, Any]]:
    asked = {question.id: question for question in task.questions}
    values: dict[str, Value] = {question.id: [] for question in task.questions if question.kind == "boxes"}
    for result in results:
        question = asked.get(result.get("from_name", ""))
        if question is None:
            continue
        held = result["value"]
        if question.kind == "boxes":
            size = (int(result["original_width"]), int(result["original_height"]))
            values[question.id].append(_box(held, *size))
        elif question.kind in ("single", "several"):
            values[question.id] = held["choices"][0] if question.kind == "single" else sorted(held["choices"])
        elif question.kind == "scale":
            values[question.id] = int(held["number"] if "number" in held else held["rating"])
        else:
            values[question.id] = "\n".join(held["text"]) if isinstance(held["text"], list) else held["text"]
    return values, size


def _box(held: Mapping[str, Any], width: int, height: int) -> dict[str, Any]:
    x, y, across, down = (float(held[key]) for key in ("x", "y", "width", "height"))
    corners = [x * width, y * height, (x + across) * width, (y + down) * height]
    return {"box": [round(corner / 100, 2) for corner in corners], "label": held["rectanglelabels"][0]}
