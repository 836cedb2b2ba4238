"""The severity at which a model has lost half of the accuracy it has on clean pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import add_metric
from sorites.errors import SoritesError
from sorites.metrics._resampling import SEED, checked_resamples, percentile_ranks
from sorites.metrics._rows import (
    IMAGE_COLUMNS,
    REAL_SAMPLES,
    SAMPLE_KEY,
    SHIFTED,
    answer_frame,
    judged_rows,
    select_rows,
    with_clean,
)
from sorites.table import Table

Array = NDArray[np.float64]
CELLS = 1 << 23
"""This many weights are drawn at a time."""


@add_metric
def half_accuracy(table: Table, by: Sequence[str] = ("model", "shift"), resamples: int = 1000) -> pl.DataFrame:
    """Severity at which accuracy, joined by straight lines from the clean pictures on, is first half of the clean accuracy.

    Unlike ``failure_point`` it does not count pictures that were wrong when clean. The value is null where accuracy stays above
    half up to the greatest severity. ``n`` counts samples and ``clean`` is their clean accuracy. The interval is a percentile
    bootstrap over samples: ``high`` is null where it lies above the greatest severity, ``low`` where it does too.
    """
    checked_resamples(resamples, or_none=False)
    _, keys = select_rows(table, by, IMAGE_COLUMNS)
    if "shift" not in keys:
        raise SoritesError("severities of different shifts have different units: add shift to by")
    rows, _ = select_rows(with_clean(table), keys)
    judged = judged_rows(rows).filter(SHIFTED & REAL_SAMPLES)
    cells = judged.group_by(*keys, *(key for key in SAMPLE_KEY if key not in keys), "severity").agg(
        right=pl.col("correct").cast(pl.Float64).mean()
    )
    held = cells.collect(engine="streaming")
    found = [
        {**dict(zip(keys, key, strict=True)), **_half(group, resamples)}
        for key, group in held.group_by(keys, maintain_order=True)
    ]
    numbers = dict.fromkeys(("value", "low", "high", "clean"), pl.Float64())
    schema = {**{key: held.schema[key] for key in keys}, **numbers, "n": pl.Int64()}
    return answer_frame(pl.DataFrame(found, schema=schema), keys, "value", "n", "low", "high", "clean")


def _half(group: pl.DataFrame, resamples: int) -> dict[str, float | int | None]:
    """Return the crossing of one model and shift; a row of the matrix is a sample, a column a severity, and NaN is missing."""
    severities = sorted(group["severity"].unique())
    samples = group.select(pl.struct(SAMPLE_KEY).rank("dense")).to_series().to_numpy() - 1
    matrix = np.full((int(samples.max()) + 1, len(severities)), np.nan)
    matrix[samples, np.searchsorted(severities, group["severity"].to_numpy())] = group["right"].to_numpy()
    held = np.isfinite(matrix)
    right, places = np.where(held, matrix, 0.0), np.array(severities)
    clean = right[:, 0].sum() / max(held[:, 0].sum(), 1) if severities[0] == 0 else None
    nothing: dict[str, float | int | None] = {"value": None, "low": None, "high": None, "n": len(matrix), "clean": clean}
    if not clean:
        return nothing
    value = crossing(right.sum(axis=0, keepdims=True), held.sum(axis=0, keepdims=True, dtype=np.float64), places)[0]
    rng, batch = np.random.default_rng(SEED), max(1, CELLS // len(matrix))
    drawn = []
    for start in range(0, resamples, batch):
        weights = rng.multinomial(len(matrix), np.full(len(matrix), 1 / len(matrix)), min(batch, resamples - start)).astype(
            np.float64
        )
        drawn.append(crossing(weights @ right, weights @ held, places))
    low, high = percentile_ranks(np.concatenate(drawn))
    ends = (value, min(low, value), max(high, value))
    return {
        **nothing,
        **dict(zip(("value", "low", "high"), (x if np.isfinite(x) else None for x in map(float, ends)), strict=True)),
    }


def crossing(right: Array, seen: Array, severities: Array) -> Array:
    """Return for each row of sums where the curve first comes down to half of its start; infinity where it does not."""
    with np.errstate(divide="ignore", invalid="ignore"):
        curve = right / seen
        low = curve <= curve[:, :1] / 2
        low[:, 0] = False
        first = np.where(low.any(axis=1), low.argmax(axis=1), 0)
        rows = np.arange(len(curve))
        above, below = curve[rows, first - 1], curve[rows, first]
        part = (above - curve[:, 0] / 2) / (above - below)
    at = severities[first - 1] + np.clip(part, 0, 1) * (severities[first] - severities[first - 1])
    return np.where(first > 0, at, np.inf)
