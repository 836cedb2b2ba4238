"""Failure severities: the severity at which a model first fails.

A trajectory is one sample under one shift at rising severity, evaluated by one model and starting from
the clean image. Its failure severity is the lowest severity at which it is misclassified, probes
included: 0 if the clean image is already misclassified, null if the trajectory survives, that is, if it
is correct at every severity judged. Missing rows are left out.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN, add_metric
from sorites.core.errors import SoritesError
from sorites.core.table import Table
from sorites.metrics.intervals import SEED, checked_resamples, percentile_ranks, wilson_interval
from sorites.metrics.rows import (
    CLEAN_KEY,
    IMAGE_COLUMNS,
    REAL_SAMPLES,
    SAMPLE_KEY,
    SHIFTED,
    answer_frame,
    judged_rows,
    select_rows,
    with_clean,
)

# Large tables: trajectories are identified by 64-bit hashes, because their keys would not fit into memory.


def counted_failures(
    rows: pl.LazyFrame, keys: Sequence[str], trajectory: Sequence[str], parts: int
) -> Iterator[pl.DataFrame]:
    """Yield the number of trajectories (``count``) by keys and failure severity, in parts of whole
    samples.

    Args:
        rows: Judged rows.
        keys: The group columns.
        trajectory: The columns that identify a trajectory; they include ``keys``.
        parts: The number of parts.
    """
    names = _names(rows.filter(SHIFTED), keys, trajectory)
    for part in range(parts):
        part_rows = rows.filter(pl.col("sample_id").hash(0) % parts == part)
        yield _count_part(part_rows, keys, trajectory).join(names, on="group").drop("group")


def _count_part(rows: pl.LazyFrame, keys: Sequence[str], trajectory: Sequence[str]) -> pl.DataFrame:
    hashed = [_hash(name, trajectory) for name in trajectory]
    wrong_at = pl.when(pl.col("correct").not_()).then("severity")
    marked = rows.filter(SHIFTED).select(*hashed, failure=wrong_at)
    hashed_rows = marked.select(
        "failure",
        trajectory=_combined_hash(trajectory),
        start=_combined_hash(CLEAN_KEY),
        group=_combined_hash(keys),
    )
    points = hashed_rows.group_by("trajectory").agg(
        pl.col("start").first(), pl.col("group").first(), pl.col("failure").min()
    )
    clean = rows.filter((pl.col("shift") == CLEAN) & pl.col("correct").not_())
    misclassified_clean = (
        clean.select([_hash(name, trajectory) for name in CLEAN_KEY])
        .select(start=_combined_hash(CLEAN_KEY), lost=True)
        .unique()
    )
    failure = pl.when("lost").then(0.0).otherwise(pl.col("failure").fill_null(float("inf")))
    with_clean_failures = points.join(misclassified_clean, on="start", how="left").select(
        "group", failure=failure
    )
    return (
        with_clean_failures.group_by("group", "failure")
        .agg(pl.len().cast(pl.Int64).alias("count"))
        .collect(engine="streaming")
    )


def _names(rows: pl.LazyFrame, keys: Sequence[str], trajectory: Sequence[str]) -> pl.DataFrame:
    """Return the values of the keys with their hash."""
    unique = rows.select(keys).unique().collect(engine="streaming")
    hashed = unique.lazy().with_columns([_hash(name, trajectory) for name in keys])
    return hashed.select(*keys, group=_combined_hash(keys)).collect()


def _hash(name: str, trajectory: Sequence[str]) -> pl.Expr:
    """Return a hash with a different seed for each column, because the hashes are combined by XOR."""
    return pl.col(name).hash(list(trajectory).index(name) + 1).alias(f"hash of {name}")


def _combined_hash(names: Sequence[str]) -> pl.Expr:
    return functools.reduce(operator.xor, [pl.col(f"hash of {name}") for name in names])


# Rows whose trajectories are counted at a time, in less than 2 GB.
ROWS_PER_PART = 50_000_000
TRAJECTORY = ("run_id", "model", "shift", "sample_id", "seed")


def trajectories(table: Table, keep: Sequence[str] = ()) -> pl.LazyFrame:
    """Return one row per trajectory: its key, the columns of ``keep``, ``failure`` (severity or null) and
    ``top``.

    ``top`` is the highest severity at which the trajectory was judged.
    """
    rows, _ = select_rows(table, [*TRAJECTORY, *keep], IMAGE_COLUMNS)
    return _trajectories(judged_rows(rows, probes=True).filter(REAL_SAMPLES), keep)


def _trajectories(rows: pl.LazyFrame, keep: Sequence[str]) -> pl.LazyFrame:
    key = list(dict.fromkeys([*TRAJECTORY, *keep]))
    wrong_at = pl.when(pl.col("correct").not_()).then("severity")
    failures = rows.filter(SHIFTED).group_by(key).agg(failure=wrong_at.min(), top=pl.col("severity").max())
    started = (
        rows.filter(pl.col("shift") == CLEAN).group_by(CLEAN_KEY).agg(lost=pl.col("correct").not_().any())
    )
    joined = failures.join(started, on=CLEAN_KEY, how="left", nulls_equal=True)
    return joined.with_columns(failure=pl.when("lost").then(0.0).otherwise("failure")).drop("lost")


@add_metric
def failure_severity(
    table: Table, by: Sequence[str] = ("model", "shift"), relative: bool = False
) -> pl.DataFrame:
    """Median failure severity of the trajectories, in the unit of the shift; null when at least half
    survive.

    Survivors, counted in ``survived``, rank above every failure. The interval is between order
    statistics (binomial, distribution-free): ``low`` is 0 where ``n`` is too small for one, ``high`` is
    null where it is above the highest severity. With ``relative``, severities are fractions of the
    highest severity of the shift in the table, so that shifts can be pooled: ``by=("model",),
    relative=True`` is the fraction at which half of the trajectories fail. Trajectories are treated as
    independent, so the interval is somewhat too narrow where the shifts of one sample are pooled.
    """
    rows = _row_count(table)
    counts, keys = (
        _count_in_parts(table, by, relative, -(-rows // ROWS_PER_PART))
        if rows > ROWS_PER_PART
        else _count_at_once(table, by, relative)
    )
    ordered = counts.group_by(*keys, "failure").agg(pl.col("count").sum())
    ordered = ordered.sort([*keys, "failure"])
    cumulated = ordered.with_columns(
        up_to=pl.col("count").cum_sum().over(keys), n=pl.col("count").sum().over(keys)
    )
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


def _count_at_once(table: Table, by: Sequence[str], relative: bool) -> tuple[pl.DataFrame, list[str]]:
    """Return the number of trajectories by keys and failure severity (infinite for survivors), and the
    keys.
    """
    points, _, keys = failure_severities(table, by, relative)
    failures = pl.col("failure").fill_null(float("inf"))
    return points.group_by(*keys, failures).agg(pl.len().cast(pl.Int64).alias("count")).collect(
        engine="streaming"
    ), keys


def _count_in_parts(
    table: Table, by: Sequence[str], relative: bool, parts: int
) -> tuple[pl.DataFrame, list[str]]:
    """Return the same as ``_count_at_once``, counted in parts of whole samples."""
    rows, keys = _real_rows(table, by, relative)
    judged = judged_rows(rows, probes=True)
    trajectory = list(dict.fromkeys([*TRAJECTORY, *keys]))
    count_keys = list(dict.fromkeys([*keys, "shift"]))
    counts = pl.concat(counted_failures(judged, count_keys, trajectory, parts))
    if relative:
        counts = _fraction(counts.lazy(), _greatest(judged), "failure").collect()
    return counts, keys


def _row_count(table: Table) -> int:
    if isinstance(table, pl.LazyFrame):
        return int(table.select(pl.len()).collect(engine="streaming").item())
    return table.height


def _nth(rank: pl.Expr) -> pl.Expr:
    """Return the failure severity of this rank, counted from 1, in sorted and cumulated failure
    severities.
    """
    return pl.col("failure").filter(pl.col("up_to") >= rank).first()


def lower_rank(n: pl.Series) -> pl.Series:
    """Return the largest r such that the r-th of n values is below the true median with 97.5 % confidence,
    or 0.
    """
    from scipy.special import bdtr, bdtrik

    sizes, where = np.unique(n.to_numpy(), return_inverse=True)
    rank = np.ceil(bdtrik(0.025, sizes, 0.5))
    one_less = np.maximum(rank - 1, 0)
    rank = np.where(bdtr(one_less, sizes, 0.5) >= 0.025, one_less, rank)
    return pl.Series(rank[where], dtype=pl.Int64)


@add_metric
def survival(table: Table, by: Sequence[str] = ("model", "shift"), relative: bool = False) -> pl.DataFrame:
    """Share of trajectories not yet failed at each severity (failure severity > severity); Wilson
    interval.

    There is a row for 0, for each severity of the suite and for each failure severity. ``n`` counts the
    trajectories judged at this severity or a higher one; where all end at the same severity the curve
    is the Kaplan-Meier curve. ``relative`` is as in ``failure_severity``.
    """
    points, grid, keys = failure_severities(table, by, relative)
    counts, severities = _collect(points, grid, keys)
    fell = counts.filter(pl.col("failure").is_not_null())
    events = [
        fell.select(*keys, severity="failure", fell="count"),
        counts.select(*keys, severity="top", ended="count"),
        fell.select(*keys, severity="top", ended_fallen="count"),
        severities,
    ]
    steps = (
        pl.concat(events, how="diagonal").group_by(*keys, "severity").agg(pl.exclude(*keys, "severity").sum())
    )
    ordered = steps.sort([*keys, "severity"])
    so_far, before = _so_far("fell", keys), _so_far("ended", keys) - pl.col("ended")
    fallen = so_far - (_so_far("ended_fallen", keys) - pl.col("ended_fallen"))
    alive = ordered.with_columns(n=pl.col("ended").sum().over(keys) - before, fallen=fallen)
    shares = alive.with_columns(value=1 - pl.col("fallen") / pl.col("n"))
    return _with_wilson(shares, keys, ["severity"])


def _so_far(name: str, keys: list[str]) -> pl.Expr:
    return pl.col(name).cum_sum().over(keys)


@add_metric
def failure_histogram(
    table: Table, by: Sequence[str] = ("model", "shift"), relative: bool = False
) -> pl.DataFrame:
    """Share of trajectories that fail between two severities, ``above`` < failure severity <=
    ``severity``; Wilson interval.

    The first bin (``severity`` 0, ``above`` null) contains trajectories whose clean image is
    misclassified; the last (``severity`` null) contains the survivors. The shares of each group sum to
    1.
    """
    points, grid, keys = failure_severities(table, by, relative)
    counts, severities = _collect(points, grid, keys)
    edges = severities.sort([*keys, "severity"]).with_columns(above=pl.col("severity").shift(1).over(keys))
    survivors = edges.group_by(keys).agg(above=pl.col("severity").max(), severity=pl.lit(None, pl.Float64))
    bins = pl.concat([edges, survivors.select(edges.columns)])
    hits = bins.join(counts, on=keys, nulls_equal=True).filter(_in_bin())
    full = bins.join(
        hits.group_by(*keys, "severity").agg(pl.col("count").sum()),
        on=[*keys, "severity"],
        how="left",
        nulls_equal=True,
    )
    shares = full.with_columns(pl.col("count").fill_null(0)).with_columns(n=pl.col("count").sum().over(keys))
    return _with_wilson(shares.with_columns(value=pl.col("count") / pl.col("n")), keys, ["above", "severity"])


def _in_bin() -> pl.Expr:
    failure, survived = pl.col("failure"), pl.col("failure").is_null()
    reached = pl.col("above").is_null() | (failure > pl.col("above"))
    return (
        pl.when(pl.col("severity").is_null())
        .then(survived)
        .otherwise(reached & (failure <= pl.col("severity")))
    )


def _with_wilson(shares: pl.DataFrame, keys: list[str], then: list[str]) -> pl.DataFrame:
    counted = shares.with_columns(**wilson_interval(pl.col("value"), pl.col("n")))
    return answer_frame(counted, keys, "value", "n", "low", "high", then=then)


def failure_severities(
    table: Table, by: Sequence[str], relative: bool
) -> tuple[pl.LazyFrame, pl.LazyFrame, list[str]]:
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
        raise SoritesError(
            "severities of different shifts have different units: add shift to by, or set relative=True"
        )
    return rows.filter(REAL_SAMPLES), keys


def _greatest(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.filter(SHIFTED).group_by("shift").agg(greatest=pl.col("severity").max())


def _fraction(frame: pl.LazyFrame, greatest: pl.LazyFrame, *names: str) -> pl.LazyFrame:
    joined = frame.join(greatest, on="shift", how="left", nulls_equal=True)
    return joined.with_columns([pl.col(name) / pl.col("greatest") for name in names]).drop("greatest")


def _collect(points: pl.LazyFrame, grid: pl.LazyFrame, keys: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the trajectories counted by failure and top, and the severities including 0 and the highest,
    in one pass.
    """
    counted = points.group_by(*keys, "failure", "top").agg(pl.len().cast(pl.Int64).alias("count"))
    counts, severities = pl.collect_all(
        [counted, grid.select(*keys, "severity").unique()], engine="streaming"
    )
    ends = (
        counts.group_by(keys)
        .agg(severity=pl.concat_list(pl.lit(0.0), pl.col("top").max()))
        .explode("severity")
    )
    return counts, pl.concat([severities, ends.select(severities.columns)]).unique()


