"""Inter-annotator agreement per question, and accuracy on images with known answers.

Choices are compared as nominal values, scales as interval values. Questions with several choices are compared
choice by choice, each as yes or no. For boxes only the mean F1 of annotator pairs is reported.
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

from sorites.apps.annotation.answers import answered_images, known_answers
from sorites.apps.annotation.store import open_labelling, task_of
from sorites.apps.annotation.task import Question, Task
from sorites.apps.annotation.values import Value, nearness
from sorites.metrics.intervals import wilson_interval

# Agreement coefficients for any number of annotators, with bootstrap intervals over images.


RESAMPLES = 2000
CONFIDENCE_LEVEL = 0.95
# Maximum number of bootstrap weights drawn at a time.
MAX_WEIGHTS = 4_000_000
Array = NDArray[np.float64]
# Maps weights (resamples x images) to one value per resample; NaN if the coefficient is undefined.
Weighted = Callable[[Array], Array]


def alpha(codes: Array, interval: bool = False) -> float:
    """Return Krippendorff's alpha of codes (annotators x images, NaN for no answer).

    Args:
        codes: Numeric answers.
        interval: Use squared differences instead of nominal comparison.
    """
    return _evaluate(alpha_weighed(codes, interval), codes)


def kappa(codes: Array) -> float:
    """Return the mean Cohen's kappa over pairs of annotators, weighted by their number of shared images."""
    return _evaluate(kappa_weighed(codes), codes)


def _evaluate(weighted: Weighted, codes: Array) -> float:
    return float(weighted(np.ones((1, codes.shape[1])))[0]) if codes.shape[1] else float("nan")


def alpha_weighed(codes: Array, interval: bool = False) -> Weighted:
    """Return alpha as a function of image weights: 1 - observed / expected disagreement."""
    values = np.unique(codes[~np.isnan(codes)])
    counts = (
        np.stack([(codes == value).sum(axis=0) for value in values], axis=1).astype(float)
        if values.size
        else None
    )
    if counts is None:
        return _undefined
    size = counts.sum(axis=1)
    counts[size < 2] = 0.0  # images with a single answer carry no information
    size[size < 2] = 0.0
    distance = (values[:, None] - values[None, :]) ** 2 if interval else 1.0 - np.eye(len(values))
    observed = ((counts @ distance) * counts).sum(axis=1) / np.maximum(size - 1, 1)

    def weighted(weights: Array) -> Array:
        n, margins = weights @ size, weights @ counts
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = ((margins @ distance) * margins).sum(axis=1) / (n * (n - 1))
            return np.where(expected > 0, 1 - (weights @ observed) / n / expected, np.nan)

    return weighted


def kappa_weighed(codes: Array) -> Weighted:
    """Return the mean pairwise kappa as a function of image weights."""
    pairs = [
        (shared, first, second)
        for first, second in combinations(codes, 2)
        if (shared := ~np.isnan(first) & ~np.isnan(second)).any()
    ]

    def weighted(weights: Array) -> Array:
        total, weight = np.zeros(len(weights)), np.zeros(len(weights))
        for shared, first, second in pairs:
            value, n = _kappas(first[shared], second[shared], weights[:, shared])
            defined = ~np.isnan(value)
            total[defined] += (value * n)[defined]
            weight[defined] += n[defined]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(weight > 0, total / weight, np.nan)

    return weighted


def _kappas(first: Array, second: Array, weights: Array) -> tuple[Array, Array]:
    """Return Cohen's kappa of two annotators for each row of weights, and the weighted number of images."""
    values = np.unique(np.concatenate([first, second]))
    first_codes, second_codes = (codes[:, None] == values[None, :] for codes in (first, second))
    n = weights.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = weights @ (first == second) / n
        chance = ((weights @ first_codes) * (weights @ second_codes)).sum(axis=1) / n**2
        return np.where(chance < 1, (observed - chance) / (1 - chance), np.nan), n


def _undefined(weights: Array) -> Array:
    return np.full(len(weights), np.nan)


