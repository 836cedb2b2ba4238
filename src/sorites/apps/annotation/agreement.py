"""Measure how far people agree, per question, and how often they are right on known images.

Words are compared as nominal values and scales as interval ones. A question with several words is
compared word by word, each as yes or no. Boxes have the mean F1 of pairs of people alone.
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
from numpy.typing import NDArray

from sorites.apps.annotation.answers import judged, known_answers
from sorites.apps.annotation.store import opened, task_of
from sorites.apps.annotation.task import Question, Task
from sorites.apps.annotation.values import Value, nearness
from sorites.metrics.intervals import wilson_interval

# Coefficients of agreement of any number of people: Krippendorff's alpha and Cohen's kappa, with
# intervals over images.


RESAMPLES = 2000
LEVEL = 0.95
# The most weights that are drawn at a time.
CELLS = 4_000_000
Array = NDArray[np.float64]
# From weights (one row per resample, one column per image) to a value per resample; NaN where
# nothing could differ.
Weighed = Callable[[Array], Array]


def alpha(codes: Array, interval: bool = False) -> float:
    """Return Krippendorff's alpha of codes: one row per person, one column per image, NaN where
    there is no answer.
    """
    return _once(alpha_weighed(codes, interval), codes)


def kappa(codes: Array) -> float:
    """Return the mean of Cohen's kappa over pairs of people, weighed by how many images both answered."""
    return _once(kappa_weighed(codes), codes)


def _once(weighed: Weighed, codes: Array) -> float:
    return float(weighed(np.ones((1, codes.shape[1])))[0]) if codes.shape[1] else float("nan")


def alpha_weighed(codes: Array, interval: bool = False) -> Weighed:
    """Return alpha as a function of weights: 1 less the disagreement seen over the one expected by chance."""
    values = np.unique(codes[~np.isnan(codes)])
    counts = (
        np.stack([(codes == value).sum(axis=0) for value in values], axis=1).astype(float)
        if values.size
        else None
    )
    if counts is None:
        return _nothing
    size = counts.sum(axis=1)
    counts[size < 2] = 0.0  # an image that one person answered says nothing
    size[size < 2] = 0.0
    apart = (values[:, None] - values[None, :]) ** 2 if interval else 1.0 - np.eye(len(values))
    within = ((counts @ apart) * counts).sum(axis=1) / np.maximum(size - 1, 1)

    def weighed(weights: Array) -> Array:
        n, margins = weights @ size, weights @ counts
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = ((margins @ apart) * margins).sum(axis=1) / (n * (n - 1))
            return np.where(expected > 0, 1 - (weights @ within) / n / expected, np.nan)

    return weighed


def kappa_weighed(codes: Array) -> Weighed:
    """Return the mean kappa of pairs as a function of weights."""
    pairs = [
        (both, one, other)
        for one, other in combinations(codes, 2)
        if (both := ~np.isnan(one) & ~np.isnan(other)).any()
    ]

    def weighed(weights: Array) -> Array:
        total, weight = np.zeros(len(weights)), np.zeros(len(weights))
        for both, one, other in pairs:
            value, n = _kappas(one[both], other[both], weights[:, both])
            known = ~np.isnan(value)
            total[known] += (value * n)[known]
            weight[known] += n[known]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(weight > 0, total / weight, np.nan)

    return weighed


def _kappas(one: Array, other: Array, weights: Array) -> tuple[Array, Array]:
    """Return Cohen's kappa of two people for each row of weights, and the images that it stands on."""
    values = np.unique(np.concatenate([one, other]))
    first, second = (some[:, None] == values[None, :] for some in (one, other))
    n = weights.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        same = weights @ (one == other) / n
        chance = ((weights @ first) * (weights @ second)).sum(axis=1) / n**2
        return np.where(chance < 1, (same - chance) / (1 - chance), np.nan), n


def _nothing(weights: Array) -> Array:
    return np.full(len(weights), np.nan)


def resampled(weighed: Weighed, n: int, seed: int = 0) -> tuple[float, float]:
    """Return the interval of a coefficient over ``n`` images drawn again with replacement; NaN
    where it mostly has no value.
    """
    if n < 2:
        return float("nan"), float("nan")
    rng, rows = np.random.default_rng(seed), max(1, CELLS // n)
    drawn = [
        weighed(rng.multinomial(n, np.full(n, 1 / n), min(rows, RESAMPLES - start)).astype(float))
        for start in range(0, RESAMPLES, rows)
    ]
    found = np.concatenate(drawn)
    found = found[~np.isnan(found)]
    if found.size < RESAMPLES / 2:
        return float("nan"), float("nan")
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


# The answers to one question by image and person.
Answers = Mapping[str, Mapping[str, Value]]
COLUMNS = {
    "question": pl.String, "word": pl.String, "n": pl.Int64, "same": pl.Float64,
    **dict.fromkeys(("alpha", "alpha_low", "alpha_high", "kappa", "kappa_low", "kappa_high"), pl.Float64),
}  # fmt: skip


def agreement(path: Path) -> pl.DataFrame:
    """Return per question (and per word of several) the share of pairs that gave the same, alpha
    and kappa with intervals, and n.

    The n images that two or more people answered count; known images do not.
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
                found.setdefault(question, {}).setdefault(one.facts["image"], {})[given.annotator] = value
    return found


def _rows(question: Question, answers: Answers) -> list[dict[str, Any]]:
    several = {image: given for image, given in answers.items() if len(given) >= 2}
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
    pairs = [
        (word in a) == (word in b) for given in several.values() for a, b in combinations(given.values(), 2)
    ]
    return {**facts, "word": word, "same": sum(pairs) / len(pairs), **_numbers(codes, False)}


def _same(question: Question, several: Answers) -> float:
    """Return the mean nearness of pairs of answers: the share that is the same, or of boxes the mean F1."""
    pairs = [
        nearness(question, a, b) for given in several.values() for a, b in combinations(given.values(), 2)
    ]
    return sum(pairs) / len(pairs)


def codes_of(answers: Answers, code: Callable[[Value], float]) -> Array:
    """Return answers as numbers: one row per person, one column per image, NaN where somebody gave none."""
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
    return {
        name: None if math.isnan(value) else value
        for name, value in zip(names, (*alphas, *kappas), strict=True)
    }


def against_known(path: Path) -> pl.DataFrame:
    """Return for each person and question the share right of the known images that they answered,
    with its interval and n.
    """
    with opened(path) as database:
        rows = _scores(database, task_of(database))
    frame = pl.DataFrame(
        rows, schema={"annotator": pl.String, "question": pl.String, "score": pl.Float64}, orient="row"
    )
    means = frame.group_by("annotator", "question", maintain_order=True).agg(
        n=pl.len(), right=pl.col("score").mean()
    )
    return means.with_columns(**wilson_interval(pl.col("right"), pl.col("n")))


def _scores(database: sqlite3.Connection, task: Task) -> list[tuple[str, str, float]]:
    known = known_answers(database)
    query = """SELECT w.name, a.image, s.question, s.value FROM answers s JOIN assignments a ON a.id = s.assignment
      JOIN annotators w ON w.id = a.annotator WHERE a.role IN ('check', 'qualification') ORDER BY w.id, a.id"""
    found = []
    for row in database.execute(query):
        question, told = task.question(row["question"]), known.get(row["image"], {})
        if question.id in told and question.kind != "text":
            found.append(
                (row["name"], question.id, nearness(question, json.loads(row["value"]), told[question.id]))
            )
    return found
