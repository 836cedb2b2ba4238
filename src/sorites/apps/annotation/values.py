"""Answers: validation, comparison, and accuracy against known answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sorites.apps.annotation.task import MAX_TEXT_LENGTH, NONE, OPEN_KINDS, Question, Task
from sorites.core.errors import SoritesError

# A choice, a sorted list of choices, a number, a text, or boxes: ``[{"box": [x0, y0, x1, y1], "label":
# value}]``.
Value = Any
MAX_BOXES = 500
# Maximum coordinate of a box in pixels.
MAX_COORDINATE = 1e6
# Minimum intersection over union of matching boxes.
MIN_IOU = 0.5


def validate_answers(task: Task, answers: object) -> dict[str, Value]:
    """Validate and normalize the answers to a task; only optional questions may be missing."""
    if not isinstance(answers, Mapping):
        raise SoritesError(f"expected an answer to each question, got {type(answers).__name__}")
    ids = {question.id for question in task.questions}
    if unknown := sorted(str(key)[:40] for key in answers if key not in ids):
        raise SoritesError(f"there is no question {unknown[0]!r}")
    values = {
        q.id: value for q in task.questions if (value := validate_value(q, answers.get(q.id))) is not None
    }
    missing = [q.id for q in task.questions if q.id not in values and not q.optional]
    if missing:
        raise SoritesError(f"the question {missing[0]} has no answer")
    return values


def validate_value(question: Question, value: object) -> Value:
    """Validate and normalize one answer; None means no answer."""
    if value is None or (question.kind in ("several", "text") and not value):
        return None
    normalized = _PARSERS[question.kind](question, value)
    if normalized is None:
        raise SoritesError(f"question {question.id}: expected {_expected(question)}, got {str(value)[:80]!r}")
    return normalized


def _expected(question: Question) -> str:
    """Describe the answers that a question accepts."""
    words = ", ".join(question.values)
    return {
        "single": f"one of {words}",
        "several": f"some of {words}",
        "scale": f"a whole number from {question.low} to {question.high}",
        "text": f"a text of at most {MAX_TEXT_LENGTH} characters",
        "boxes": f"boxes with x0 < x1, y0 < y1 and a label of {words}",
    }[question.kind]


def _single(question: Question, value: object) -> str | None:
    return value if isinstance(value, str) and value in question.values else None


def _several(question: Question, value: object) -> list[str] | None:
    """Return sorted unique choices; "none" excludes all others."""
    if not isinstance(value, list) or not all(isinstance(v, str) and v in question.values for v in value):
        return None
    choices = sorted(set(value))
    return None if NONE in choices and len(choices) > 1 else choices


def _scale(question: Question, value: object) -> int | None:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return value if is_integer and question.low <= value <= question.high else None  # type: ignore[operator, return-value]


def _text(question: Question, value: object) -> str | None:
    return value.strip() if isinstance(value, str) and len(value) <= MAX_TEXT_LENGTH else None


def _boxes(question: Question, value: object) -> list[dict[str, Any]] | None:
    if not isinstance(value, list) or len(value) > MAX_BOXES:
        return None
    boxes = [_box(question, box) for box in value]
    return None if None in boxes else [box for box in boxes if box is not None]


def _box(question: Question, box: object) -> dict[str, Any] | None:
    if not isinstance(box, Mapping) or box.get("label") not in question.values:
        return None
    corners = box.get("box")
    if not isinstance(corners, list) or len(corners) != 4 or not all(_is_number(c) for c in corners):
        return None
    x0, y0, x1, y1 = (round(float(c), 2) for c in corners)
    return {"box": [x0, y0, x1, y1], "label": box["label"]} if x0 < x1 and y0 < y1 else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_COORDINATE


_PARSERS = {"single": _single, "several": _several, "scale": _scale, "text": _text, "boxes": _boxes}


def same(question: Question, first: Value, second: Value) -> bool:
    """Return whether two answers are equal; boxes are equal if all of them match."""
    return nearness(question, first, second) == 1.0 if question.kind == "boxes" else bool(first == second)


def nearness(question: Question, first: Value, second: Value) -> float:
    """Return 1 for equal answers and 0 otherwise.

    For boxes the F1 of matches with equal label and IoU >= 0.5.
    """
    if question.kind != "boxes":
        return float(first == second)
    if not first and not second:
        return 1.0
    return 2 * pairs(first or [], second or []) / (len(first or []) + len(second or []))


def pairs(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> int:
    """Count matching boxes, greedily by overlap."""
    candidates = [
        (overlap(a["box"], b["box"]), i, j)
        for i, a in enumerate(first)
        for j, b in enumerate(second)
        if a["label"] == b["label"]
    ]
    free_first, free_second = set(range(len(first))), set(range(len(second)))
    for iou, i, j in sorted(candidates, reverse=True):
        if iou >= MIN_IOU and i in free_first and j in free_second:
            free_first.remove(i)
            free_second.remove(j)
    return len(first) - len(free_first)


def overlap(first: list[float], second: list[float]) -> float:
    """Return the intersection over union of two boxes."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = (first[2] - first[0]) * (first[3] - first[1]) + (second[2] - second[0]) * (second[3] - second[1])
    return width * height / (areas - width * height)


def mean_nearness(task: Task, answers: Mapping[str, Value], known: Mapping[str, Value]) -> float | None:
    """Return the mean nearness of answers to the known ones, ignoring free text.

    None if there is nothing to compare.
    """
    questions = [q for q in task.questions if q.id in known and q.kind not in OPEN_KINDS[:1]]
    return (
        sum(nearness(q, answers.get(q.id), known[q.id]) for q in questions) / len(questions)
        if questions
        else None
    )
