"""Failure severities: the severity at which a model first fails.

A trajectory is one sample under one shift at rising severity, evaluated by one model and starting from
the clean image. Its failure severity is the lowest severity at which it is misclassified, probes
included: 0 if the clean image is already misclassified, null if the trajectory survives, that is, if it
is correct at every severity judged. A trajectory that ends below the highest severity, because a filter
or an error removed its later images, is censored there: it counts as correct up to its last judged
severity, and nothing is assumed beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from sorites.core import CLEAN, add_metric
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.messages import parameter
from sorites.core.table import Table
from sorites.metrics.product_limit import (
    CLUSTER,
    GROUP,
    Points,
    bounded,
    contrasts_of,
    product_limit,
    sizes_of,
    with_design_effects,
)
from sorites.metrics.rows import (
    IMAGE_COLUMNS,
    REAL_SAMPLES,
    SAMPLE_KEY,
    SHIFTED,
    answer_frame,
    judged_rows,
    select_rows,
)

# Rows whose trajectories are counted at a time, in less than 2 GB.
ROWS_PER_PART = 50_000_000
# The columns that a clean row shares with the trajectories that start from it.
START = ("run_id", "model", *SAMPLE_KEY, "seed")
TRAJECTORY = (*START, "shift")
# How trajectories that end early are treated: censored, or counted as survivors (CNS-Bench, equation 3).
KAPLAN_MEIER, COUNTS = "kaplan_meier", "counts"
# The sample that a trajectory belongs to.
SAMPLE = pl.struct(SAMPLE_KEY)


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
    clean = rows.filter(pl.col("shift") == CLEAN)
    for columns, name in (START, "lost"), (START[:-1], "lost anyway"):
        started = clean.group_by(columns).agg(pl.col("correct").not_().any().alias(name))
        failures = failures.join(started, on=columns, how="left", nulls_equal=True)
    return failures.with_columns(failure=_LOST.then(0.0).otherwise("failure")).drop("lost", "lost anyway")


# Whether the clean image of a trajectory is misclassified: that of its seed, or any where there is none.
_LOST = pl.when(pl.coalesce("lost", "lost anyway"))


@add_metric
def failure_severity(
    table: Table,
    by: Sequence[str] = ("model", "shift"),
    relative: bool = False,
    estimator: str = KAPLAN_MEIER,
) -> pl.DataFrame:
    """Median failure severity of the trajectories, in the unit of the shift; null where it is not reached.

    The median is where the Kaplan-Meier curve (``survival``) falls to one half; without censored
    trajectories it is the plain median, and null when at least half survive. ``survived`` counts the
    trajectories that are correct up to the highest severity, and ``censored`` those that end earlier without
    a failure. The interval is between order statistics (binomial, distribution-free) for the effective
    number of independent trajectories: the samples are the units, and ``n`` counts trajectories. ``low``
    is 0 where there are too few, ``high`` is null where it is above the highest severity. With ``relative``,
    severities are fractions of the highest severity of the shift in the table, so that shifts can be
    pooled: ``by=("model",), relative=True`` is the fraction at which half of the trajectories fail.
    ``estimator="counts"`` counts censored trajectories as survivors (CNS-Bench, equation 3).
    """
    return median_failure(points_of(table, by, relative, estimator))


@add_metric
def survival(
    table: Table,
    by: Sequence[str] = ("model", "shift"),
    relative: bool = False,
    estimator: str = KAPLAN_MEIER,
) -> pl.DataFrame:
    """Kaplan-Meier estimate of the share of trajectories that have not failed at each severity.

    There is a row for 0, for each severity of the suite and for each failure severity; the value never
    rises. ``n`` counts the trajectories and ``at_risk`` those that had not failed or ended below this
    severity. The interval is Wilson's with the effective number of independent trajectories, from
    Greenwood's variance and the design effect of samples with several trajectories. ``relative`` and
    ``estimator`` are as in ``failure_severity``.
    """
    return survival_curve(points_of(table, by, relative, estimator))


@add_metric
def failure_histogram(
    table: Table,
    by: Sequence[str] = ("model", "shift"),
    relative: bool = False,
    estimator: str = KAPLAN_MEIER,
) -> pl.DataFrame:
    """Share of trajectories that fail between two severities, ``above`` < failure severity <=
    ``severity``.

    The shares are the steps of ``survival``; without censored trajectories they are plain shares. The
    first bin (``severity`` 0, ``above`` null) contains trajectories whose clean image is misclassified; the
    last (``severity`` null) contains the survivors. The shares of each group sum to 1; the intervals are
    those of ``survival``. ``estimator="counts"`` counts censored trajectories as survivors (CNS-Bench,
    equation 3).
    """
    return histogram(points_of(table, by, relative, estimator))


def median_failure(points: Points) -> pl.DataFrame:
    """Return the answer of ``failure_severity``."""
    steps = product_limit(points)
    alive = pl.col("alive")
    from_half, below_half = (pl.col("severity").filter(alive <= 0.5), pl.col("severity").filter(alive < 0.5))
    medians = steps.group_by(GROUP).agg(n=pl.col("n").first(), value=(from_half.min() + below_half.min()) / 2)
    effective = _effective_at_median(points, steps)
    ranked = medians.join(effective, on=GROUP, how="left").with_columns(
        effective=pl.coalesce("effective", "n").cast(pl.Float64) + 1e-9
    )
    whole = ranked.with_columns(pl.col("effective").floor().clip(1.0))
    rank = lower_rank(whole["effective"].cast(pl.Int64)).alias("rank")
    limits = whole.with_columns(rank).with_columns(
        first=pl.col("rank") / pl.col("effective"),
        last=(pl.col("effective") - pl.col("rank") + 1) / pl.col("effective"),
    )
    lost = (1 - alive).round(10)
    ends = (
        steps.join(limits.select(GROUP, "first", "last"), on=GROUP)
        .group_by(GROUP)
        .agg(
            low=pl.col("severity").filter(lost >= pl.col("first").round(10)).min(),
            high=pl.col("severity").filter(lost >= pl.col("last").round(10)).min(),
        )
    )
    enough = pl.col("rank") > 0
    answer = limits.join(ends, on=GROUP).with_columns(
        low=pl.when(enough).then("low").otherwise(0.0), high=pl.when(enough).then("high")
    )
    with_ends = answer.join(_ends(points), on=GROUP)
    return _named(with_ends, points, "value", "n", "low", "high", "survived", "censored")


def _ends(points: Points) -> pl.DataFrame:
    """Count the trajectories that did not fail: judged up to the highest severity or not."""
    highest = points.severities.group_by(GROUP).agg(highest=pl.col("severity").max())
    whole, count = pl.col("time") >= pl.col("highest"), pl.col("count")
    return (
        points.counts.join(highest, on=GROUP)
        .group_by(GROUP)
        .agg(
            survived=count.filter(~pl.col("event") & whole).sum(),
            censored=count.filter(~pl.col("event") & ~whole).sum(),
        )
    )


def _effective_at_median(points: Points, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the effective number of trajectories where the curve is nearest to one half."""
    inside = steps.filter((pl.col("alive") > 0) & (pl.col("alive") < 1))
    distance = (pl.col("alive") - 0.5).abs().round(10)
    nearest = inside.sort(GROUP, distance, "severity").unique(GROUP, keep="first", maintain_order=True)
    edges = nearest.select(GROUP, start="severity", end=pl.lit(None, pl.Float64))
    found = with_design_effects(contrasts_of(steps, edges), points)
    flat = steps.join(edges, on=GROUP, how="anti").group_by(GROUP).agg(pl.col("severity").max())
    rest = contrasts_of(steps, flat.select(GROUP, start="severity", end=pl.lit(None, pl.Float64)))
    return pl.concat([found, with_design_effects(rest, points)]).select(GROUP, "effective")


