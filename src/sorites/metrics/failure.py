"""Failure points: the severity at which a model first fails.

A trajectory is one sample under one shift at rising severity, seen by one model, starting from the clean picture.
Its failure point is the least severity judged wrong, probes included: 0 when the clean picture is already wrong,
null when the trajectory survived, that is, was right at every severity judged. A missing row is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from sorites.core import CLEAN, add_metric
from sorites.errors import SoritesError
from sorites.metrics._hashed import counted_failures
from sorites.metrics._intervals import wilson_interval
from sorites.metrics._rows import CLEAN_KEY, IMAGE_COLUMNS, REAL_SAMPLES, SHIFTED, answer_frame, judged_rows, select_rows
from sorites.table import Table

AT_ONCE = 50_000_000
"""Rows whose trajectories are counted at a time: less than two gigabytes."""
TRAJECTORY = ("run_id", "model", "shift", "sample_id", "seed")


def trajectories(table: Table, keep: Sequence[str] = ()) -> pl.LazyFrame:
    """Return one row per trajectory: its key, the columns of ``keep``, ``failure`` (severity or null) and ``top``.

    ``top`` is the greatest severity at which the trajectory was judged.
    """
    rows, _ = select_rows(table, [*TRAJECTORY, *keep], IMAGE_COLUMNS)
    return _trajectories(judged_rows(rows, probes=True).filter(REAL_SAMPLES), keep)


def _trajectories(rows: pl.LazyFrame, keep: Sequence[str]) -> pl.LazyFrame:
    key = list(dict.fromkeys([*TRAJECTORY, *keep]))
    wrong_at = pl.when(pl.col("correct").not_()).then("severity")
    failures = rows.filter(SHIFTED).group_by(key).agg(failure=wrong_at.min(), top=pl.col("severity").max())
    started = rows.filter(pl.col("shift") == CLEAN).group_by(CLEAN_KEY).agg(lost=pl.col("correct").not_().any())
    joined = failures.join(started, on=CLEAN_KEY, how="left", nulls_equal=True)
    return joined.with_columns(failure=pl.when("lost").then(0.0).otherwise("failure")).drop("lost")


@add_metric
def failure_point(table: Table, by: Sequence[str] = ("model", "shift"), relative: bool = False) -> pl.DataFrame:
    """Median failure point of the trajectories, in the unit of the shift; null when at least half survive.

    Survivors, counted in ``survived``, rank above every failure. The interval lies between order statistics
    (binomial, no assumption on the distribution): ``low`` is 0 where ``n`` is too small for one, ``high`` is null where it lies
    above the greatest severity. ``relative`` gives fractions of the greatest severity of the shift in the table, so that shifts
    can be pooled: ``by=("model",), relative=True`` is the fraction at which half of the trajectories fail. Trajectories are
    treated as independent, so pooling the shifts of one sample gives an interval that is somewhat too narrow.
    """
    rows = _row_count(table)
    counts, keys = _large(table, by, relative, -(-rows // AT_ONCE)) if rows > AT_ONCE else _small(table, by, relative)
    ordered = counts.group_by(*keys, "failure").agg(pl.col("count").sum())
    ordered = ordered.sort([*keys, "failure"])
    cumulated = ordered.with_columns(up_to=pl.col("count").cum_sum().over(keys), n=pl.col("count").sum().over(keys))
    ranked = cumulated.with_columns(rank=lower_rank(cumulated["n"]))
    medians = ranked.group_by(keys).agg(
        n=pl.col("n").first(),
        survived=pl.col("count").filter(pl.col("failure").is_infinite()).sum(),
        value=(_nth((pl.col("n") + 1) // 2) + _nth(pl.col("n") // 2 + 1)) / 2,
        low=pl.when(pl.col("rank").first() > 0).then(_nth(pl.col("rank"))).otherwise(0.0),
        high=pl.when(pl.col("rank").first() > 0).then(_nth(pl.col("n") - pl.col("rank") + 1)),
    )
    beyond = [pl.when(pl.col(name).is_finite()).then(name).alias(name) for name in ("value", "low", "high")]
    return answer_frame(medians.with_columns(beyond), keys, "value", "n", "low", "high", "survived")


def _small(table: Table, by: Sequence[str], relative: bool) -> tuple[pl.DataFrame, list[str]]:
    """Return the number of trajectories by keys and failure point, infinite for survivors, and the keys."""
    points, _, keys = failure_points(table, by, relative)
    failures = pl.col("failure").fill_null(float("inf"))
    return points.group_by(*keys, failures).agg(pl.len().cast(pl.Int64).alias("count")).collect(engine="streaming"), keys


def _large(table: Table, by: Sequence[str], relative: bool, parts: int) -> tuple[pl.DataFrame, list[str]]:
    """Return the same, counted in parts of whole samples."""
    rows, keys = _real_rows(table, by, relative)
    judged = judged_rows(rows, probes=True)
    trajectory = list(dict.fromkeys([*TRAJECTORY, *keys]))
    apart = list(dict.fromkeys([*keys, "shift"]))
    counts = pl.concat(counted_failures(judged, apart, trajectory, parts))
    if relative:
        counts = _fraction(counts.lazy(), _greatest(judged), "failure").collect()
    return counts, keys


def _row_count(table: Table) -> int:
    if isinstance(table, pl.LazyFrame):
        return int(table.select(pl.len()).collect(engine="streaming").item())
    return table.height


def _nth(rank: pl.Expr) -> pl.Expr:
    """The failure point of this rank, counted from 1, among sorted and counted failure points."""
    return pl.col("failure").filter(pl.col("up_to") >= rank).first()


def lower_rank(n: pl.Series) -> pl.Series:
    """Return the greatest r for which the r-th of n values is below the true median with 97.5 % certainty; 0 if there is none."""
    from scipy.special import bdtr, bdtrik

    sizes, where = np.unique(n.to_numpy(), return_inverse=True)
    rank = np.ceil(bdtrik(0.025, sizes, 0.5))
    one_less = np.maximum(rank - 1, 0)
    rank = np.where(bdtr(one_less, sizes, 0.5) >= 0.025, one_less, rank)
    return pl.Series(rank[where], dtype=pl.Int64)


@add_metric
def survival(table: Table, by: Sequence[str] = ("model", "shift"), relative: bool = False) -> pl.DataFrame:
    """Share of trajectories not yet failed at each severity (failure point > severity); Wilson interval.

    There is a row for 0, for each severity of the suite and for each failure point. ``n`` counts the trajectories judged at
    this severity or a greater one; where all end at the same severity the curve is Kaplan and Meier's. ``relative`` is as in
    ``failure_point``.
    """
    points, grid, keys = failure_points(table, by, relative)
    counts, severities = _collect(points, grid, keys)
    fell = counts.filter(pl.col("failure").is_not_null())
    events = [
        fell.select(*keys, severity="failure", fell="count"),
        counts.select(*keys, severity="top", ended="count"),
        fell.select(*keys, severity="top", ended_fallen="count"),
        severities,
    ]
    steps = pl.concat(events, how="diagonal").group_by(*keys, "severity").agg(pl.exclude(*keys, "severity").sum())
    ordered = steps.sort([*keys, "severity"])
    so_far, before = _so_far("fell", keys), _so_far("ended", keys) - pl.col("ended")
    fallen = so_far - (_so_far("ended_fallen", keys) - pl.col("ended_fallen"))
    alive = ordered.with_columns(n=pl.col("ended").sum().over(keys) - before, fallen=fallen)
    shares = alive.with_columns(value=1 - pl.col("fallen") / pl.col("n"))
    return _with_wilson(shares, keys, ["severity"])


def _so_far(name: str, keys: list[str]) -> pl.Expr:
    return pl.col(name).cum_sum().over(keys)


@add_metric
def failure_histogram(table: Table, by: Sequence[str] = ("model", "shift"), relative: bool = False) -> pl.DataFrame:
    """Share of trajectories that fail between two severities, ``above`` < failure point <= ``severity``; Wilson interval.

    The first bracket (``severity`` 0, ``above`` null) holds those that are wrong when clean; the last one (``severity`` null)
    holds the survivors. The shares of each group sum to 1.
    """
    points, grid, keys = failure_points(table, by, relative)
    counts, severities = _collect(points, grid, keys)
    edges = severities.sort([*keys, "severity"]).with_columns(above=pl.col("severity").shift(1).over(keys))
    last = edges.group_by(keys).agg(above=pl.col("severity").max(), severity=pl.lit(None, pl.Float64))
    brackets = pl.concat([edges, last.select(edges.columns)])
    hits = brackets.join(counts, on=keys, nulls_equal=True).filter(_inside())
    full = brackets.join(
        hits.group_by(*keys, "severity").agg(pl.col("count").sum()), on=[*keys, "severity"], how="left", nulls_equal=True
    )
    shares = full.with_columns(pl.col("count").fill_null(0)).with_columns(n=pl.col("count").sum().over(keys))
    return _with_wilson(shares.with_columns(value=pl.col("count") / pl.col("n")), keys, ["above", "severity"])


def _inside() -> pl.Expr:
    failure, survived = pl.col("failure"), pl.col("failure").is_null()
    reached = pl.col("above").is_null() | (failure > pl.col("above"))
    return pl.when(pl.col("severity").is_null()).then(survived).otherwise(reached & (failure <= pl.col("severity")))


def _with_wilson(shares: pl.DataFrame, keys: list[str], then: list[str]) -> pl.DataFrame:
    counted = shares.with_columns(**wilson_interval(pl.col("value"), pl.col("n")))
    return answer_frame(counted, keys, "value", "n", "low", "high", then=then)


def failure_points(table: Table, by: Sequence[str], relative: bool) -> tuple[pl.LazyFrame, pl.LazyFrame, list[str]]:
    """Return the trajectories, the severities of the suite, and the columns to group both by."""
    rows, keys = _real_rows(table, by, relative)
    points = _trajectories(judged_rows(rows, probes=True), keys)
    shifted = judged_rows(rows).filter(SHIFTED)
    grid = shifted.select(*keys, "severity", *({"shift"} - set(keys))).unique()
    if relative:
        greatest = _greatest(judged_rows(rows, probes=True))
        points = _fraction(points, greatest, "failure", "top")
        grid = _fraction(grid, greatest, "severity")
    return points, grid, keys


def _real_rows(table: Table, by: Sequence[str], relative: bool) -> tuple[pl.LazyFrame, list[str]]:
    rows, keys = select_rows(table, by, IMAGE_COLUMNS)
    if "shift" not in keys and not relative:
        raise SoritesError("severities of different shifts have different units: add shift to by, or set relative=True")
    return rows.filter(REAL_SAMPLES), keys


def _greatest(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.filter(SHIFTED).group_by("shift").agg(greatest=pl.col("severity").max())


def _fraction(frame: pl.LazyFrame, greatest: pl.LazyFrame, *names: str) -> pl.LazyFrame:
    joined = frame.join(greatest, on="shift", how="left", nulls_equal=True)
    return joined.with_columns([pl.col(name) / pl.col("greatest") for name in names]).drop("greatest")


def _collect(points: pl.LazyFrame, grid: pl.LazyFrame, keys: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the trajectories counted by failure and top, and the severities from 0 up, in one pass."""
    counted = points.group_by(*keys, "failure", "top").agg(pl.len().cast(pl.Int64).alias("count"))
    counts, severities = pl.collect_all([counted, grid.select(*keys, "severity").unique()], engine="streaming")
    ends = counts.group_by(keys).agg(severity=pl.concat_list(pl.lit(0.0), pl.col("top").max())).explode("severity")
    return counts, pl.concat([severities, ends.select(severities.columns)]).unique()
