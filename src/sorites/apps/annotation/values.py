"""Answers: which ones a question takes, when two are the same, and how near one comes to what is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sorites.apps.annotation.task import FREE, LONGEST_TEXT, NONE, Question, Task
from sorites.core.errors import SoritesError

# A word, a sorted list of words, a number of a scale, a text, or boxes: ``[{"box": [x0, y0, x1,
# y1], "label": word}]``.
Value = Any
MOST_BOXES = 500
# The most pixels to a side in which a box may lie.
LARGEST = 1e6
# The intersection over union from which two boxes are one.
OVERLAP = 0.5


def checked(task: Task, given: object) -> dict[str, Value]:
    """Return the answers to a task's questions as they are kept; a question without an answer must
    be optional.
    """
    if not isinstance(given, Mapping):
        raise SoritesError(f"wanted an answer to each question, got {type(given).__name__}")
    ids = {question.id for question in task.questions}
    if others := sorted(str(key)[:40] for key in given if key not in ids):
        raise SoritesError(f"there is no question {others[0]!r}")
    found = {q.id: value for q in task.questions if (value := checked_value(q, given.get(q.id))) is not None}
    missing = [q.id for q in task.questions if q.id not in found and not q.optional]
    if missing:
        raise SoritesError(f"the question {missing[0]} has no answer")
    return found


def checked_value(question: Question, value: object) -> Value:
    """Return one answer as it is kept, None for none; anything that the question does not take is
    an error.
    """
    if value is None or (question.kind in ("several", "text") and not value):
        return None
    made = _MAKERS[question.kind](question, value)
    if made is None:
        raise SoritesError(f"question {question.id}: {wanted(question)}, got {str(value)[:80]!r}")
    return made


def wanted(question: Question) -> str:
    """Say which answers a question takes."""
    words = ", ".join(question.values)
    return {
        "single": f"wanted one of {words}",
        "several": f"wanted some of {words}",
        "scale": f"wanted a whole number from {question.low} to {question.high}",
        "text": f"wanted a text of at most {LONGEST_TEXT} characters",
        "boxes": f"wanted boxes with x0 < x1, y0 < y1 and a label of {words}",
    }[question.kind]


def _single(question: Question, value: object) -> str | None:
    return value if isinstance(value, str) and value in question.values else None


def _several(question: Question, value: object) -> list[str] | None:
    """Sorted, each once; "none" does not stand beside others."""
    if not isinstance(value, list) or not all(isinstance(v, str) and v in question.values for v in value):
        return None
    made = sorted(set(value))
    return None if NONE in made and len(made) > 1 else made


def _scale(question: Question, value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and question.low <= value <= question.high else None  # type: ignore[operator, return-value]


def _text(question: Question, value: object) -> str | None:
    return value.strip() if isinstance(value, str) and len(value) <= LONGEST_TEXT else None


def _boxes(question: Question, value: object) -> list[dict[str, Any]] | None:
    if not isinstance(value, list) or len(value) > MOST_BOXES:
        return None
    made = [_box(question, one) for one in value]
    return None if None in made else [one for one in made if one is not None]


def _box(question: Question, one: object) -> dict[str, Any] | None:
    if not isinstance(one, Mapping) or one.get("label") not in question.values:
        return None
    corners = one.get("box")
    if not isinstance(corners, list) or len(corners) != 4 or not all(_is_number(c) for c in corners):
        return None
    x0, y0, x1, y1 = (round(float(c), 2) for c in corners)
    return {"box": [x0, y0, x1, y1], "label": one["label"]} if x0 < x1 and y0 < y1 else None


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and 0 <= value <= LARGEST
    )


_MAKERS = {"single": _single, "several": _several, "scale": _scale, "text": _text, "boxes": _boxes}


def same(question: Question, one: Value, other: Value) -> bool:
    """Return whether two answers say the same: equal ones, or boxes that pair off without a rest."""
    return nearness(question, one, other) == 1.0 if question.kind == "boxes" else bool(one == other)


def nearness(question: Question, one: Value, other: Value) -> float:
    """Return 1 for the same answer and 0 for another; of boxes, the F1 of pairs of one label that
    overlap by half or more.
    """
    if question.kind != "boxes":
        return float(one == other)
    if not one and not other:
        return 1.0
    return 2 * pairs(one or [], other or []) / (len(one or []) + len(other or []))


def pairs(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> int:
    """Count boxes that pair off, those with the largest overlap first."""
    near = [
        (overlap(a["box"], b["box"]), i, j)
        for i, a in enumerate(some)
        for j, b in enumerate(others)
        if a["label"] == b["label"]
    ]
    left, right = set(range(len(some))), set(range(len(others)))
    for size, i, j in sorted(near, reverse=True):
        if size >= OVERLAP and i in left and j in right:
            left.remove(i)
            right.remove(j)
    return len(some) - len(left)


def overlap(one: list[float], other: list[float]) -> float:
    """Return the intersection over union of two boxes."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    both = (one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1])
    return width * height / (both - width * height)


def rightness(task: Task, given: Mapping[str, Value], known: Mapping[str, Value]) -> float | None:
    """Return the mean nearness of answers to the known ones, over the questions with one; None
    where there is none to compare.

    Free texts are not compared.
    """
    asked = [q for q in task.questions if q.id in known and q.kind not in FREE[:1]]
    return sum(nearness(q, given.get(q.id), known[q.id]) for q in asked) / len(asked) if asked else None