def survival_curve(points: Points) -> pl.DataFrame:
    """Return the answer of ``survival``."""
    steps = product_limit(points)
    edges = steps.select(GROUP, start="severity", end=pl.lit(None, pl.Float64))
    shares = bounded(with_design_effects(contrasts_of(steps, edges), points))
    risk = steps.select(GROUP, "at_risk", start="severity")
    curve = shares.join(risk, on=[GROUP, "start"]).rename({"start": "severity"})
    return _named(curve, points, "value", "n", "low", "high", "at_risk", then=["severity"])


def histogram(points: Points) -> pl.DataFrame:
    """Return the answer of ``failure_histogram``."""
    steps = product_limit(points)
    grid = points.severities.sort(GROUP, "severity")
    edges = grid.select(GROUP, start=pl.col("severity").shift(1).over(GROUP), end="severity")
    last = grid.group_by(GROUP).agg(start=pl.col("severity").max(), end=pl.lit(None, pl.Float64))
    bins = pl.concat([edges, last.select(edges.columns)])
    shares = bounded(with_design_effects(contrasts_of(steps, bins), points))
    return _named(
        shares.rename({"start": "above", "end": "severity"}), points,
        "value", "n", "low", "high", then=["above", "severity"],
    )  # fmt: skip


def _named(frame: pl.DataFrame, points: Points, *columns: str, then: Sequence[str] = ()) -> pl.DataFrame:
    """Return an answer with the values of its group columns in place of their hash."""
    keys = [name for name in points.names.columns if name != GROUP]
    return answer_frame(frame.join(points.names, on=GROUP), keys, *columns, then=then)


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


