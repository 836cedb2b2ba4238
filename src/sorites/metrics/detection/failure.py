"""Failure severities of objects: the severity at which a detector loses an object that it found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import add_metric
from sorites.core.errors import SoritesError
from sorites.core.table import Table
from sorites.metrics import failure
from sorites.metrics.detection.coco import AREAS
from sorites.metrics.detection.matching import TAKEN, best, match
from sorites.metrics.detection.scenes import scene
from sorites.metrics.intervals import share
from sorites.metrics.rows import WHOLE, select_rows

# IoU from which a box finds an object.
MATCH_IOU = 0.5

SIZES = ("small", "medium", "large")
VERDICTS = {"row": pl.Int64, "object": pl.Int64, "class": pl.Int32, "size": pl.String, "correct": pl.Boolean}


def found_objects(rows: pl.DataFrame, conf: float = 0.0) -> pl.DataFrame:
    """Return one row per object of each judged image: the index of its row and of the object, class, size
    and outcome.

    Args:
        rows: Rows of detectors.
        conf: The minimum confidence of boxes that count.

    Returns:
        The objects, matched by COCO's rules. Crowds are no objects, and images with an error or
            without ground truth have no outcome.
    """
    judged = (
        rows.select("image_id", "error", "ground_truth", "boxes")
        .with_row_index("row")
        .with_columns(sample=0, start=0)
    )
    judged = judged.filter(
        pl.col("error").is_null() & pl.col("boxes").is_not_null() & pl.col("ground_truth").is_not_null()
    )
    images = scene(judged, {})
    found = best(images.found[images.found.conf >= conf])
    matched = match(found, images.objects, [MATCH_IOU], images.objects.crowd[:, None])
    hit = np.zeros(len(images.objects), bool)
    hit[matched.obj[matched.state == TAKEN]] = True
    objects, hit = images.objects[~images.objects.crowd], hit[~images.objects.crowd]
    size = np.searchsorted([high for _, high in AREAS[1:3]], objects.area, side="left")
    return pl.DataFrame(
        {
            "row": judged["row"].to_numpy()[objects.image],
            "object": objects.place,
            "class": objects.label,
            "size": np.array(SIZES)[size],
            "correct": hit,
        },
        schema=VERDICTS,
    )


Row = dict[str, Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BY = ("model", "shift")
# Separates the id of a sample from the index of an object in the ``sample_id`` of objects.
OBJECT_SEPARATOR = "#"


def objects(table: Table, conf: float = 0.0) -> pl.DataFrame:
    """Return one row per object, image and detector, in the form of label rows: ``correct`` is whether it
    was found.

    Args:
        table: The table.
        conf: The minimum confidence of boxes that count.

    Returns:
        Rows whose ``sample_id`` is that of the sample, "#" and the index of the object in
            ``ground_truth``; the columns ``object``, ``class`` and ``size`` are new.
    """
    if not 0 <= conf <= 1:
        raise SoritesError(f"conf must be in [0, 1], got {conf:g}")
    rows, _ = select_rows(table, ["model", "shift"], output="boxes")
    groups = rows.select("model", "shift").unique().sort("model", "shift").collect(engine="streaming")
    parts = []
    for model, shift in groups.iter_rows():
        condition = pl.col("model").eq_missing(pl.lit(model, pl.String)) & pl.col("shift").eq_missing(
            pl.lit(shift, pl.String)
        )
        loaded = rows.filter(condition).collect(engine="streaming")
        parts.append(_as_labels(loaded, found_objects(loaded, conf)))
    empty = pl.DataFrame(schema=rows.collect_schema())
    return pl.concat(parts or [_as_labels(empty, pl.DataFrame(schema=VERDICTS))])


def _as_labels(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    image_columns = (
        rows.drop("ground_truth", "boxes", "correct")
        .with_row_index("row")
        .with_columns(pl.col("row").cast(pl.Int64))
    )
    object_id = pl.format("{}" + OBJECT_SEPARATOR + "{}", "sample_id", "object")
    return (
        verdicts.join(image_columns, on="row")
        .with_columns(sample_id=object_id, output=pl.lit("label"))
        .drop("row")
    )


@add_metric
def box_failure_severity(
    table: Table, by: Sequence[str] = BY, relative: bool = False, conf: float = 0.0
) -> pl.DataFrame:
    """Median severity at which an object is lost that a detector found; null when at least half of the
    objects survive.

    Like ``failure_severity``, with objects in place of images: ``n`` counts objects, and the interval
    is between order statistics for the effective number of independent objects. ``conf`` is the minimum
    confidence of boxes that count.
    """
    rows = objects(table, conf)
    answer = failure.failure_severity(rows, by, relative)
    lows: list[float | None] = []
    highs: list[float | None] = []
    for row, lost, _, sample in _groups(rows, by, relative, answer):
        median = np.inf if row["value"] is None else row["value"]
        low, high = _ranks(
            len(lost), _independent(lost > median if np.isfinite(median) else np.isinf(lost), sample)
        )
        ordered = np.sort(lost)
        lows.append(0.0 if low < 1 else _finite(ordered[low - 1]))
        highs.append(None if low < 1 else _finite(ordered[high - 1]))
    return _with_bounds(answer, lows, highs)


@add_metric
def box_survival(
    table: Table, by: Sequence[str] = BY, relative: bool = False, conf: float = 0.0
) -> pl.DataFrame:
    """Share of objects not yet lost at each severity; Wilson interval with the effective number of
    independent objects.

    Like ``survival``, with objects in place of images.
    """

    def verdicts(row: Row, lost: Floats, top: Floats, sample: Ints) -> tuple[NDArray[np.bool_], Ints]:
        judged = top >= row["severity"]
        return (lost > row["severity"])[judged], sample[judged]

    return _shares(failure.survival, verdicts, objects(table, conf), by, relative)


@add_metric
def box_failure_histogram(
    table: Table, by: Sequence[str] = BY, relative: bool = False, conf: float = 0.0
) -> pl.DataFrame:
    """Share of objects that are lost between two severities; Wilson interval with the effective number of
    independent objects.

    Like ``failure_histogram``, with objects in place of images.
    """

    def verdicts(row: Row, lost: Floats, top: Floats, sample: Ints) -> tuple[NDArray[np.bool_], Ints]:
        above = -1.0 if row["above"] is None else row["above"]
        return np.isinf(lost) if row["severity"] is None else (lost > above) & (
            lost <= row["severity"]
        ), sample

    return _shares(failure.failure_histogram, verdicts, objects(table, conf), by, relative)


def _shares(
    metric: Callable[..., pl.DataFrame],
    verdicts: Callable[[Row, Floats, Floats, Ints], tuple[NDArray[np.bool_], Ints]],
    rows: pl.DataFrame,
    by: Sequence[str],
    relative: bool,
) -> pl.DataFrame:
    """Return a share metric of objects; ``verdicts`` returns the outcomes and samples that a row of the
    answer counts.
    """
    answer = metric(rows, by, relative)
    groups = _groups(rows, by, relative, answer)
    bounds = [
        share(row["value"], _independent(*verdicts(row, lost, top, sample)))
        for row, lost, top, sample in groups
    ]
    return _with_bounds(answer, [low for low, _ in bounds], [high for _, high in bounds])


def _groups(
    rows: pl.DataFrame, by: Sequence[str], relative: bool, answer: pl.DataFrame
) -> Iterator[tuple[Row, Floats, Floats, Ints]]:
    """Yield each row of an answer with the failure severities (inf: survived), tops and samples of its
    objects.
    """
    points, _, keys = failure.failure_severities(rows, by, relative)
    trajectories = points.collect(engine="streaming")
    with_sample = trajectories.with_columns(
        pl.col("sample_id").str.replace(OBJECT_SEPARATOR + r"\d+$", "").rank("dense").alias("(sample)")
    )
    arrays = {
        key: (
            part["failure"].fill_null(np.inf).to_numpy(),
            part["top"].to_numpy(),
            part["(sample)"].to_numpy().astype(np.int64),
        )
        for key, part in with_sample.partition_by(keys, as_dict=True).items()
    }
    for row in answer.iter_rows(named=True):
        yield (row, *arrays[tuple(0 if key == WHOLE else row[key] for key in keys)])


def _independent(verdict: NDArray[np.bool_], sample: Ints) -> float:
    """Return the effective number of independent objects, given that objects of one sample are correlated."""
    n, p = len(verdict), float(verdict.mean())
    sums, sizes = np.bincount(sample, verdict), np.bincount(sample)
    clusters = int((sizes > 0).sum())
    if p in (0.0, 1.0) or clusters < 2:
        return clusters
    variance = clusters / (clusters - 1) * float(np.sum((sums - p * sizes) ** 2)) / n**2
    return min(n, p * (1 - p) / variance) if variance > 0 else n


def _ranks(n: int, independent: float) -> tuple[int, int]:
    """Return the ranks of the median's interval among ``n`` values of which ``independent`` are
    independent; low is 0 if too few.
    """
    effective = max(int(independent), 1)
    low = int(failure.lower_rank(pl.Series([effective]))[0]) * n // effective
    return low, n - low + 1


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _with_bounds(
    answer: pl.DataFrame, low: Sequence[float | None], high: Sequence[float | None]
) -> pl.DataFrame:
    return answer.with_columns(pl.Series("low", low, pl.Float64), pl.Series("high", high, pl.Float64))
