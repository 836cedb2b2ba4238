"""Grids of two or three shifts at once: the accuracy surface, its failure contour, and the interaction.

A grid has the shift ``a x b`` and the severities of both in ``params``. Columns ``first``, ``second`` and
``third`` are the severities in the order of the name; ``third`` is null for two shifts. The clean images of
the samples are the point where all severities are 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN, add_metric
from sorites.core.compositions import TIMES
from sorites.core.errors import SoritesError
from sorites.core.table import Table
from sorites.metrics.half_accuracy import CHANCE, with_chance
from sorites.metrics.intervals import (
    checked_resamples,
    cluster_bootstrap,
    share,
    t_quantile,
)
from sorites.metrics.rows import (
    CLEAN_KEY,
    IMAGE_COLUMNS,
    REAL_SAMPLES,
    SAMPLE_HASH,
    answer_frame,
    judged_rows,
    select_rows,
)

Array = NDArray[np.float64]
Row = dict[str, Any]
# The severities of a point of a grid.
Point = tuple[float, ...]
AXES = ("first", "second", "third")
BY = ("model", "shift")
# Outcomes of a contour: accuracy falls to the level at the value, already without the last shift, or at no
# severity; or clean accuracy is not clearly above chance.
REACHED, BELOW, BEYOND, UNDEFINED = "reached", "below", "beyond", "undefined"


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of the samples of one group at every point of a grid.

    Attributes:
        points: The severities of each point; the clean images come first.
        correct: Rows x points, NaN where missing. A row is a sample, or an object of a sample.
        chance: The accuracy of a guess for each row.
        cluster: The number of the sample of each row, from 0.
    """

    points: list[Point]
    correct: Array
    chance: Array
    cluster: NDArray[np.int64]

    def column(self, point: Point) -> Array:
        """Return the outcomes of all samples at a point."""
        return self.correct[:, self.points.index(point)]

    @property
    def axes(self) -> list[list[float]]:
        """The severities along each axis, from 0."""
        return [sorted({point[k] for point in self.points}) for k in range(len(self.points[0]))]

    def has(self, point: Point) -> bool:
        """Return whether a point was evaluated."""
        return point in self.points


def axes_schema(rows: pl.LazyFrame, keys: Sequence[str], columns: Row) -> Row:
    """Return the schema of an answer: the group columns, the severities, and further columns."""
    known = rows.collect_schema()
    return {name: known[name] for name in keys} | dict.fromkeys(AXES, pl.Float64) | columns


# Rows of grids of shifts.
IS_GRID = (
    pl.col("severity").is_null()
    & pl.col("params").is_not_null()
    & pl.col("shift").str.contains(TIMES, literal=True)
)


def groups(table: Table, by: Sequence[str]) -> tuple[list[tuple[Row, Outcomes]], pl.LazyFrame, list[str]]:
    """Return the outcomes of each group of a grid, the rows of the table, and the group columns."""
    rows, keys = select_rows(with_chance(table), by, IMAGE_COLUMNS)
    return grid_groups(rows, keys, SAMPLE_HASH, SAMPLE_HASH), rows, keys


def grid_groups(
    rows: pl.LazyFrame, keys: Sequence[str], row: pl.Expr, cluster: pl.Expr
) -> list[tuple[Row, Outcomes]]:
    """Return the outcomes of each group of a grid.

    Args:
        rows: Label rows with their chance.
        keys: The group columns, among them the shift.
        row: What the outcomes at all points belong to: a sample or an object.
        cluster: The sample.

    Raises:
        SoritesError: If shifts would be pooled.
    """
    if "shift" not in keys:
        raise SoritesError("severities of different shifts have different units: add shift to by")
    judged = judged_rows(rows).filter(REAL_SAMPLES)
    columns = [
        row.alias("(row)"),
        cluster.alias("(cluster)"),
        pl.struct(CLEAN_KEY).hash().alias("(start)"),
        pl.col(CHANCE),
        pl.col("correct").cast(pl.Float64).alias("(correct)"),
    ]
    on_grid = judged.filter(IS_GRID).select(*keys, *columns, pl.col("params").alias("(params)"))
    clean = judged.filter(pl.col("shift") == CLEAN).select(*columns).collect(engine="streaming")
    loaded = on_grid.collect(engine="streaming")
    parts = loaded.partition_by(keys, as_dict=True) if loaded.height else {}
    return [
        (dict(zip(keys, key, strict=True)), _outcomes(str(part["shift"][0]), part, clean))
        for key, part in parts.items()
    ]