# From the table to counted trajectories.


def points_of(
    table: Table,
    by: Sequence[str],
    relative: bool = False,
    estimator: str = KAPLAN_MEIER,
    sample: pl.Expr = SAMPLE,
) -> Points:
    """Return the trajectories of a table, counted for the product-limit estimate.

    Args:
        table: The table.
        by: The columns to group by.
        relative: Express severities as fractions of the highest severity of the shift.
        estimator: ``kaplan_meier`` or ``counts``.
        sample: The unit whose trajectories are not independent.

    Raises:
        SoritesError: If shifts would be pooled in different units, or the estimator is unknown.
    """
    if estimator not in (KAPLAN_MEIER, COUNTS):
        raise UnknownName("estimator", estimator, (KAPLAN_MEIER, COUNTS), f"{KAPLAN_MEIER} or {COUNTS}.")
    rows, keys = _real_rows(table, by, relative)
    judged = judged_rows(rows, probes=True)
    greatest = _greatest(judged) if relative else None
    size = -(-_row_count(table) // ROWS_PER_PART)
    if size > 1:
        chunks = [judged.filter(pl.col("sample_id").hash(0) % size == part) for part in range(size)]
        lazies = [_counted(_hashed(rows, keys, sample), greatest, estimator) for rows in chunks]
    else:
        lazies = [_counted(_exact(judged, keys, sample), greatest, estimator)]
    ends, counts, sizes = [], [], []
    held: list[pl.DataFrame] = []
    for lazy in lazies:
        part = lazy.collect(engine="streaming")
        ends.append(part.group_by(GROUP).agg(severity=pl.col("top").max()))
        counts.append(part.group_by(GROUP, "time", "event").agg(pl.col("count").sum()))
        sizes.append(sizes_of(part))
        held = [part] if size <= 1 else []
    group = pl.struct(keys).hash().alias(GROUP)
    names = rows.filter(SHIFTED).select(keys).unique().with_columns(group).collect(engine="streaming")
    grid = _grid(judged_rows(rows), keys, greatest).collect(engine="streaming")
    return Points(
        names=names,
        severities=_severities(grid, pl.concat(ends)),
        counts=pl.concat(counts).group_by(GROUP, "time", "event").agg(pl.col("count").sum()),
        sizes=pl.concat(sizes).group_by(GROUP).agg(pl.col("rows", "clusters", "squares").sum()),
        parts=lambda: held or (lazy.collect(engine="streaming") for lazy in lazies),
    )


def _exact(rows: pl.LazyFrame, keys: list[str], sample: pl.Expr) -> pl.LazyFrame:
    """Return one row per trajectory with the hashes of its group and sample."""
    group = pl.struct(keys).hash().alias(GROUP)
    found = _trajectories(rows, keys).with_columns(sample.hash().alias(CLUSTER), group)
    return found.select(GROUP, CLUSTER, "shift", "failure", "top")


def _hashed(rows: pl.LazyFrame, keys: list[str], sample: pl.Expr) -> pl.LazyFrame:
    """Return the same as ``_exact`` for a large table: the keys of trajectories would not fit into memory,
    so they are identified by 64-bit hashes.
    """
    wrong_at = pl.when(pl.col("correct").not_()).then("severity")
    marked = rows.filter(SHIFTED).select(
        "shift",
        pl.struct(list(dict.fromkeys([*TRAJECTORY, *keys]))).hash().alias("trajectory"),
        pl.struct(START).hash().alias("start"),
        pl.struct(START[:-1]).hash().alias("start anyway"),
        pl.struct(keys).hash().alias(GROUP),
        sample.hash().alias(CLUSTER),
        failure=wrong_at,
        top="severity",
    )
    found = marked.group_by("trajectory").agg(
        pl.col("start", "start anyway", GROUP, CLUSTER, "shift").first(),
        pl.col("failure").min(),
        pl.col("top").max(),
    )
    clean = rows.filter(pl.col("shift") == CLEAN)
    for columns, key, name in (START, "start", "lost"), (START[:-1], "start anyway", "lost anyway"):
        hashed = clean.select(pl.struct(columns).hash().alias(key), pl.col("correct").not_().alias(name))
        found = found.join(hashed.group_by(key).agg(pl.col(name).any()), on=key, how="left")
    return found.select(GROUP, CLUSTER, "shift", failure=_LOST.then(0.0).otherwise("failure"), top="top")


def _counted(found: pl.LazyFrame, greatest: pl.LazyFrame | None, estimator: str) -> pl.LazyFrame:
    """Count trajectories by group, sample, ``time`` (of the failure or the last judgement) and ``event``."""
    scaled = found if greatest is None else _fraction(found, greatest, "failure", "top")
    end = pl.lit(float("inf")) if estimator == COUNTS else pl.col("top")
    timed = scaled.select(
        GROUP, CLUSTER, "top", time=pl.coalesce("failure", end), event=pl.col("failure").is_not_null()
    )
    return timed.group_by(GROUP, CLUSTER, "time", "event").agg(
        pl.len().cast(pl.Int64).alias("count"), pl.col("top").max()
    )


def _grid(rows: pl.LazyFrame, keys: list[str], greatest: pl.LazyFrame | None) -> pl.LazyFrame:
    """Return the severities of the suite by group."""
    shifted = rows.filter(SHIFTED).select(pl.struct(keys).hash().alias(GROUP), "shift", "severity").unique()
    scaled = shifted if greatest is None else _fraction(shifted, greatest, "severity")
    return scaled.select(GROUP, "severity").unique()


def _severities(grid: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Return the severities of the suite with 0 and the highest judged one of each group."""
    highest = ends.group_by(GROUP).agg(pl.col("severity").max())
    zero = highest.with_columns(severity=pl.lit(0.0))
    return pl.concat([grid, highest.select(grid.columns), zero.select(grid.columns)]).unique()


def _row_count(table: Table) -> int:
    return int(table.lazy().select(pl.len()).collect(engine="streaming").item())


def _real_rows(table: Table, by: Sequence[str], relative: bool) -> tuple[pl.LazyFrame, list[str]]:
    rows, keys = select_rows(table, by, IMAGE_COLUMNS)
    if "shift" not in keys and not relative:
        raise SoritesError(
            f"severities of different shifts have different units: add shift to {parameter('by')}, or set"
            f" {parameter('relative', True)}"
        )
    return rows.filter(REAL_SAMPLES), keys


def _greatest(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.filter(SHIFTED).group_by("shift").agg(greatest=pl.col("severity").max())


def _fraction(frame: pl.LazyFrame, greatest: pl.LazyFrame, *names: str) -> pl.LazyFrame:
    joined = frame.join(greatest, on="shift", how="left", nulls_equal=True)
    return joined.with_columns([pl.col(name) / pl.col("greatest") for name in names]).drop("greatest")
