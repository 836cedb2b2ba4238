"""Recalibration fitted on clean images and judged under shift: NLL, Brier score and calibration errors.

Samples are divided into two halves by a hash; what is fitted on the clean images of one half is judged on all
images of the other one, and the other way round. Where an image accepts several classes, their probabilities
are summed: the answer is their category.

- ``none``: the probabilities of the model;
- ``temperature``: all logits divided by one number (Guo et al., ICML 2017);
- ``vector``: a factor and an offset per class (the same paper); it needs at least as many clean images as
  classes;
- ``isotonic``: the confidence replaced by a rising step function of it, interpolated (Zadrozny and Elkan
  2002); the probabilities of the other classes share the rest in their proportions. The answer stays, also
  where one of them is then larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.analysis.uncertainty.kept import (
    Array,
    Judged,
    KeptLogits,
    Logits,
    groups,
    open_kept,
    softmax,
)
from sorites.core import CLEAN
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import Labels
from sorites.core.table import RunLike, Table
from sorites.evaluation.plan import same_answers
from sorites.metrics.intervals import clustered_mean

BINS = 15
# The range of temperatures that are searched.
TEMPERATURES = (0.02, 50.0)
VECTOR_STEPS = 200
SCHEMA: Mapping[str, Any] = {
    "model": pl.String,
    "method": pl.String,
    "shift": pl.String,
    "severity": pl.Float64,
    "params": pl.String,
    "n": pl.Int64,
    "accuracy": pl.Float64,
    "conf": pl.Float64,
    "gap": pl.Float64,
    "gap_low": pl.Float64,
    "gap_high": pl.Float64,
    "nll": pl.Float64,
    "nll_low": pl.Float64,
    "nll_high": pl.Float64,
    "brier": pl.Float64,
    "brier_low": pl.Float64,
    "brier_high": pl.Float64,
    "ece": pl.Float64,
    "adaptive_ece": pl.Float64,
    "fitted_on": pl.Int64,
}
Right = Sequence[NDArray[np.int64]]
# Maps logits to probabilities.
Calibrated = Callable[[Array], Array]


def nll_of(probabilities: Array, right: Right) -> Array:
    """Return -log of the summed probability of the correct classes of each image."""
    return np.asarray(-np.log(np.maximum(_right_mass(probabilities, right), np.finfo(np.float64).tiny)))


def brier_of(probabilities: Array, right: Right) -> Array:
    """Return the Brier score of each image: the summed squared error over classes (Brier 1950), correct
    classes counted as one.
    """
    mass = _right_mass(probabilities, right)
    own = np.array(
        [float(np.sum(row[classes] ** 2)) for row, classes in zip(probabilities, right, strict=True)]
    )
    return np.asarray((probabilities**2).sum(axis=1) - own + (1 - mass) ** 2)


def _right_mass(probabilities: Array, right: Right) -> Array:
    return np.array([row[classes].sum() for row, classes in zip(probabilities, right, strict=True)])


def fit_none(logits: Array, right: Right) -> Calibrated:
    """Return the softmax."""
    return softmax


def fit_temperature(logits: Array, right: Right) -> Calibrated:
    """Return the softmax of logits divided by the temperature with the lowest NLL."""
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        return float(nll_of(softmax(logits / np.exp(log_temperature)), right).mean())

    limits = tuple(np.log(TEMPERATURES))
    found = minimize_scalar(loss, bounds=limits, method="bounded", options={"xatol": 1e-8})
    temperature = float(np.exp(found.x))
    return lambda given: softmax(given / temperature)


def fit_vector(logits: Array, right: Right) -> Calibrated:
    """Return the softmax of logits with the factor and offset per class that have the lowest NLL.

    Raises:
        SoritesError: There are fewer images than classes.
    """
    from scipy.optimize import minimize

    images, classes = logits.shape
    if images < classes:
        raise SoritesError(
            f"vector scaling of {classes} classes needs at least as many clean images; there are {images}"
        )
    target = np.zeros_like(logits)
    for row, labels in enumerate(right):
        target[row, labels] = 1

    def loss(parameters: Array) -> tuple[float, Array]:
        factors, offsets = parameters[:classes], parameters[classes:]
        p = softmax(logits * factors + offsets)
        mass = np.maximum((p * target).sum(axis=1, keepdims=True), 1e-300)
        slope = (p - p * target / mass) / images
        return float(-np.log(mass).mean()), np.concatenate([(slope * logits).sum(axis=0), slope.sum(axis=0)])

    start = np.concatenate([np.ones(classes), np.zeros(classes)])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": VECTOR_STEPS})
    factors, offsets = found.x[:classes], found.x[classes:]
    return lambda given: softmax(given * factors + offsets)


def fit_isotonic(logits: Array, right: Right) -> Calibrated:
    """Return the softmax with its top probability replaced by an isotonic function of it.

    The function is kept 1 / (2 n) away from 0 and 1, so that no answer is called impossible.
    """
    from scipy.optimize import isotonic_regression

    p = softmax(logits)
    top, confidence = p.argmax(axis=1), p.max(axis=1)
    correct = np.array([label in classes for label, classes in zip(top, right, strict=True)], float)
    values, place = np.unique(confidence, return_inverse=True)
    counts = np.bincount(place).astype(np.float64)
    levels = isotonic_regression(np.bincount(place, correct) / counts, weights=counts).x
    margin = 1 / (2 * len(logits))

    def calibrated(given: Array) -> Array:
        probabilities = softmax(given)
        rows, best = np.arange(len(given)), probabilities.argmax(axis=1)
        own = probabilities[rows, best]
        wanted = np.clip(np.interp(own, values, levels), margin, 1 - margin)
        rest = np.where(own < 1, (1 - wanted) / np.maximum(1 - own, 1e-300), 0.0)
        scaled = probabilities * rest[:, None]
        scaled[rows, best] = wanted
        return np.asarray(scaled / scaled.sum(axis=1, keepdims=True))

    return calibrated


METHODS: Mapping[str, Callable[[Array, Right], Calibrated]] = {
    "none": fit_none,
    "temperature": fit_temperature,
    "vector": fit_vector,
    "isotonic": fit_isotonic,
}
DEFAULT = ("none", "temperature", "isotonic")
# Methods after which another class may be the answer. The others recalibrate the confidence of an answer.
CHANGE_ANSWERS = frozenset({"vector"})


def recalibrate(
    run: str | Path | RunLike, *, methods: Sequence[str] = DEFAULT, models: Sequence[str] = ()
) -> pl.DataFrame:
    """Recalibrate the models of a run on clean images, and judge them at each severity.

    Args:
        run: A run folder, made by "sorites run" with kept features. Also a ``Run``.
        methods: How to recalibrate: none, temperature, vector, isotonic.
        models: Only these models; default: all with kept logits.

    Returns:
        One row per model, method and setting; see ``recalibrated``.

    Raises:
        SoritesError: The run kept no logits, or has too few clean images.
    """
    kept = open_kept(run, models)
    frames = [recalibrated(kept.table, name, kept.reader, kept.labels, methods) for name in kept.models]
    return pl.concat(frames) if frames else pl.DataFrame(schema=SCHEMA)


def recalibrated(
    table: Table,
    model: str,
    reader: Logits | None,
    labels: Labels | None,
    methods: Sequence[str] = DEFAULT,
) -> pl.DataFrame:
    """Recalibrate a model on clean images, and judge it at each setting.

    Args:
        table: The table of a run.
        model: The model.
        reader: Reads the kept logits.
        labels: The classes of the suite.
        methods: Names of methods.

    Returns:
        NLL and Brier score with intervals over samples, the calibration error with 15 bins of equal width
        (``ece``) and of equally many images (``adaptive_ece``), accuracy, mean confidence, and their
        difference (``gap``, above 0 if the model is overconfident) with its interval;
        ``fitted_on`` is the number of clean images of the smaller half.
    """
    for method in methods:
        if method not in METHODS:
            raise UnknownName("method", method, METHODS, f"There are {', '.join(METHODS)}.")
    kept = KeptLogits(table, model, reader, labels)
    images = kept.images
    clean = _clean_logits(kept)
    rows: list[dict[str, object]] = []
    for method in methods:
        fits = [METHODS[method](*clean[1 - half]) for half in (0, 1)]
        scored = _score(kept, fits, method in CHANGE_ANSWERS)
        count = min(len(right) for _, right in clean)
        rows += [
            {"model": model, "method": method, **row, "fitted_on": count}
            for row in _by_setting(images, scored)
        ]
    return pl.DataFrame(rows, schema=SCHEMA)


def _clean_logits(kept: KeptLogits) -> list[tuple[Array, Right]]:
    """Return the logits and correct classes of the clean images of each half."""
    images = kept.images
    parts: list[list[tuple[NDArray[np.int64], Array]]] = [[], []]
    for places, logits in kept.batches():
        for half in (0, 1):
            chosen = images.clean[places] & (images.half[places] == half)
            parts[half].append((places[chosen], logits[chosen]))
    halves: list[tuple[Array, Right]] = []
    for half in (0, 1):
        places = np.concatenate([places for places, _ in parts[half]])
        if not len(places):
            raise SoritesError(
                "recalibration is fitted on clean images that the model judges, and one half of the samples"
                " has none"
            )
        order = np.argsort(places)
        logits = np.concatenate([own for _, own in parts[half]])[order]
        halves.append((logits, [images.right[place] for place in places[order]]))
    return halves


@dataclass(frozen=True, eq=False)
class Scored:
    """NLL, Brier score, confidence and correctness of each image."""

    nll: Array
    brier: Array
    conf: Array
    correct: Array


def _score(kept: KeptLogits, fits: Sequence[Calibrated], change_answers: bool) -> Scored:
    images = kept.images
    scored = Scored(*(np.empty(len(images)) for _ in range(4)))
    together = same_answers({frozenset(right.tolist()) for right in images.right})
    for places, logits in kept.batches():
        for half in (0, 1):
            own = images.half[places] == half
            if own.any():
                right = [images.right[place] for place in places[own]]
                probabilities = fits[half](logits[own])
                best = (probabilities if change_answers else logits[own]).argmax(axis=1)
                _fill(scored, places[own], probabilities, best, right, together)
    return scored


def _fill(
    scored: Scored,
    places: NDArray[np.int64],
    probabilities: Array,
    best: NDArray[np.int64],
    right: Right,
    together: Mapping[int, frozenset[int]],
) -> None:
    scored.nll[places] = nll_of(probabilities, right)
    scored.brier[places] = brier_of(probabilities, right)
    scored.correct[places] = [label in classes for label, classes in zip(best, right, strict=True)]
    answers = [list(together.get(int(label), (int(label),))) for label in best]
    scored.conf[places] = [row[own].sum() for row, own in zip(probabilities, answers, strict=True)]


def _by_setting(images: Judged, scored: Scored) -> Iterator[dict[str, object]]:
    samples = images.rows["sample"].to_numpy()
    for setting, places in groups(images.rows):
        _, clusters = np.unique(samples[places], return_inverse=True)
        conf, correct = scored.conf[places], scored.correct[places]
        gap, gap_low, gap_high = clustered_mean(conf - correct, clusters)
        numbers: dict[str, float | None] = {"gap": gap, "gap_low": gap_low, "gap_high": gap_high}
        for name, values in (("nll", scored.nll), ("brier", scored.brier)):
            value, low, high = clustered_mean(values[places], clusters)
            numbers |= {
                name: value,
                f"{name}_low": None if low is None else max(low, 0.0),
                f"{name}_high": high,
            }
        yield {
            **setting,
            "severity": 0.0 if setting["shift"] == CLEAN else setting["severity"],
            "n": len(places),
            "accuracy": float(correct.mean()),
            "conf": float(conf.mean()),
            **numbers,
            "ece": ece(conf, correct),
            "adaptive_ece": ece(conf, correct, adaptive=True),
        }


def ece(conf: Array, correct: Array, bins: int = BINS, adaptive: bool = False) -> float:
    """Return the calibration error: the mean over images of the gap between confidence and accuracy of their
    bin, of equal width or with ``adaptive`` of equally many images.

    Example:
        >>> round(ece(np.array([0.9, 0.9, 0.1, 0.1]), np.array([1.0, 0.0, 0.0, 0.0])), 3)
        0.25
    """
    order = np.argsort(conf, kind="stable")
    conf, correct = conf[order], correct[order]
    if adaptive:
        place = np.arange(len(conf)) * bins // len(conf)
        # Images with equal confidence share their accuracy, so that their order does not matter.
        _, tied = np.unique(conf, return_inverse=True)
        correct = (np.bincount(tied, correct) / np.bincount(tied))[tied]
    else:
        place = np.clip(np.floor(conf * bins), 0, bins - 1).astype(np.int64)
    return float(np.abs(np.bincount(place, conf - correct)).sum() / len(conf))
