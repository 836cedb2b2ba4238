"""Which answers a question takes, and how near two come."""

from __future__ import annotations

from typing import Any

import pytest

from sorites.apps.annotation.task import Question
from sorites.apps.annotation.values import nearness, overlap, same, validate_value
from sorites.core.errors import SoritesError

CHOICES = ({"value": "cat"}, {"value": "dog"}, {"value": "none"})


def question(kind: str) -> Question:
    return Question.model_validate(
        {"id": "q", "ask": "?", "kind": kind, "choices": () if kind in ("scale", "text") else CHOICES}
    )


def box(*corners: float, label: str = "cat") -> dict[str, Any]:
    return {"box": list(corners), "label": label}


@pytest.mark.parametrize(
    ("kind", "given", "kept"),
    [
        ("single", "cat", "cat"),
        ("several", ["dog", "cat", "dog"], ["cat", "dog"]),
        ("several", [], None),
        ("scale", 5, 5),
        ("text", "  a word ", "a word"),
        ("boxes", [box(1, 2.004, 3, 4)], [box(1.0, 2.0, 3.0, 4.0)]),
        ("boxes", [], []),
    ],
)
def test_answers_are_kept_in_one_spelling(kind: str, given: Any, kept: Any) -> None:
    assert validate_value(question(kind), given) == kept


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("single", "bird"), ("single", ["cat"]), ("single", 1), ("several", ["cat", "none"]), ("several", ["bird"]),
        ("several", "cat"),
        ("scale", 6), ("scale", True), ("scale", 2.5), ("text", "x" * 2001), ("text", 3), ("boxes", [box(3, 2, 1, 4)]),
        ("boxes", [box(0, 0, float("nan"), 4)]), ("boxes", [box(0, 0, 1, 1, label="bird")]), ("boxes", [box(0, 0, 1)]),
        ("boxes", [box(-1, 0, 1, 1)]), ("boxes", [box(0, 0, 1, 1)] * 501), ("boxes", {"box": 1}),
    ],
)  # fmt: skip
def test_other_answers_are_refused_with_what_is_wanted(kind: str, given: Any) -> None:
    with pytest.raises(SoritesError, match="question q"):
        validate_value(question(kind), given)


def test_overlap_is_the_share_of_the_union() -> None:
    assert overlap([0, 0, 2, 2], [1, 0, 3, 2]) == pytest.approx(1 / 3)
    assert overlap([0, 0, 1, 1], [1, 0, 2, 1]) == 0


def test_boxes_are_the_same_when_they_pair_off() -> None:
    asked = question("boxes")
    assert same(asked, [box(0, 0, 10, 10), box(20, 0, 30, 10)], [box(21, 0, 30, 10), box(0, 0, 10, 9)])
    assert nearness(asked, [box(0, 0, 10, 10)], [box(0, 0, 10, 10), box(50, 50, 60, 60)]) == pytest.approx(
        2 / 3
    )
    assert nearness(asked, [box(0, 0, 10, 10)], [box(0, 0, 10, 10, label="dog")]) == 0
    assert nearness(asked, [], []) == 1
