"""Coverage and size of prediction sets against severity.

Samples are divided into two halves by a hash. The threshold of each half is calibrated on the clean images of
the other one, so that every image is evaluated once and none calibrates its own set. Clean images are
exchangeable with the calibration images, and their sets cover the correct class as often as promised; shifted
images are not, and how far their coverage falls is what is measured.

With a measure, thresholds depend on the distance of an image: calibration images are those of the other half
at all settings of the shift, weighted by how near their distance is. Nothing is promised for these sets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
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
from sorites.analysis.uncertainty.scores import METHODS, of_answers, threshold, weighted_thresholds
from sorites.core import CLEAN
from sorites.core.errors import InvalidOption, SoritesError, UnknownName
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.core.table import RunLike, Table
from sorites.metrics.intervals import clustered_mean, clustered_share_bounds

# Calibration images that are weighted, at most; the first in the order of their samples' hashes.
MAX_WEIGHTED = 5_000
# The scale of the weights, as a share of the interquartile range of the calibration images' distances.
BANDWIDTH = 0.2
SCHEMA: Mapping[str, Any] = {
    "model": pl.String,
    "method": pl.String,
    "weights": pl.String,
    "shift": pl.String,
    "severity": pl.Float64,
    "params": pl.String,
    "value": pl.Float64,
    "n": pl.Int64,
    "low": pl.Float64,
    "high": pl.Float64,
    "size": pl.Float64,
    "size_low": pl.Float64,
    "size_high": pl.Float64,
    "empty": pl.Float64,
    "whole": pl.Float64,
    "calibration": pl.Int64,
}


def conformal(
    run: str | Path | RunLike,
    *,
    alpha: float = 0.1,
    methods: Sequence[str] = tuple(METHODS),
    models: Sequence[str] = (),
    measure: str | None = None,
) -> pl.DataFrame:
    """Compute the coverage and size of prediction sets at each severity from the kept logits of a run.

    Args:
        run: A run folder, made by "sorites run" with kept features. Also a ``Run``.
        alpha: Share of clean images whose set may miss the correct class.
        methods: Conformity scores: thr, aps, raps.
        models: Only these models; default: all with kept logits.
        measure: Also weigh calibration images by this measure of the run: semantic, covariate, lpips.

    Returns:
        One row per model, method, weights and setting; see ``coverage``.

    Raises:
        SoritesError: The run kept no logits, or lacks the measure.
    """
    kept = open_kept(run, models)
    frames = [
        coverage(kept.table, name, kept.reader, kept.labels, alpha, methods, measure) for name in kept.models
    ]
    return pl.concat(frames) if frames else pl.DataFrame(schema=SCHEMA)


def coverage(
    table: Table,
    model: str,
    reader: Logits | None,
    labels: Labels | None,
    alpha: float = 0.1,
    methods: Sequence[str] = tuple(METHODS),
    measure: str | None = None,
) -> pl.DataFrame:
    """Compute the coverage and size of a model's prediction sets at each setting.

    Args:
        table: The table of a run.
        model: The model.
        reader: Reads the kept logits.
        labels: The classes of the suite.
        alpha: The share of clean images whose set may miss the correct class.
        methods: Names of conformity scores.
        measure: Also weigh calibration images by this measure.

    Returns:
        ``value`` is the share of images whose set contains a correct class and ``size`` the mean number of
        classes in it, with intervals over samples; ``empty`` and ``whole`` are the shares of sets with no and
        with all classes, ``calibration`` the number of calibration images of the smaller half. ``weights`` is
        the measure, or "none".
    """
    _check(alpha, methods)
    kept = KeptLogits(table, model, reader, labels)
    images = kept.images
    answers = {method: np.empty(len(images)) for method in methods}
    for places, logits in kept.batches():
        probabilities = softmax(logits)
        right = [images.right[place] for place in places]
        for method in methods:
            scores = METHODS[method](probabilities, images.draw[places])
            answers[method][places] = of_answers(scores, right)
    ways: dict[tuple[str, str], tuple[Array, int]] = {}
    for method in methods:
        ways[method, "none"] = _clean_thresholds(images, answers[method], alpha)
        if measure is not None:
            ways[method, measure] = _near_thresholds(images, answers[method], alpha, measure)
    sizes, classes = _sizes(kept, {way: limits for way, (limits, _) in ways.items()})
    rows = [
        {"model": model, "method": way[0], "weights": way[1], **row, "calibration": count}
        for way, (limits, count) in ways.items()
        for row in _by_setting(images, answers[way[0]] <= limits, sizes[way], limits, classes)
    ]
    return pl.DataFrame(rows, schema=SCHEMA)


def promised_range(alpha: float, calibration: int) -> tuple[float, float]:
    """Return the range of the coverage of clean images over 95 % of the calibration sets of a size.

    Given the calibration images, the coverage follows a beta distribution (Vovk 2012).
    """
    from scipy.stats import beta

    missed = math.floor((calibration + 1) * alpha + 1e-12)
    if missed < 1:
        return 1.0, 1.0
    low, high = beta.ppf([0.025, 0.975], calibration + 1 - missed, missed)
    return float(low), float(high)


def _check(alpha: float, methods: Sequence[str]) -> None:
    if not 0 < alpha < 1:
        raise InvalidOption(
            "alpha", f"{option('alpha', None)}: expected a number between 0 and 1, got {alpha:g}"
        )
    for method in methods:
        if method not in METHODS:
            raise UnknownName("method", method, METHODS, f"There are {', '.join(METHODS)}.")


def _clean_thresholds(images: Judged, answers: Array, alpha: float) -> tuple[Array, int]:
    """Return the threshold of each image, calibrated on the clean images of the other half of samples, and
    the number of calibration images of the smaller half.
    """
    pools = [answers[images.clean & (images.half == half)] for half in (0, 1)]
    if not min(map(len, pools)):
        raise SoritesError(
            "prediction sets are calibrated on clean images that the model judges, and one half of the"
            " samples has none"
        )
    limits = np.array([threshold(pools[1], alpha), threshold(pools[0], alpha)])
    return limits[images.half], min(map(len, pools))


def _near_thresholds(images: Judged, answers: Array, alpha: float, measure: str) -> tuple[Array, int]:
    """Return the threshold of each image from images of the other half, weighted by their distance."""
    values = distances(images.rows, measure)
    has = np.isfinite(values)
    if not has.any():
        raise SoritesError(f"no image of the run has the measure {measure}; compute it first")
    limits, smallest = np.full(len(images), np.inf), len(images)
    for shift in images.rows["shift"].unique().sort():
        own = (images.rows["shift"] == shift).to_numpy() & has
        for half in (0, 1):
            asked = own & (images.half == half)
            pool = np.flatnonzero((own | images.clean) & has & (images.half != half))
            pool = pool[np.argsort(images.rank[pool], kind="stable")][:MAX_WEIGHTED]
            if not asked.any() or not len(pool):
                continue
            low, high = np.quantile(values[pool], [0.25, 0.75])
            bandwidth = max(BANDWIDTH * (high - low), 1e-12)
            limits[asked] = weighted_thresholds(
                answers[pool], values[pool], values[asked], float(bandwidth), alpha
            )
            smallest = min(smallest, len(pool))
    return np.where(has, limits, np.nan), smallest


def distances(rows: pl.DataFrame, measure: str) -> Array:
    """Return a measure of each image; NaN where it has none."""
    value = (
        pl.col("degrees")
        .list.eval(pl.element().filter(pl.element().struct.field("measure") == measure))
        .list.first()
        .struct.field("value")
    )
    found: Array = rows.select(value.fill_null(math.nan)).to_series().to_numpy().astype(np.float64)
    return found


def _sizes(
    kept: KeptLogits, limits: Mapping[tuple[str, str], Array]
) -> tuple[dict[tuple[str, str], NDArray[np.int64]], int]:
    """Return the number of classes in the set of each image, and the number of classes."""
    sizes = {way: np.zeros(len(kept.images), np.int64) for way in limits}
    classes = 0
    for places, logits in kept.batches():
        probabilities, classes = softmax(logits), logits.shape[1]
        for method in dict.fromkeys(way[0] for way in limits):
            scores = METHODS[method](probabilities, kept.images.draw[places])
            for way in (way for way in limits if way[0] == method):
                sizes[way][places] = (scores <= limits[way][places, None]).sum(axis=1)
    return sizes, classes


def _by_setting(
    images: Judged, covered: NDArray[np.bool_], sizes: NDArray[np.int64], limits: Array, classes: int
) -> Iterator[dict[str, object]]:
    for setting, places in groups(images.rows):
        places = places[~np.isnan(limits[places])]
        if not len(places):
            continue
        _, clusters = np.unique(images.rows["sample"].to_numpy()[places], return_inverse=True)
        hits = np.bincount(clusters, covered[places]).astype(np.float64)
        low, high = clustered_share_bounds(hits, np.bincount(clusters).astype(np.float64))
        size, size_low, size_high = clustered_mean(sizes[places].astype(np.float64), clusters)
        yield {
            **setting,
            "severity": 0.0 if setting["shift"] == CLEAN else setting["severity"],
            "value": float(covered[places].mean()),
            "n": len(places),
            "low": low,
            "high": high,
            "size": size,
            "size_low": None if size_low is None else max(size_low, 0.0),
            "size_high": None if size_high is None else min(size_high, float(classes)),
            "empty": float((sizes[places] == 0).mean()),
            "whole": float((sizes[places] == classes).mean()),
        }
