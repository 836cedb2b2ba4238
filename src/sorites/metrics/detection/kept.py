"""Objects that a detector keeps: of those found in the clean image, the share still found at each severity.

Chance plays no part, and objects that are missed in the clean image do not count. An object that a shift
moves out of the image is no object there and is left out at that severity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN
from sorites.core.table import Table
from sorites.metrics.detection.at_confidence import CONFIDENCE
from sorites.metrics.detection.failure import OBJECT_SEPARATOR, objects
from sorites.metrics.half_accuracy import BEYOND, REACHED, crossing
from sorites.metrics.intervals import cluster_bootstrap, clustered_share_bounds
from sorites.metrics.rows import ON_GRID, SHIFTED

Array = NDArray[np.float64]
KEY = ["run_id", "model", "source", "sample_id"]


@dataclass(frozen=True)
class Kept:
    """Objects of one model and shift that are found in the clean image.

    Attributes:
        model: The model.
        shift: The shift.
        severities: The severities in rising order, from 0 (the clean image) on.
        found: How many of the objects of each sample are found at each severity.
        seen: How many there are.
    """

    model: str
    shift: str
    severities: Array
    found: Array
    seen: Array

    @property
    def objects(self) -> int:
        """The number of objects that are found in clean images."""
        return int(self.seen[:, 0].sum())

    @property
    def sums(self) -> Array:
        """Found and seen objects of each sample, side by side."""
        return np.hstack([self.found, self.seen])

    def half(self, sums: Array) -> Array:
        """Return the severity at which half of the objects are lost, for each row of sums."""
        k = len(self.severities)
        return crossing(sums[:, :k], sums[:, k:], self.severities)

    def lost(self, sums: Array) -> Array:
        """Return one minus the mean height of the curve of kept objects, for each row of sums."""
        k = len(self.severities)
        with np.errstate(divide="ignore", invalid="ignore"):
            curve = sums[:, :k] / sums[:, k:]
        return np.asarray(1 - np.trapezoid(curve, self.severities, axis=1) / self.severities[-1])


def kept_objects(table: Table, conf: float = CONFIDENCE) -> Iterator[Kept]:
    """Yield the objects of each model and shift with ordered severities.

    Args:
        table: The table.
        conf: The confidence from which boxes count.
    """
    found = objects(table, conf).filter(ON_GRID).select(*KEY, "object", "shift", "severity", "correct")
    at_first = found.filter(pl.col("shift") == CLEAN)
    chosen = at_first.filter("correct").select(*KEY, "object").unique()
    kept = found.join(chosen, on=[*KEY, "object"], how="semi", nulls_equal=True)
    clean, shifted = kept.filter(pl.col("shift") == CLEAN), kept.filter(SHIFTED)
    for model, shift in shifted.select("model", "shift").unique().sort("model", "shift").iter_rows():
        rows = shifted.filter(model=model, shift=shift)
        met = rows.select(*KEY, "object").unique()
        own = clean.join(met, on=[*KEY, "object"], how="semi", nulls_equal=True)
        yield _matrices(model, shift, pl.concat([own.with_columns(severity=pl.lit(0.0)), rows]))


def _matrices(model: str, shift: str, rows: pl.DataFrame) -> Kept:
    image = pl.struct("run_id", "source", pl.col("sample_id").str.replace(OBJECT_SEPARATOR + r"\d+$", ""))
    sample = rows.select(image.rank("dense")).to_series().to_numpy().astype(np.int64) - 1
    severities = rows["severity"].unique().sort().to_numpy()
    shape = (int(sample.max()) + 1, len(severities))
    cell = sample * shape[1] + np.searchsorted(severities, rows["severity"].to_numpy())
    counts = [
        np.bincount(cell, weights, shape[0] * shape[1]).astype(np.float64).reshape(shape)
        for weights in (rows["correct"].to_numpy().astype(np.float64), np.ones(len(cell)))
    ]
    return Kept(model, shift, severities, *counts)


def kept_shares(table: Table, conf: float = CONFIDENCE) -> pl.DataFrame:
    """Return the share of the objects found in the clean image that are still found at each severity.

    Args:
        table: The table.
        conf: The confidence from which boxes count.

    Returns:
        ``model``, ``shift``, ``severity``, ``value``, ``n`` (objects), ``low`` and ``high``; samples are the
            units of the interval.
    """
    records = [record for kept in kept_objects(table, conf) for record in _shares(kept)]
    schema = {"model": pl.String(), "shift": pl.String(), "severity": pl.Float64(), **_VALUES}
    return pl.DataFrame(records, schema=schema)


def _shares(kept: Kept) -> Iterator[dict[str, Any]]:
    for k, severity in enumerate(kept.severities.tolist()):
        found, seen = kept.found[:, k], kept.seen[:, k]
        n = int(seen.sum())
        if not n:
            continue
        low, high = clustered_share_bounds(found[seen > 0], seen[seen > 0])
        value = float(found.sum() / n)
        ends = {
            "low": None if low is None else min(low, value),
            "high": None if high is None else max(high, value),
        }
        yield {"model": kept.model, "shift": kept.shift, "severity": severity, "value": value, "n": n, **ends}


def half_objects_severities(table: Table, conf: float = CONFIDENCE, resamples: int = 1000) -> pl.DataFrame:
    """Return the severity at which half of the objects that are found in the clean image are lost.

    The share of objects that are still found is interpolated linearly. Intervals are percentile bootstraps
    over samples.

    Args:
        table: The table.
        conf: The confidence from which boxes count.
        resamples: The number of resamples.

    Returns:
        ``model``, ``shift``, ``value``, ``low``, ``high`` (null: beyond the greatest severity), ``n``
            (samples with such an object), ``objects``, ``status`` ("reached" or "beyond"), and ``lost``
            with its interval: the mean share of lost objects between clean and the greatest severity.
    """
    records = [_half(kept, resamples) for kept in kept_objects(table, conf)]
    return pl.DataFrame(records, schema={"model": pl.String(), "shift": pl.String(), **_HALF})


def _half(kept: Kept, resamples: int) -> dict[str, Any]:
    sums = kept.sums
    total = sums.sum(axis=0, keepdims=True)
    value, lost = float(kept.half(total)[0]), float(kept.lost(total)[0])
    record = {"model": kept.model, "shift": kept.shift, "n": len(sums), "objects": kept.objects}
    low, high = cluster_bootstrap(sums, kept.half, resamples)
    low_lost, high_lost = cluster_bootstrap(sums, kept.lost, resamples)
    ends = {"value": value, "low": min(low, value), "high": max(high, value)}
    means = {"lost": lost, "lost_low": min(low_lost, lost), "lost_high": max(high_lost, lost)}
    finite = {name: end if np.isfinite(end) else None for name, end in (ends | means).items()}
    return {**record, **finite, "status": REACHED if np.isfinite(value) else BEYOND}


_VALUES: dict[str, pl.DataType] = {
    "value": pl.Float64(),
    "n": pl.Int64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
}
_HALF: dict[str, pl.DataType] = {
    **_VALUES,
    "objects": pl.Int64(),
    "lost": pl.Float64(),
    "lost_low": pl.Float64(),
    "lost_high": pl.Float64(),
    "status": pl.String(),
}
