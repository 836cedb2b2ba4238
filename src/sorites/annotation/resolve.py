"""Choose one answer from those of several people, by the rule that a task names.

``better_check``: the answer of the person who was better on the check pictures of that batch; if equal, on all check and
qualification pictures; if equal, of the one who answered first (extends Kattakinda & Feizi, "FOCUS", appendix B).
``at_least_one``: the strongest value that anybody gave (Dünkel et al., "CNS-Bench", section I: out of class if one says so, in
class if one of the others sees it clearly).
``majority``: what most gave; if equal, as ``better_check``. From three answers on, as where a third was asked because two differ,
``better_check`` also takes what most gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sorites.annotation.task import Question, Task
from sorites.annotation.values import Value, nearness, same

ENOUGH = 3
"""The number of answers from which the majority counts for more than who was better."""


@dataclass(frozen=True)
class Given:
    """The answers of one person to the questions of one picture, and how good that person was on known pictures."""

    annotator: str
    values: dict[str, Value]
    batch_check: float | None = None
    all_checks: float | None = None
    order: int = 0
    """The place of the click among all clicks."""
    seconds: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Chosen:
    """One question's chosen answer, whose it is, and how many of how many gave the same."""

    question: str
    value: Value
    annotator: str
    agree: int
    n: int


def chosen(task: Task, given: Sequence[Given]) -> list[Chosen]:
    """Return the chosen answer to each question that anybody answered."""
    found = []
    for question in task.questions:
        some = [one for one in ranked(given) if question.id in one.values]
        if some:
            best = _RULES[task.rule_of(question)](question, some)
            value = best.values[question.id]
            agree = sum(same(question, one.values[question.id], value) for one in some)
            found.append(Chosen(question.id, value, best.annotator, agree, len(some)))
    return found


def ranked(given: Sequence[Given]) -> list[Given]:
    """Return the answers in the order of their weight: by the checks of the batch, by all checks, then the earlier."""
    return sorted(given, key=lambda one: (-(one.batch_check or 0.0), -(one.all_checks or 0.0), one.order))


def _better_check(question: Question, some: Sequence[Given]) -> Given:
    return _majority(question, some) if len(some) >= ENOUGH else some[0]


def _majority(question: Question, some: Sequence[Given]) -> Given:
    """The answer that is nearest to all, which is what most gave; of equals the one of most weight."""
    values = [one.values[question.id] for one in some]
    support = [sum(nearness(question, value, other) for other in values) for value in values]
    return some[support.index(max(support))]


def _at_least_one(question: Question, some: Sequence[Given]) -> Given:
    """The strongest value that anybody gave; where the question names none, what most gave."""
    for value in question.first:
        for one in some:
            if one.values[question.id] == value:
                return one
    return _majority(question, some)


_RULES = {"better_check": _better_check, "majority": _majority, "at_least_one": _at_least_one}


def differ(task: Task, given: Sequence[Given]) -> bool:
    """Return whether people gave different answers to a question, free texts aside."""
    for question in task.questions:
        values = [one.values.get(question.id) for one in given]
        if question.kind != "text" and any(not same(question, value, values[0]) for value in values[1:]):
            return True
    return False
