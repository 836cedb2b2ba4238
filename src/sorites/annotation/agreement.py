"""Measure how far people agree, per question, and how often they are right on known pictures.

Words are compared as nominal values and scales as interval ones. A question with several words is compared word by word, each as
yes or no. Boxes have the mean F1 of pairs of people alone.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites.annotation.answers import judged
from sorites.annotation.coefficients import Array, alpha, alpha_weighed, kappa, kappa_weighed, resampled
from sorites.annotation.quality import known_answers
from sorites.annotation.store import opened, task_of
from sorites.annotation.task import Question, Task
from sorites.annotation.values import Value, nearness
from sorites.metrics._intervals import wilson_interval

Answers = Mapping[str, Mapping[str, Value]]
"""The answers to one question by picture and person."""
COLUMNS = {
    "question": pl.String, "word": pl.String, "n": pl.Int64, "same": pl.Float64,
    **dict.fromkeys(("alpha", "alpha_low", "alpha_high", "kappa", "kappa_low", "kappa_high"), pl.Float64),
}  # fmt: skip


def agreement(path: Path) -> pl.DataFrame:
    """Return per question (and per word of several) the share of pairs that gave the same, alpha and kappa with intervals, and n.

    The n pictures that two or more people answered count; known pictures do not.
    """
    with opened(path) as database:
        task, answers = task_of(database), _by_question(database)
    rows = [row for question in task.questions for row in _rows(question, answers.get(question.id, {}))]
    return pl.DataFrame([{name: row.get(name) for name in COLUMNS} for row in rows], schema=COLUMNS)


def _by_question(database: sqlite3.Connection) -> dict[str, dict[str, dict[str, Value]]]:
    found: dict[str, dict[str, dict[str, Value]]] = {}
    for one in judged(database):
        for given in one.given:
            for question, value in given.values.items():
                found.setdefault(question, {}).setdefault(one.facts["picture"], {})[given.annotator] = value
    return found


def _rows(question: Question, answers: Answers) -> list[dict[str, Any]]:
    several = {picture: given for picture, given in answers.items() if len(given) >= 2}
    if question.kind == "text" or not several:
        return []
    facts = {"question": question.id, "n": len(several), "same": _same(question, several)}
    if question.kind == "boxes":
        return [facts]
    if question.kind == "several":
        given = {word for some in several.values() for value in some.values() for word in value}
        words = [word for word in question.values if word in given]
        return [facts, *(_word(facts, several, word) for word in words)]
    place = {value: float(i) for i, value in enumerate(question.values)}
    scale = question.kind == "scale"
    return [{**facts, **_numbers(codes_of(several, float if scale else place.__getitem__), scale)}]


def _word(facts: Mapping[str, Any], several: Answers, word: str) -> dict[str, Any]:
    codes = codes_of(several, lambda value: float(word in value))
    pairs = [(word in a) == (word in b) for given in several.values() for a, b in combinations(given.values(), 2)]
    return {**facts, "word": word, "same": sum(pairs) / len(pairs), **_numbers(codes, False)}


def _same(question: Question, several: Answers) -> float:
    """Return the mean nearness of pairs of answers: the share that is the same, or of boxes the mean F1."""
    pairs = [nearness(question, a, b) for given in several.values() for a, b in combinations(given.values(), 2)]
    return sum(pairs) / len(pairs)


def codes_of(answers: Answers, code: Callable[[Value], float]) -> Array:
    """Return answers as numbers: one row per person, one column per picture, NaN where somebody gave none."""
    names = {name: i for i, name in enumerate(sorted({name for given in answers.values() for name in given}))}
    made = np.full((len(names), len(answers)), np.nan)
    for column, given in enumerate(answers.values()):
        for name, value in given.items():
            made[names[name], column] = code(value)
    return made


def _numbers(codes: Array, scale: bool) -> dict[str, float | None]:
    n = codes.shape[1]
    alphas = (alpha(codes, scale), *resampled(alpha_weighed(codes, scale), n))
    kappas = (kappa(codes), *resampled(kappa_weighed(codes), n))
    names = [f"{name}{end}" for name in ("alpha", "kappa") for end in ("", "_low", "_high")]
    return {name: None if math.isnan(value) else value for name, value in zip(names, (*alphas, *kappas), strict=True)}


def against_known(path: Path) -> pl.DataFrame:
    """Return for each person and question the share right of the known pictures that they answered, with its interval and n."""
    with opened(path) as database:
        rows = _scores(database, task_of(database))
    frame = pl.DataFrame(rows, schema={"annotator": pl.String, "question": pl.String, "score": pl.Float64}, orient="row")
    means = frame.group_by("annotator", "question", maintain_order=True).agg(n=pl.len(), right=pl.col("score").mean())
    return means.with_columns(**wilson_interval(pl.col("right"), pl.col("n")))


def _scores(database: sqlite3.Connection, task: Task) -> list[tuple[str, str, float]]:
    known = known_answers(database)
    query = """SELECT w.name, a.picture, s.question, s.value FROM answers s JOIN assignments a ON a.id = s.assignment
      JOIN annotators w ON w.id = a.annotator WHERE a.role IN ('check', 'qualification') ORDER BY w.id, a.id"""
    found = []
    for row in database.execute(query):
        question, told = task.question(row["question"]), known.get(row["picture"], {})
        if question.id in told and question.kind != "text":
            found.append((row["name"], question.id, nearness(question, json.loads(row["value"]), told[question.id])))
    return found