def point_of(shift: str, params: str) -> Point:
    """Return the severities of an image of a grid, in the order of the name of the grid."""
    severities = json.loads(params)
    return tuple(float(severities[name]) for name in shift.split(TIMES))


def _outcomes(shift: str, rows: pl.DataFrame, clean: pl.DataFrame) -> Outcomes:
    points_by_params = {text: point_of(shift, text) for text in rows["(params)"].unique()}
    start = (0.0,) * len(shift.split(TIMES))
    points = [start, *sorted(set(points_by_params.values()) - {start})]
    number = {point: i for i, point in enumerate(points)}
    own = clean.join(rows.select("(start)").unique(), on="(start)", how="semi")
    cells = np.concatenate(
        [np.zeros(own.height, np.int64), [number[points_by_params[text]] for text in rows["(params)"]]]
    ).astype(np.int64)
    row, cluster, correct, chance = (
        np.concatenate([own[name].to_numpy(), rows[name].to_numpy()])
        for name in ("(row)", "(cluster)", "(correct)", CHANCE)
    )
    _, first, place = np.unique(row, return_index=True, return_inverse=True)
    flat = place * len(points) + cells
    seen = np.bincount(flat, minlength=len(first) * len(points))
    right = np.bincount(flat, correct, len(seen))
    outcomes = np.where(seen > 0, right / np.maximum(seen, 1), np.nan).reshape(len(first), len(points))
    clusters = np.unique(cluster[first], return_inverse=True)[1]
    return Outcomes(points, outcomes, np.bincount(place, chance) / np.bincount(place), clusters)


def axes_of(point: Sequence[float | None]) -> Row:
    """Return the severities of a point by axis; axes that the grid does not have are null."""
    return dict(zip(AXES, (*point, None, None), strict=False))


@add_metric
def grid_accuracy(table: Table, by: Sequence[str] = BY) -> pl.DataFrame:
    """Accuracy at every combination of severities of two or three shifts, with the clean images at 0.

    ``n`` counts samples; Wilson interval.
    """
    found, rows, keys = groups(table, by)
    records = []
    for key, outcomes in found:
        for i, point in enumerate(outcomes.points):
            column = outcomes.correct[:, i]
            n = int(np.isfinite(column).sum())
            value = float(np.nanmean(column)) if n else None
            low, high = (None, None) if value is None else share(value, n)
            records.append({**key, **axes_of(point), "value": value, "n": n, "low": low, "high": high})
    kinds = {"value": pl.Float64, "n": pl.Int64, "low": pl.Float64, "high": pl.Float64}
    frame = pl.DataFrame(records, schema=axes_schema(rows, keys, kinds)).filter(pl.col("n") > 0)
    return answer_frame(frame, keys, *kinds, then=AXES)


# The contour.


@add_metric
def failure_contour(table: Table, by: Sequence[str] = BY, resamples: int = 1000) -> pl.DataFrame:
    """Severity of the last shift at which accuracy falls half-way from clean accuracy to chance, at each
    severity of the others.

    Accuracy is interpolated linearly along the last shift. ``status`` is "reached"; "below" where it is
    already lower without the last shift (the value is 0); "beyond" where it stays above up to the highest
    severity, and the value is null; or "undefined" where the 95 % interval of clean accuracy contains chance.
    ``clean`` and ``chance`` are the accuracies that the level is between. The interval is a percentile
    bootstrap over samples; bounds above the highest severity are null.
    """
    checked_resamples(resamples, or_none=False)
    found, rows, keys = groups(table, by)
    records = [{**key, **line} for key, outcomes in found for line in _contour(outcomes, resamples)]
    kinds = {
        "value": pl.Float64,
        "n": pl.Int64,
        "low": pl.Float64,
        "high": pl.Float64,
        "clean": pl.Float64,
        "chance": pl.Float64,
        "status": pl.String,
    }
    frame = pl.DataFrame(records, schema=axes_schema(rows, keys, kinds))
    return answer_frame(frame, keys, *kinds, then=AXES)