def resampled(weighted: Weighted, n: int, seed: int = 0) -> tuple[float, float]:
    """Return the bootstrap interval of a coefficient over ``n`` images; NaN if it is mostly undefined."""
    if n < 2:
        return float("nan"), float("nan")
    rng, rows = np.random.default_rng(seed), max(1, MAX_WEIGHTS // n)
    parts = [
        weighted(rng.multinomial(n, np.full(n, 1 / n), min(rows, RESAMPLES - start)).astype(float))
        for start in range(0, RESAMPLES, rows)
    ]
    values = np.concatenate(parts)
    values = values[~np.isnan(values)]
    if values.size < RESAMPLES / 2:
        return float("nan"), float("nan")
    low, high = np.quantile(values, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    return float(low), float(high)


# The answers to one question, by image and annotator.
Answers = Mapping[str, Mapping[str, Value]]
COLUMNS = {
    "question": pl.String, "word": pl.String, "n": pl.Int64, "same": pl.Float64,
    **dict.fromkeys(("alpha", "alpha_low", "alpha_high", "kappa", "kappa_low", "kappa_high"), pl.Float64),
}  # fmt: skip


def agreement(path: Path) -> pl.DataFrame:
    """Return agreement per question, and per choice where several are allowed.

    Columns: the share of pairs with the same answer, alpha and kappa with intervals, and n, the number of
    images with two or more answers. Images with known answers are excluded.
    """
    with open_labelling(path) as database:
        task, answers = task_of(database), _by_question(database)
    rows = [row for question in task.questions for row in _rows(question, answers.get(question.id, {}))]
    return pl.DataFrame([{name: row.get(name) for name in COLUMNS} for row in rows], schema=COLUMNS)


def _by_question(database: sqlite3.Connection) -> dict[str, dict[str, dict[str, Value]]]:
    answers: dict[str, dict[str, dict[str, Value]]] = {}
    for item in answered_images(database):
        for answer in item.given:
            for question, value in answer.values.items():
                answers.setdefault(question, {}).setdefault(item.facts["image"], {})[answer.annotator] = value
    return answers


def _rows(question: Question, answers: Answers) -> list[dict[str, Any]]:
    shared = {image: by_annotator for image, by_annotator in answers.items() if len(by_annotator) >= 2}
    if question.kind == "text" or not shared:
        return []
    facts = {"question": question.id, "n": len(shared), "same": _mean_nearness(question, shared)}
    if question.kind == "boxes":
        return [facts]
    if question.kind == "several":
        by_annotator = {
            word for by_annotator in shared.values() for value in by_annotator.values() for word in value
        }
        words = [word for word in question.values if word in by_annotator]
        return [facts, *(_choice_row(facts, shared, word) for word in words)]
    code_of = {value: float(i) for i, value in enumerate(question.values)}
    scale = question.kind == "scale"
    return [{**facts, **_coefficients(codes_of(shared, float if scale else code_of.__getitem__), scale)}]


def _choice_row(facts: Mapping[str, Any], shared: Answers, word: str) -> dict[str, Any]:
    codes = codes_of(shared, lambda value: float(word in value))
    pairs = [
        (word in a) == (word in b)
        for by_annotator in shared.values()
        for a, b in combinations(by_annotator.values(), 2)
    ]
    return {**facts, "word": word, "same": sum(pairs) / len(pairs), **_coefficients(codes, False)}


def _mean_nearness(question: Question, shared: Answers) -> float:
    """Return the mean nearness of answer pairs: the share of equal answers, or the mean F1 for boxes."""
    pairs = [
        nearness(question, a, b)
        for by_annotator in shared.values()
        for a, b in combinations(by_annotator.values(), 2)
    ]
    return sum(pairs) / len(pairs)


def codes_of(answers: Answers, code: Callable[[Value], float]) -> Array:
    """Return answers as numbers: annotators x images, NaN where there is no answer."""
    names = {
        name: i
        for i, name in enumerate(sorted({name for by_annotator in answers.values() for name in by_annotator}))
    }
    codes = np.full((len(names), len(answers)), np.nan)
    for column, by_annotator in enumerate(answers.values()):
        for name, value in by_annotator.items():
            codes[names[name], column] = code(value)
    return codes


def _coefficients(codes: Array, scale: bool) -> dict[str, float | None]:
    n = codes.shape[1]
    alphas = (alpha(codes, scale), *resampled(alpha_weighed(codes, scale), n))
    kappas = (kappa(codes), *resampled(kappa_weighed(codes), n))
    names = [f"{name}{end}" for name in ("alpha", "kappa") for end in ("", "_low", "_high")]
    return {
        name: None if math.isnan(value) else value
        for name, value in zip(names, (*alphas, *kappas), strict=True)
    }


def against_known(path: Path) -> pl.DataFrame:
    """Return the accuracy on images with known answers by annotator and question, with its interval and n."""
    with open_labelling(path) as database:
        rows = _scores(database, task_of(database))
    frame = pl.DataFrame(
        rows, schema={"annotator": pl.String, "question": pl.String, "score": pl.Float64}, orient="row"
    )
    means = frame.group_by("annotator", "question", maintain_order=True).agg(
        n=pl.len(), right=pl.col("score").mean()
    )
    return means.with_columns(**wilson_interval(pl.col("right"), pl.col("n")))


def _scores(database: sqlite3.Connection, task: Task) -> list[tuple[str, str, float]]:
    known_values = known_answers(database)
    query = """SELECT w.name, a.image, s.question, s.value FROM answers s
      JOIN assignments a ON a.id = s.assignment
      JOIN annotators w ON w.id = a.annotator WHERE a.role IN ('check', 'qualification')
      ORDER BY w.id, a.id"""
    scores = []
    for row in database.execute(query):
        question, expected = task.question(row["question"]), known_values.get(row["image"], {})
        if question.id in expected and question.kind != "text":
            scores.append(
                (
                    row["name"],
                    question.id,
                    nearness(question, json.loads(row["value"]), expected[question.id]),
                )
            )
    return scores
