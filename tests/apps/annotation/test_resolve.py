"""The rules that make one answer of several, on cases whose outcome the papers' sentences give."""

from __future__ import annotations

from typing import Any

import pytest

from sorites.apps.annotation.answers import Given, chosen, differ
from sorites.apps.annotation.task import Task, load


def given(value: Any, batch: float | None = None, all_checks: float | None = None, order: int = 0) -> Given:
    return Given(f"{value} {order}", {"q": value}, batch, all_checks, order)


def task(rule: str, **more: Any) -> Task:
    choices = [{"value": "a"}, {"value": "b"}, {"value": "c"}]
    question = {"id": "q", "ask": "?", "choices": choices, "first": ["b", "a", "c"], **more}
    return Task.model_validate(
        {"name": "t", "title": "t", "instructions": "i", "rule": rule, "questions": [question]}
    )


def value(rule: str, *some: Given) -> Any:
    return chosen(task(rule), some)[0].value


def test_the_better_on_the_checks_of_the_batch_wins() -> None:
    assert value("better_check", given("a", 0.5, 1.0, 1), given("b", 1.0, 0.1, 2)) == "b"


def test_equal_checks_go_by_all_checks_and_then_by_who_was_first() -> None:
    assert value("better_check", given("a", 0.5, 0.6, 1), given("b", 0.5, 0.8, 2)) == "b"
    assert value("better_check", given("b", 0.5, 0.8, 2), given("a", 0.5, 0.8, 1)) == "a"
    assert value("better_check", given("b", None, None, 2), given("a", None, None, 1)) == "a"


def test_of_three_the_two_who_agree_win() -> None:
    assert (
        value("better_check", given("a", 1.0, 1.0, 1), given("b", 0.0, 0.0, 2), given("b", 0.0, 0.0, 3))
        == "b"
    )
    assert value("majority", given("a", 0.0, 0.0, 1), given("b", 1.0, 1.0, 2), given("a", 0.0, 0.0, 3)) == "a"


def test_majority_of_two_who_differ_goes_by_checks() -> None:
    assert value("majority", given("a", 0.2, 0.2, 1), given("b", 0.9, 0.9, 2)) == "b"


@pytest.mark.parametrize(
    ("one", "other", "outcome"),
    [
        ("class", "not class", "not class"), ("not class", "partly", "not class"), ("partly", "class", "class"),
        ("partly", "partly", "partly"), ("class", "class", "class"),
    ],
)  # fmt: skip
def test_out_of_class_if_one_says_so_and_in_class_if_one_of_the_others_sees_it_clearly(
    one: str, other: str, outcome: str
) -> None:
    in_class = load("in_class")[0]
    some = [Given(str(i), {"class": word}, 1.0 - i, 1.0 - i, i) for i, word in enumerate((one, other))]
    assert chosen(in_class, some)[0].value == outcome


def test_boxes_of_three_are_those_nearest_to_the_others() -> None:
    boxes = [[{"box": [x, 0, x + 10, 10], "label": "a"}] for x in (0, 1, 50)]
    some = [given(one, order=i) for i, one in enumerate(boxes)]
    assert chosen(task("better_check", kind="boxes"), some)[0].value in boxes[:2]


def test_a_choice_says_how_many_agree() -> None:
    found = chosen(task("majority"), [given("a", order=1), given("b", order=2), given("a", order=3)])[0]
    assert (found.agree, found.n) == (2, 3)


def test_texts_do_not_make_people_differ() -> None:
    words = Task.model_validate({
        "name": "t", "title": "t", "instructions": "i", "questions": [{"id": "q", "ask": "?", "kind": "text"}],
    })  # fmt: skip
    assert not differ(words, [given("one"), given("other")])
    assert differ(task("majority"), [given("a"), given("b")])
