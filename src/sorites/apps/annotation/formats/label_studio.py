"""Label Studio JSON: a list of tasks with annotations, plus the matching labelling configuration in XML.

Choices, numbers, texts and rectangles are results of controls named after the questions; rectangles are in
percent of the image. The key ``picture`` of a task's data is the name of the image in the labelling.
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
from sorites.sources.detection.boxes import oriented

LOCAL_PREFIX = "/data/local-files/?d="
IMAGE = "image"
# The key of the image's name in a task's data; ``image`` is the address that Label Studio displays.
NAME_KEY = "picture"


def write(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write the tasks to a JSON file, and the configuration to an XML file of the same name."""
    tasks = [_task(task, number, row) for number, row in enumerate(rows, 1)]
    write_bytes((json.dumps(tasks, indent=1, ensure_ascii=False) + "\n").encode(), out)
    write_bytes(configuration(task).encode(), out.with_suffix(".xml"))
    return len(rows)


def _task(task: Task, number: int, row: Labelled) -> dict[str, Any]:
    facts = {
        key: value
        for key, value in row.facts.items()
        if value is not None and key not in ("width", "height", "image")
    }
    annotations = [
        _annotation(task, number * 1000 + i, row, answer) for i, answer in enumerate(row.answers, 1)
    ]
    data = {IMAGE: f"{LOCAL_PREFIX}{row.image}", NAME_KEY: row.image, **facts}
    return {"id": number, "data": data, "annotations": annotations, "predictions": []}


def _annotation(task: Task, number: int, row: Labelled, answer: Answered) -> dict[str, Any]:
    results = [
        result
        for q in task.questions
        if q.id in answer.values
        for result in _results(q, answer.values[q.id], row)
    ]
    annotation: dict[str, Any] = {
        "id": number,
        "result": results,
        "was_cancelled": False,
        "ground_truth": False,
        "lead_time": answer.seconds,
    }
    if answer.annotator:
        annotation["completed_by"] = {"email": answer.annotator}
    return annotation


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
    kind, content = {
        "single": ("choices", {"choices": [value]}),
        "several": ("choices", {"choices": value}),
        "scale": ("number", {"number": value}),
        "text": ("textarea", {"text": [value]}),
    }[question.kind]
    yield {"id": _id(row, question, 0), **base, "type": kind, "value": content}


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
    required = "" if question.optional or question.kind == "boxes" else ' required="true"'
    names = f'name="{question.id}" toName="{IMAGE}"'
    if question.kind == "scale":
        return f'{head}<Number {names} min="{question.low}" max="{question.high}" step="1"{required}/>'
    if question.kind == "text":
        return f"{head}<TextArea {names}{required}/>"
    tag, inner = ("RectangleLabels", "Label") if question.kind == "boxes" else ("Choices", "Choice")
    choice = (
        ""
        if question.kind == "boxes"
        else f' choice="{"multiple" if question.kind == "several" else "single"}"'
    )
    words = "".join(f"\n    <{inner} value={quoteattr(value)}/>" for value in question.values)
    return f"{head}<{tag} {names}{choice}{required}>{words}\n  </{tag}>"


def read(path: Path, task: Task) -> Iterator[Labelled]:
    """Yield the images of a Label Studio export (JSON, not JSON-MIN), without cancelled annotations."""
    tasks = json_file(path, "a list of tasks, as Label Studio exports it")
    if not isinstance(tasks, list) or not all(isinstance(item, dict) for item in tasks):
        raise SoritesError(f"{path}: expected a list of tasks, as Label Studio exports it")
    for number, item in enumerate(tasks, 1):
        where = f"{path}, task {number}"
        try:
            answers, size = _answers(task, item.get("annotations") or [])
            data = item.get("data") or {}
            name = str(data[NAME_KEY]) if data.get("image_id") else image_name(_name(data), where)
        except SoritesError as error:
            raise SoritesError(f"{where}: {error}") from error
        except (KeyError, TypeError, AttributeError, ValueError, ZeroDivisionError) as error:
            raise SoritesError(
                f"{where}: not a Label Studio task ({type(error).__name__}: {error})"
            ) from error
        if answers:
            facts = {key: data.get(key) for key in ("image_id", "sample_id", "class", "shift", "severity")}
            yield Labelled(name, answers, *size, facts)


def _name(data: Mapping[str, Any]) -> str:
    """Return the name of a task's image: ours if present, otherwise from its address."""
    if NAME_KEY in data:
        return str(data[NAME_KEY])
    address = urlsplit(str(data[IMAGE]))
    local = parse_qs(address.query).get("d")
    return local[0] if local else address.path.lstrip("/")


def _answers(
    task: Task, annotations: Sequence[Mapping[str, Any]]
) -> tuple[list[Answered], tuple[int | None, int | None]]:
    answers, size = [], (None, None)
    for annotation in annotations:
        if annotation.get("was_cancelled"):
            continue
        values, size = _values(task, annotation["result"], size)
        author = annotation.get("completed_by")
        name = (
            author.get("email") or str(author.get("id", ""))
            if isinstance(author, Mapping)
            else f"label studio {author}"
            if author
            else ""
        )
        answers.append(Answered(values, name, annotation.get("lead_time")))
    return answers, size


def _values(
    task: Task, results: Sequence[Mapping[str, Any]], size: tuple[Any, Any]
) -> tuple[dict[str, Value], tuple[Any, Any]]:
    questions = {question.id: question for question in task.questions}
    values: dict[str, Value] = {question.id: [] for question in task.questions if question.kind == "boxes"}
    for result in results:
        question = questions.get(result.get("from_name", ""))
        if question is None:
            continue
        content = result["value"]
        if question.kind == "boxes":
            size = (int(result["original_width"]), int(result["original_height"]))
            values[question.id].append(_box(content, *size))
        elif question.kind in ("single", "several"):
            values[question.id] = (
                content["choices"][0] if question.kind == "single" else sorted(content["choices"])
            )
        elif question.kind == "scale":
            values[question.id] = int(content["number"] if "number" in content else content["rating"])
        else:
            values[question.id] = (
                "\n".join(content["text"]) if isinstance(content["text"], list) else content["text"]
            )
    return values, size


def _box(content: Mapping[str, Any], width: int, height: int) -> dict[str, Any]:
    if float(content.get("rotation") or 0) % 360:
        raise oriented(f"a rectangle is rotated by {float(content['rotation']):g} degrees")
    x, y, box_width, box_height = (float(content[key]) for key in ("x", "y", "width", "height"))
    corners = [x * width, y * height, (x + box_width) * width, (y + box_height) * height]
    return {"box": [round(corner / 100, 2) for corner in corners], "label": content["rectanglelabels"][0]}
