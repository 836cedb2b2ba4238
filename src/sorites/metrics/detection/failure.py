"""Tell which objects of an image a detector finds: by COCO's matching at IoU .5, in the right class."""

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

# A box finds an object from this overlap on.
FINDS = 0.5

SIZES = ("small", "medium", "large")
VERDICTS = {"row": pl.Int64, "object": pl.Int64, "class": pl.Int32, "size": pl.String, "correct": pl.Boolean}


def found_objects(rows: pl.DataFrame, conf: float = 0.0) -> pl.DataFrame:
    """Return a row per object of each judged image: the place of its row, its place in ``truth``,
    class, size and verdict.

    Only boxes of at least this confidence count. Crowds are no objects; an image with an error, or
    whose ground-truth boxes are not known, has no verdicts.
    """
    judged = (
        rows.select("image_id", "error", "ground_truth", "boxes")
        .with_row_index("row")
        .with_columns(sample=0, start=0)
    )
    judged = judged.filter(
        pl.col("error").is_null() & pl.col("boxes").is_not_null() & pl.col("ground_truth").is_not_null()
    )
    seen = scene(judged, {})
    found = best(seen.found[seen.found.conf >= conf])
    matched = match(found, seen.objects, [FINDS], seen.objects.crowd[:, None])
    hit = np.zeros(len(seen.objects), bool)
    hit[matched.obj[matched.state == TAKEN]] = True
    objects, hit = seen.objects[~seen.objects.crowd], hit[~seen.objects.crowd]
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


# Failure severities of objects: the severity at which a detector loses an object that it found.


Row = dict[str, Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BY = ("model", "shift")
# It stands between a sample and the place of an object in it, in the column ``sample_id`` of objects.
MARK = "#"


def objects(table: Table, conf: float = 0.0) -> pl.DataFrame:
    """Return a row per object, image and detector, as label rows are: ``correct`` says whether it was found.

    ``sample_id`` is the sample's with "#" and the place of the object in ``truth``; ``object``,
    ``class`` and ``size`` are new. Boxes below ``conf`` do not count.
    """
    if not 0 <= conf <= 1:
        raise SoritesError(f"conf is a confidence from 0 to 1, got {conf:g}")
    rows, _ = select_rows(table, ["model", "shift"], output="boxes")
    parts = rows.select("model", "shift").unique().sort("model", "shift").collect(engine="streaming")
    made = []
    for model, shift in parts.iter_rows():
        here = pl.col("model").eq_missing(pl.lit(model, pl.String)) & pl.col("shift").eq_missing(
            pl.lit(shift, pl.String)
        )
        held = rows.filter(here).collect(engine="streaming")
        made.append(_as_labels(held, found_objects(held, conf)))
    empty = pl.DataFrame(schema=rows.collect_schema())
    return pl.concat(made or [_as_labels(empty, pl.DataFrame(schema=VERDICTS))])


def _as_labels(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    told = (
        rows.drop("ground_truth", "boxes", "correct")
        .with_row_index("row")
        .with_columns(pl.col("row").cast(pl.Int64))
    )
    named = pl.format("{}" + MARK + "{}", "sample_id", "object")
    return verdicts.join(told, on="row").with_columns(sample_id=named, output=pl.lit("label")).drop("row")


@add_metric
def box_failure_severity(
    table: Table, by: Sequence[str] = BY, relative: bool = False, conf: float = 0.0
) -> pl.DataFrame:
    """Median severity at which an object is lost that a detector found; null when at least half of
    the objects survive.

    As ``failure_severity``, with objects in the place of images: ``n`` counts objects, and the
    interval lies between order statistics for the effective number of independent objects. ``conf``
    is the least confidence of boxes that count.
    """
    seen = objects(table, conf)
    answer = failure.failure_severity(seen, by, relative)
    lows: list[float | None] = []
    highs: list[float | None] = []
    for row, lost, _, sample in _groups(seen, by, relative, answer):
        middle = np.inf if row["value"] is None else row["value"]
        low, high = _ranks(
            len(lost), _independent(lost > middle if np.isfinite(middle) else np.isinf(lost), sample)
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

    As ``survival``, with objects in the place of images.
    """

    def verdicts(row: Row, lost: Floats, top: Floats, sample: Ints) -> tuple[NDArray[np.bool_], Ints]:
        there = top >= row["severity"]
        return (lost > row["severity"])[there], sample[there]

    return _shares(failure.survival, verdicts, objects(table, conf), by, relative)


@add_metric
def box_failure_histogram(
    table: Table, by: Sequence[str] = BY, relative: bool = False, conf: float = 0.0
) -> pl.DataFrame:
    """Share of objects that are lost between two severities; Wilson interval with the effective
    number of independent objects.

    As ``failure_histogram``, with objects in the place of images.
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
    seen: pl.DataFrame,
    by: Sequence[str],
    relative: bool,
) -> pl.DataFrame:
    """Ask a metric of shares about objects; ``verdicts`` are the objects that each row counts, with
    their samples.
    """
    answer = metric(seen, by, relative)
    groups = _groups(seen, by, relative, answer)
    bounds = [
        share(row["value"], _independent(*verdicts(row, lost, top, sample)))
        for row, lost, top, sample in groups
    ]
    return _with_bounds(answer, [low for low, _ in bounds], [high for _, high in bounds])


def _groups(
    seen: pl.DataFrame, by: Sequence[str], relative: bool, answer: pl.DataFrame
) -> Iterator[tuple[Row, Floats, Floats, Ints]]:
    """Yield each row of an answer with the failure severities (inf: survived), tops and samples of its objects."""
    points, _, keys = failure.failure_severities(seen, by, relative)
    whole = points.collect(engine="streaming")
    named = whole.with_columns(
        pl.col("sample_id").str.replace(MARK + r"\d+$", "").rank("dense").alias("(sample)")
    )
    arrays = {
        key: (
            part["failure"].fill_null(np.inf).to_numpy(),
            part["top"].to_numpy(),
            part["(sample)"].to_numpy().astype(np.int64),
        )
        for key, part in named.partition_by(keys, as_dict=True).items()
    }
    for row in answer.iter_rows(named=True):
        yield (row, *arrays[tuple(0 if key == WHOLE else row[key] for key in keys)])


def _independent(verdict: NDArray[np.bool_], sample: Ints) -> float:
    """Return how many independent objects would leave a share as sure as these, which come in
    samples; at most their number.
    """
    n, p = len(verdict), float(verdict.mean())
    sums, sizes = np.bincount(sample, verdict), np.bincount(sample)
    clusters = int((sizes > 0).sum())
    if p in (0.0, 1.0) or clusters < 2:
        return clusters
    variance = clusters / (clusters - 1) * float(np.sum((sums - p * sizes) ** 2)) / n**2
    return min(n, p * (1 - p) / variance) if variance > 0 else n


def _ranks(n: int, independent: float) -> tuple[int, int]:
    """Return the ranks among ``n`` values between which the median lies, for fewer independent
    ones; 0 where they are too few.
    """
    few = max(int(independent), 1)
    low = int(failure.lower_rank(pl.Series([few]))[0]) * n // few
    return low, n - low + 1


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _with_bounds(
    answer: pl.DataFrame, low: Sequence[float | None], high: Sequence[float | None]
) -> pl.DataFrame:
    return answer.with_columns(pl.Series("low", low, pl.Float64), pl.Series("high", high, pl.Float64))
