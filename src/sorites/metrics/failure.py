"""Failure severities: the severity at which a model first fails.

A trajectory is one sample under one shift at rising severity, seen by one model, starting from the
clean image. Its failure severity is the least severity judged wrong, probes included: 0 when the
clean image is already wrong, null when the trajectory survived, that is, was right at every
severity judged. A missing row is left out.
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

# Failure severities of tables with more trajectories than memory holds keys of: 64-bit hashes stand for the
# keys.


def counted_failures(
    rows: pl.LazyFrame, keys: Sequence[str], trajectory: Sequence[str], parts: int
) -> Iterator[pl.DataFrame]:
    """Yield the number of trajectories (``count``) by keys and failure severity, for parts of whole samples.

    ``rows`` are judged; ``trajectory`` are the columns by which trajectories differ, ``keys`` among them.
    """
    names = _names(rows.filter(SHIFTED), keys, trajectory)
    for part in range(parts):
        some = rows.filter(pl.col("sample_id").hash(0) % parts == part)
        yield _counted(some, keys, trajectory).join(names, on="group").drop("group")


def _counted(rows: pl.LazyFrame, keys: Sequence[str], trajectory: Sequence[str]) -> pl.DataFrame:
    hashed = [_hash(name, trajectory) for name in trajectory]
    wrong_at = pl.when(pl.col("correct").not_()).then("severity")
    marked = rows.filter(SHIFTED).select(*hashed, failure=wrong_at)
    apart = marked.select(
        "failure", trajectory=_joined(trajectory), start=_joined(CLEAN_KEY), group=_joined(keys)
    )
    points = apart.group_by("trajectory").agg(
        pl.col("start").first(), pl.col("group").first(), pl.col("failure").min()
    )
    clean = rows.filter((pl.col("shift") == CLEAN) & pl.col("correct").not_())
    lost = (
        clean.select([_hash(name, trajectory) for name in CLEAN_KEY])
        .select(start=_joined(CLEAN_KEY), lost=True)
        .unique()
    )
    failure = pl.when("lost").then(0.0).otherwise(pl.col("failure").fill_null(float("inf")))
    known = points.join(lost, on="start", how="left").select("group", failure=failure)
    return (
        known.group_by("group", "failure")
        .agg(pl.len().cast(pl.Int64).alias("count"))
        .collect(engine="streaming")
    )


def _names(rows: pl.LazyFrame, keys: Sequence[str], trajectory: Sequence[str]) -> pl.DataFrame:
    """Return the values of the keys by the hash that stands for them."""
    unique = rows.select(keys).unique().collect(engine="streaming")
    hashed = unique.lazy().with_columns([_hash(name, trajectory) for name in keys])
    return hashed.select(*keys, group=_joined(keys)).collect()


def _hash(name: str, trajectory: Sequence[str]) -> pl.Expr:
    """Return the hash of a column, another one for each: they are joined by exclusive or."""
    return pl.col(name).hash(list(trajectory).index(name) + 1).alias(f"hash of {name}")


def _joined(names: Sequence[str]) -> pl.Expr:
    return functools.reduce(operator.xor, [pl.col(f"hash of {name}") for name in names])


# Rows whose trajectories are counted at a time: less than two gigabytes.
AT_ONCE = 50_000_000
TRAJECTORY = ("run_id", "model", "shift", "sample_id", "seed")


def trajectories(table: Table, keep: Sequence[str] = ()) -> pl.LazyFrame:
    """Return one row per trajectory: its key, the columns of ``keep``, ``failure`` (severity or
    null) and ``top``.

    ``top`` is the greatest severity at which the trajectory was judged.
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
    """Median failure severity of the trajectories, in the unit of the shift; null when at least half survive.

    Survivors, counted in ``survived``, rank above every failure. The interval lies between order
    statistics (binomial, no assumption on the distribution): ``low`` is 0 where ``n`` is too small
    for one, ``high`` is null where it lies above the greatest severity. ``relative`` gives
    fractions of the greatest severity of the shift in the table, so that shifts can be pooled:
    ``by=("model",), relative=True`` is the fraction at which half of the trajectories fail.
    Trajectories are treated as independent, so pooling the shifts of one sample gives an interval
    that is somewhat too narrow.
    """
    rows = _row_count(table)
    counts, keys = (
        _large(table, by, relative, -(-rows // AT_ONCE)) if rows > AT_ONCE else _small(table, by, relative)
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


def _small(table: Table, by: Sequence[str], relative: bool) -> tuple[pl.DataFrame, list[str]]:
    """Return the number of trajectories by keys and failure severity, infinite for survivors, and the keys."""
    points, _, keys = failure_severities(table, by, relative)
    failures = pl.col("failure").fill_null(float("inf"))
    return points.group_by(*keys, failures).agg(pl.len().cast(pl.Int64).alias("count")).collect(
        engine="streaming"
    ), keys


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
    """The failure severity of this rank, counted from 1, among sorted and counted failure severities."""
    return pl.col("failure").filter(pl.col("up_to") >= rank).first()


def lower_rank(n: pl.Series) -> pl.Series:
    """Return the greatest r for which the r-th of n values is below the true median with 97.5 %
    certainty; 0 if there is none.
    """
    from scipy.special import bdtr, bdtrik

    sizes, where = np.unique(n.to_numpy(), return_inverse=True)
    rank = np.ceil(bdtrik(0.025, sizes, 0.5))
    one_less = np.maximum(rank - 1, 0)
    rank = np.where(bdtr(one_less, sizes, 0.5) >= 0.025, one_less, rank)
    return pl.Series(rank[where], dtype=pl.Int64)


@add_metric
def survival(table: Table, by: Sequence[str] = ("model", "shift"), relative: bool = False) -> pl.DataFrame:
    """Share of trajectories not yet failed at each severity (failure severity > severity); Wilson interval.

    There is a row for 0, for each severity of the suite and for each failure severity. ``n`` counts
    the trajectories judged at this severity or a greater one; where all end at the same severity
    the curve is Kaplan and Meier's. ``relative`` is as in ``failure_severity``.
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

    The first bracket (``severity`` 0, ``above`` null) holds those that are wrong when clean; the
    last one (``severity`` null) holds the survivors. The shares of each group sum to 1.
    """
    points, grid, keys = failure_severities(table, by, relative)
    counts, severities = _collect(points, grid, keys)
    edges = severities.sort([*keys, "severity"]).with_columns(above=pl.col("severity").shift(1).over(keys))
    last = edges.group_by(keys).agg(above=pl.col("severity").max(), severity=pl.lit(None, pl.Float64))
    brackets = pl.concat([edges, last.select(edges.columns)])
    hits = brackets.join(counts, on=keys, nulls_equal=True).filter(_inside())
    full = brackets.join(
        hits.group_by(*keys, "severity").agg(pl.col("count").sum()),
        on=[*keys, "severity"],
        how="left",
        nulls_equal=True,
    )
    shares = full.with_columns(pl.col("count").fill_null(0)).with_columns(n=pl.col("count").sum().over(keys))
    return _with_wilson(shares.with_columns(value=pl.col("count") / pl.col("n")), keys, ["above", "severity"])


def _inside() -> pl.Expr:
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
    """Return the trajectories counted by failure and top, and the severities from 0 up, in one pass."""
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


# The severity at which a model has lost half of the accuracy it has on clean images.


Array = NDArray[np.float64]
# This many weights are drawn at a time.
CELLS = 1 << 23


@add_metric
def half_accuracy_severity(
    table: Table, by: Sequence[str] = ("model", "shift"), resamples: int = 1000
) -> pl.DataFrame:
    """Severity at which accuracy, joined by straight lines from the clean images on, is first
    half of the clean accuracy.

    Unlike ``failure_severity`` it does not count images that were wrong when clean. The value is
    null where accuracy stays above half up to the greatest severity. ``n`` counts samples and
    ``clean`` is their clean accuracy. The interval is a percentile bootstrap over samples: ``high``
    is null where it lies above the greatest severity, ``low`` where it does too.
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
    """Return the crossing of one model and shift; a row of the matrix is a sample, a column a
    severity, and NaN is missing.
    """
    severities = sorted(group["severity"].unique())
    samples = group.select(pl.struct(SAMPLE_KEY).rank("dense")).to_series().to_numpy() - 1
    matrix = np.full((int(samples.max()) + 1, len(severities)), np.nan)
    matrix[samples, np.searchsorted(severities, group["severity"].to_numpy())] = group["right"].to_numpy()
    held = np.isfinite(matrix)
    right, places = np.where(held, matrix, 0.0), np.array(severities)
    clean = right[:, 0].sum() / max(held[:, 0].sum(), 1) if severities[0] == 0 else None
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
        right.sum(axis=0, keepdims=True), held.sum(axis=0, keepdims=True, dtype=np.float64), places
    )[0]
    rng, batch = np.random.default_rng(SEED), max(1, CELLS // len(matrix))
    drawn = []
    for start in range(0, resamples, batch):
        weights = rng.multinomial(
            len(matrix), np.full(len(matrix), 1 / len(matrix)), min(batch, resamples - start)
        ).astype(np.float64)
        drawn.append(crossing(weights @ right, weights @ held, places))
    low, high = percentile_ranks(np.concatenate(drawn))
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
    """Return for each row of sums where the curve first comes down to half of its start; infinity
    where it does not.
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
