"""Grids of two or three shifts at once for detectors: surfaces, the failure contour, and the interaction.

The columns ``first``, ``second`` and ``third`` are those of ``sorites.metrics.grids``. Kept objects and the
contour count objects that are found in the clean image, as passports do. The interaction counts all objects:
some objects are found in the clean image by luck, and both shifts alone would lose them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN, add_metric
from sorites.core.table import Table
from sorites.metrics.detection.at_confidence import CONFIDENCE, box_recall
from sorites.metrics.detection.failure import OBJECT_SEPARATOR, objects
from sorites.metrics.detection.mean_ap import RESAMPLES, map
from sorites.metrics.detection.scenes import box_rows
from sorites.metrics.grids import (
    AXES,
    BELOW,
    BEYOND,
    BY,
    IS_GRID,
    REACHED,
    UNDEFINED,
    Array,
    Outcomes,
    Row,
    axes_of,
    axes_schema,
    first_crossing,
    grid_groups,
    interactions,
    point_of,
)
from sorites.metrics.half_accuracy import with_chance
from sorites.metrics.intervals import checked_resamples, cluster_bootstrap, clustered_share_bounds
from sorites.metrics.rows import CLEAN_KEY, IMAGE_COLUMNS, answer_frame, select_rows

_SAMPLE = pl.struct("source", pl.col("sample_id").str.replace(OBJECT_SEPARATOR + r"\d+$", "")).hash()
_SHARE = {"value": pl.Float64, "n": pl.Int64, "low": pl.Float64, "high": pl.Float64, "objects": pl.Int64}


# Surfaces.


def with_axes(table: Table, by: Sequence[str]) -> tuple[pl.LazyFrame, list[str]]:
    """Return the rows of grids with their severities, the clean rows at 0, and the columns to group them by.

    Args:
        table: The table.
        by: The columns of a question, which must not be those of images.
    """
    columns = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    rows, _, _ = box_rows(table, columns, IMAGE_COLUMNS)
    on_grid = rows.filter(IS_GRID)
    settings = on_grid.select("shift", "params").unique().collect(engine="streaming")
    lines = [
        {"shift": shift, "params": params, **axes_of(point_of(shift, params))}
        for shift, params in settings.iter_rows()
    ]
    kinds = {"shift": pl.String, "params": pl.String, **dict.fromkeys(AXES, pl.Float64)}
    shifted = on_grid.join(pl.LazyFrame(lines, schema=kinds), on=["shift", "params"])
    starts = {shift: axes_of((0.0,) * len(point_of(shift, params))) for shift, params in settings.iter_rows()}
    start = pl.LazyFrame(
        [{"shift": shift, **zero} for shift, zero in starts.items()],
        schema={name: kinds[name] for name in ("shift", *AXES)},
    )
    key = pl.struct(CLEAN_KEY).hash().alias("(start)")
    grids = on_grid.select(key, "shift", "family").unique().join(start, on="shift")
    clean = rows.filter(pl.col("shift") == CLEAN).with_columns(key).drop("shift", "family")
    at_zero = clean.join(grids, on="(start)").select(*rows.collect_schema().names(), *AXES)
    return pl.concat([shifted, at_zero]), [*columns, *AXES]


@add_metric
def grid_map(
    table: Table, by: Sequence[str] = BY, number: str = "map", resamples: int = RESAMPLES
) -> pl.DataFrame:
    """mAP at every combination of severities of two or three shifts, with the clean images at 0.

    Options, columns and interval are those of ``map``; ``by`` may contain ``class``.
    """
    return map(*with_axes(table, by), number=number, resamples=resamples)


@add_metric
def grid_recall(
    table: Table, by: Sequence[str] = BY, conf: float = CONFIDENCE, size: str | None = None
) -> pl.DataFrame:
    """Share of all objects that are found at every combination of severities, with the clean images at 0.

    Options, columns and interval are those of ``box_recall``; ``by`` may contain ``class``.
    """
    return box_recall(*with_axes(table, by), conf=conf, size=size)


@add_metric
def grid_kept(table: Table, by: Sequence[str] = BY, conf: float = CONFIDENCE) -> pl.DataFrame:
    """Share of the objects found in the clean image that are still found at every combination of severities.

    ``n`` counts samples and ``objects`` those objects that have not left the image; intervals are over
    samples.
    """
    found, rows, keys = _object_groups(table, by, conf)
    records = [{**key, **line} for key, outcomes in found for line in _kept_shares(_kept(outcomes))]
    frame = pl.DataFrame(records, schema=axes_schema(rows, keys, _SHARE))
    return answer_frame(frame, keys, *_SHARE, then=AXES)


def _object_groups(
    table: Table, by: Sequence[str], conf: float
) -> tuple[list[tuple[Row, Outcomes]], pl.LazyFrame, list[str]]:
    """Return the outcomes of the objects of each group; there is no chance of finding one."""
    rows, keys = select_rows(with_chance(objects(table, conf), 0.0), by, IMAGE_COLUMNS)
    return grid_groups(rows, keys, pl.struct(CLEAN_KEY).hash(), _SAMPLE), rows, keys


def _kept(outcomes: Outcomes) -> Outcomes:
    """Return the outcomes of the objects that are found in the clean image."""
    found = outcomes.correct[:, 0] == 1
    return Outcomes(outcomes.points, outcomes.correct[found], outcomes.chance[found], outcomes.cluster[found])


def _counts(kept: Outcomes, columns: Array) -> tuple[Array, Array]:
    """Return found and seen objects of each sample (rows) in each column of outcomes."""
    seen = np.isfinite(columns)
    code = np.unique(kept.cluster, return_inverse=True)[1]
    sums = np.zeros((2, int(code.max(initial=-1)) + 1, columns.shape[1]))
    np.add.at(sums[0], code, np.where(seen, columns, 0.0))
    np.add.at(sums[1], code, seen)
    return sums[0], sums[1]


def _kept_shares(kept: Outcomes) -> Iterator[Row]:
    found, seen = _counts(kept, kept.correct)
    for k, point in enumerate(kept.points):
        some = seen[:, k] > 0
        if not some.any():
            continue
        value = float(found[:, k].sum() / seen[:, k].sum())
        low, high = clustered_share_bounds(found[some, k], seen[some, k])
        counts = {"n": int(some.sum()), "objects": int(seen[:, k].sum())}
        yield {**axes_of(point), "value": value, "low": low, "high": high, **counts}


# The contour.


@add_metric
def box_failure_contour(
    table: Table, by: Sequence[str] = BY, conf: float = CONFIDENCE, resamples: int = 1000
) -> pl.DataFrame:
    """Severity of the last shift at which half of the objects found in the clean image are lost, at each
    severity of the others.

    The share of objects that are still found (``grid_kept``) is interpolated linearly along the last shift.
    ``status`` is "reached"; "below" where half are already lost without the last shift (the value is 0);
    "beyond" where more than half are found up to the highest severity, and the value is null; or "undefined"
    where no object is found in clean images. ``n`` counts samples with such an object and ``objects`` the
    objects. The interval is a percentile bootstrap over samples; bounds above the highest severity are null.
    """
    checked_resamples(resamples, or_none=False)
    found, rows, keys = _object_groups(table, by, conf)
    records = [{**key, **line} for key, outcomes in found for line in _contour(outcomes, resamples)]
    kinds = {**_SHARE, "status": pl.String}
    return answer_frame(pl.DataFrame(records, schema=axes_schema(rows, keys, kinds)), keys, *kinds, then=AXES)


def _contour(outcomes: Outcomes, resamples: int) -> Iterator[Row]:
    """Yield one line per combination of severities of all shifts but the last."""
    kept = _kept(outcomes)
    clusters = outcomes.cluster if not len(kept.correct) else kept.cluster
    counts = {"n": len(np.unique(clusters)), "objects": len(kept.correct)}
    for other in sorted({point[:-1] for point in outcomes.points}):
        severities = [s for s in outcomes.axes[-1] if outcomes.has((*other, s))]
        about: Row = {**axes_of(other), **counts, **dict.fromkeys(("value", "low", "high"))}
        if not len(kept.correct) or len(severities) < 2:
            yield {**about, "status": UNDEFINED}
            continue
        curve = np.column_stack([kept.column((*other, s)) for s in severities])
        yield {**about, **_line(*_counts(kept, curve), np.array(severities), resamples)}


def _line(found: Array, seen: Array, severities: NDArray[np.float64], resamples: int) -> Row:
    """Return where the share of kept objects falls to one half, with its interval."""
    k = len(severities)

    def half(sums: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            curves = sums[:, :k] / sums[:, k:]
        return first_crossing(curves, severities, np.full(len(sums), 0.5))

    sums = np.hstack([found, seen])
    value = float(half(sums.sum(axis=0, keepdims=True))[0])
    low, high = cluster_bootstrap(sums, half, resamples)
    ends = {"value": value, "low": min(low, value), "high": max(high, value)}
    status = BEYOND if not math.isfinite(value) else BELOW if value <= severities[0] else REACHED
    return {name: end if math.isfinite(end) else None for name, end in ends.items()} | {"status": status}


# The interaction.


@add_metric
def box_interaction(table: Table, by: Sequence[str] = BY, conf: float = CONFIDENCE) -> pl.DataFrame:
    """Joint loss of recall minus the sum of the losses of the shifts alone, at each combination.

    Like ``interaction``, with objects in place of images: the difference is computed per object, over all
    objects that are in the image at all of the points, and samples are the units of the interval and of p.
    ``n`` counts samples and ``objects`` the objects; ``recall`` is the joint recall and ``expected`` what the
    sum of the losses would leave.
    """
    found, rows, keys = _object_groups(table, by, conf)
    records = [
        {**key, **line, "recall": line["accuracy"], "objects": line["rows"]}
        for key, outcomes in found
        for line in interactions(outcomes)
    ]
    numbers = ("value", "n", "low", "high", "p", "p_adjusted", "recall", "expected", "objects")
    kinds = dict.fromkeys(numbers, pl.Float64) | {"n": pl.Int64, "objects": pl.Int64}
    frame = pl.DataFrame(
        [{name: record.get(name) for name in (*keys, *AXES, *numbers)} for record in records],
        schema=axes_schema(rows, keys, kinds),
    )
    return answer_frame(frame, keys, *numbers, then=AXES)