# The severity at which accuracy is half of the clean accuracy.

Array = NDArray[np.float64]
# Bootstrap weights drawn at a time.
WEIGHTS_PER_BATCH = 1 << 23


@add_metric
def half_accuracy_severity(
    table: Table, by: Sequence[str] = ("model", "shift"), resamples: int = 1000
) -> pl.DataFrame:
    """Severity at which accuracy, interpolated linearly from the clean images on, is first half of the
    clean accuracy.

    Unlike ``failure_severity`` it ignores images that are misclassified when clean. The value is null
    where accuracy stays above half up to the highest severity. ``n`` counts samples and ``clean`` is
    their clean accuracy. The interval is a percentile bootstrap over samples; bounds above the highest
    severity are null.
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
    collected = cells.collect(engine="streaming")
    records = [
        {**dict(zip(keys, key, strict=True)), **_half(group, resamples)}
        for key, group in collected.group_by(keys, maintain_order=True)
    ]
    numbers = dict.fromkeys(("value", "low", "high", "clean"), pl.Float64())
    schema = {**{key: collected.schema[key] for key in keys}, **numbers, "n": pl.Int64()}
    return answer_frame(pl.DataFrame(records, schema=schema), keys, "value", "n", "low", "high", "clean")


def _half(group: pl.DataFrame, resamples: int) -> dict[str, float | int | None]:
    """Return the crossing of one model and shift from a matrix of samples x severities, where NaN is
    missing.
    """
    severities = sorted(group["severity"].unique())
    samples = group.select(pl.struct(SAMPLE_KEY).rank("dense")).to_series().to_numpy() - 1
    matrix = np.full((int(samples.max()) + 1, len(severities)), np.nan)
    matrix[samples, np.searchsorted(severities, group["severity"].to_numpy())] = group["right"].to_numpy()
    judged = np.isfinite(matrix)
    correct, severity_values = np.where(judged, matrix, 0.0), np.array(severities)
    clean = correct[:, 0].sum() / max(judged[:, 0].sum(), 1) if severities[0] == 0 else None
    nothing: dict[str, float | int | None] = {
        "value": None,
        "low": None,
        "high": None,
        "n": len(matrix),
        "clean": clean,
    }
    if not clean:
        return nothing
    value = crossing(
        correct.sum(axis=0, keepdims=True),
        judged.sum(axis=0, keepdims=True, dtype=np.float64),
        severity_values,
    )[0]
    rng, batch = np.random.default_rng(SEED), max(1, WEIGHTS_PER_BATCH // len(matrix))
    crossings = []
    for start in range(0, resamples, batch):
        weights = rng.multinomial(
            len(matrix), np.full(len(matrix), 1 / len(matrix)), min(batch, resamples - start)
        ).astype(np.float64)
        crossings.append(crossing(weights @ correct, weights @ judged, severity_values))
    low, high = percentile_ranks(np.concatenate(crossings))
    ends = (value, min(low, value), max(high, value))
    return {
        **nothing,
        **dict(
            zip(
                ("value", "low", "high"),
                (x if np.isfinite(x) else None for x in map(float, ends)),
                strict=True,
            )
        ),
    }


def crossing(right: Array, seen: Array, severities: Array) -> Array:
    """Return where each row's curve (``right / seen``) first falls to half of its start; infinity where it
    does not.
    """
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