def _contour(outcomes: Outcomes, resamples: int) -> Iterator[Row]:
    """Yield one line per combination of severities of all shifts but the last."""
    axes = outcomes.axes
    others = sorted({point[:-1] for point in outcomes.points})
    start = outcomes.column(outcomes.points[0])
    started = int(np.isfinite(start).sum())
    clean, chance = (float(np.nanmean(start)) if started else math.nan), float(outcomes.chance.mean())
    low = share(clean, started)[0] if started else None
    for other in others:
        severities = [s for s in axes[-1] if outcomes.has((*other, s))]
        about: Row = {**axes_of((*other,)), "n": len(outcomes.correct), "chance": round(chance, 12)}
        about |= dict.fromkeys(("value", "low", "high")) | {"clean": clean if started else None}
        if low is None or low <= chance or len(severities) < 2:
            yield {**about, "status": UNDEFINED}
            continue
        curve = np.column_stack([outcomes.column((*other, s)) for s in severities])
        yield {**about, **_line(start, curve, outcomes.chance, np.array(severities), resamples)}


def _line(start: Array, curve: Array, chance: Array, severities: Array, resamples: int) -> Row:
    """Return where a curve of accuracy falls to the level, with its interval."""
    columns = np.column_stack([start, curve])
    seen = np.isfinite(columns)
    sums = np.column_stack([np.where(seen, columns, 0.0), seen, chance, np.ones(len(chance))])

    def crossing(drawn: Array) -> Array:
        k = columns.shape[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            means = drawn[:, :k] / drawn[:, k : 2 * k]
        level = (means[:, 0] + drawn[:, -2] / drawn[:, -1]) / 2
        return first_crossing(means[:, 1:], severities, level)

    value = float(crossing(sums.sum(axis=0, keepdims=True))[0])
    low, high = cluster_bootstrap(sums, crossing, resamples)
    ends = {"value": value, "low": min(low, value), "high": max(high, value)}
    status = BEYOND if not math.isfinite(value) else BELOW if value <= severities[0] else REACHED
    return {name: end if math.isfinite(end) else None for name, end in ends.items()} | {"status": status}


def first_crossing(curves: Array, severities: Array, level: Array) -> Array:
    """Return where each curve, interpolated linearly, first falls to its level.

    Args:
        curves: Rows of accuracy at the severities.
        severities: The severities in rising order.
        level: The level of each row.

    Returns:
        One severity per row: the first where a curve starts at or below its level, infinity where it stays
        above.
    """
    low = curves <= level[:, None] + 1e-12
    first = np.where(low.any(axis=1), low.argmax(axis=1), -1)
    rows, before = np.arange(len(curves)), np.maximum(first - 1, 0)
    above, below = curves[rows, before], curves[rows, first]
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.clip(np.nan_to_num((above - level) / (above - below)), 0, 1)
    at = severities[before] + part * (severities[first] - severities[before])
    return np.where(first < 0, np.inf, np.where(first == 0, severities[0], at))


# The interaction.


@add_metric
def interaction(table: Table, by: Sequence[str] = BY) -> pl.DataFrame:
    """Joint loss of accuracy minus the sum of the losses of the shifts alone, at each combination.

    Positive: together they cost more than the sum. The difference is computed per sample, over samples that
    were judged at all of the points. Its interval is Student's over samples, with two samples added so that
    it does not collapse where all agree. ``p`` is the two-sided p-value and ``p_adjusted`` the value
    corrected for all combinations of the group (Holm). ``accuracy`` is the joint accuracy and ``expected``
    what the sum of the losses would leave, which may be below 0: losses cannot add up to more than the
    accuracy, so combinations of severe shifts have negative values. The line with null severities is the mean
    over the combinations whose expected accuracy is not negative; it has no interval and no p, because these
    combinations are chosen by the same data.
    """
    found, rows, keys = groups(table, by)
    records = [{**key, **line} for key, outcomes in found for line in interactions(outcomes)]
    numbers = ("value", "low", "high", "p", "p_adjusted", "accuracy", "expected")
    kinds = dict.fromkeys(numbers, pl.Float64) | {"n": pl.Int64, "rows": pl.Int64}
    frame = pl.DataFrame(records, schema=axes_schema(rows, keys, kinds))
    order = ("value", "n", "low", "high", "p", "p_adjusted", "accuracy", "expected")
    return answer_frame(frame, keys, *order, then=AXES)


def interactions(outcomes: Outcomes) -> list[Row]:
    """Return a line per point where every shift acts, and the line of their mean.

    ``n`` counts samples and ``rows`` the rows of the outcomes, which may be objects of one sample.
    """
    start = outcomes.column(outcomes.points[0])
    lines, excesses = [], []
    for point in outcomes.points:
        alone = [tuple(s if i == k else 0.0 for i, s in enumerate(point)) for k in range(len(point))]
        if not all(point) or not all(map(outcomes.has, alone)):
            continue
        single = np.sum([outcomes.column(one) for one in alone], axis=0)
        joint = outcomes.column(point)
        expected = single - (len(point) - 1) * start
        excess = expected - joint
        known = np.isfinite(excess)
        if not known.any():
            continue
        lines.append(
            {
                **axes_of(point),
                **mean_excess(influences(excess[known], outcomes.cluster[known])),
                "rows": int(known.sum()),
                "accuracy": float(joint[known].mean()),
                "expected": float(expected[known].mean()),
            }
        )
        if lines[-1]["expected"] >= 0:
            excesses.append(excess)
    for line, adjusted in zip(lines, holm([line["p"] for line in lines]), strict=True):
        line["p_adjusted"] = adjusted
    return [*lines, *_mean_line(excesses, outcomes.cluster)]


def _mean_line(excesses: Sequence[Array], cluster: NDArray[np.int64]) -> list[Row]:
    if not excesses:
        return []
    together = np.column_stack(excesses)
    known = np.isfinite(together).any(axis=1)
    unknown: Row = dict.fromkeys(("low", "high", "p", "p_adjusted", "accuracy", "expected"))
    value = float(np.nanmean(together[known], axis=1).mean())
    n = len(np.unique(cluster[known]))
    unknown["rows"] = int(known.sum())
    return [{**axes_of((None,) * 3), "value": value, "n": n, **unknown}]


def influences(values: Array, cluster: NDArray[np.int64]) -> Array:
    """Return one value per cluster, whose mean is that of all values.

    The mean of all values is a ratio, the sum over clusters divided by their sizes. Each cluster stands for
    the mean plus its influence on the ratio, so the spread over clusters is the error of the mean.
    """
    codes, n = np.unique(cluster, return_inverse=True)[1], len(values)
    if not n or codes.max() + 1 == n:
        return values
    sizes, mean = np.bincount(codes), values.mean()
    return np.asarray(mean + (np.bincount(codes, values) - mean * sizes) * len(sizes) / n)


def mean_excess(values: Array) -> Row:
    """Return the mean of one excess per sample, its interval, and the p-value of the hypothesis that it is 0.

    Excesses are sums of outcomes, which few samples may agree in. Two samples are added, half a sample that
    lost one image more, half one that lost one less, and one without excess, as Agresti & Min (2005) do for
    two outcomes: where all samples agree, the interval does not collapse, and p is not 0. The quantile is
    Student's. The interval contains 0 exactly where p is above 5 %, up to its extension to the mean itself.
    """
    from scipy.special import stdtr

    n, mean = len(values), math.fsum(values) / len(values)
    if n < 2:
        return {"value": mean, "n": n, "low": None, "high": None, "p": None}
    total = n + 2
    middle = math.fsum(values) / total
    square = (math.fsum(values * values) + 1) / total
    error = math.sqrt(max(square - middle**2, 0.0) / total)
    half = t_quantile(n - 1) * error
    p = float(2 * stdtr(n - 1, -abs(middle) / error))
    return {"value": mean, "n": n, "low": min(middle - half, mean), "high": max(middle + half, mean), "p": p}


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Return p-values corrected for their number (Holm 1979); None stays None."""
    known = sorted((p, i) for i, p in enumerate(values) if p is not None)
    adjusted: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (p, i) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - rank)))
        adjusted[i] = largest
    return adjusted
