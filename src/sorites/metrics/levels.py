"""OOD detection by level (IS-OOD, NeurIPS 2024): each cell of semantic and covariate level against one ID
pool.

The in-distribution pool is every clean image of a known class; a cell contains the other images of its
two levels. The value of a cell with fewer than ``min_n`` images is null, and its ``n`` is kept; the
published code skips cells below 10. A level is an integer bin of a measured distance, never a severity.

Sets of images (the column ``set``) are evaluated separately against the same in-distribution pool: in
IS-OOD the correlation with the covariate level has opposite signs on ImageNet-21K and on Syn-IS (its
third insight), so a mixture would be meaningless. ``pooled`` makes one map of all sets; its ``set``
starts with "pooled:" and lists them.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.core.errors import InvalidOption, UnknownName
from sorites.core.messages import parameter
from sorites.core.table import Table
from sorites.metrics.ood import NUMBERS, ood_numbers
from sorites.metrics.rows import SET, answer_frame, pooled_sets
from sorites.metrics.separation import BY_SCORER, framework_named

MIN_N = 10
AXES = {"semantic": "sem_level", "covariate": "cov_level"}
CELL = ("sem_level", "cov_level")
BY_SET = (*BY_SCORER, SET)


@add_metric
def level_map(
    table: Table, by: Sequence[str] = BY_SET, metric: str = "auroc", min_n: int = MIN_N, pooled: bool = False
) -> pl.DataFrame:
    """AUROC, or another number of ``ood``, per ``set`` and cell of ``sem_level`` and ``cov_level``; ``n``
    counts its images.

    ``set``, ``model`` and ``scorer`` are added to ``by`` where they are left out; ``pooled`` makes one
    map of all sets.
    """
    if metric not in NUMBERS:
        raise UnknownName("number", metric, NUMBERS, f"One of {', '.join(NUMBERS)}.")
    if min_n < 1:
        raise InvalidOption("min_n", f"{parameter('min_n')} must be at least 1, got {min_n}")
    columns = [key for key in ([by] if isinstance(by, str) else by) if key not in CELL]
    rows = pooled_sets(table, (pl.col("output") == "ood") & framework_named("graded")[1]) if pooled else table
    keys = list(dict.fromkeys([*columns, *BY_SET]))
    numbers = ood_numbers(rows, [*keys, *CELL], "graded", "clean", [metric])
    graded = numbers.filter(pl.col("sem_level").is_not_null() & pl.col("cov_level").is_not_null())
    large_enough = [
        pl.when(pl.col("ood") >= min_n).then(name).alias(name) for name in ("value", "low", "high")
    ]
    cells = graded.with_columns(*large_enough, n=pl.col("ood"))
    return answer_frame(cells, keys, "value", "n", "low", "high", "id", "missing", then=CELL)


@add_metric
def level_curve(
    table: Table, by: Sequence[str] = BY_SET, metric: str = "auroc", min_n: int = MIN_N, pooled: bool = False
) -> pl.DataFrame:
    """Mean over the cells of ``level_map`` at each ``level`` of one ``axis``, semantic or covariate.

    ``cells`` is the number of cells and ``n`` counts their images. ``least`` and ``most`` are the
    extremes of the cells; this range shows the effect of the other axis and is not an interval.
    """
    cells = level_map(table, by, metric, min_n, pooled)
    keys = [key for key in cells.columns[: cells.columns.index("value")] if key not in CELL]
    large_enough = cells.filter(pl.col("value").is_not_null())
    by_axis = [
        large_enough.rename({column: "level"})
        .with_columns(axis=pl.lit(axis))
        .select(*keys, "axis", "level", "value", "n")
        for axis, column in AXES.items()
    ]
    value = pl.col("value")
    means = pl.concat(by_axis).group_by(*keys, "axis", "level").agg(
        value.mean(), pl.col("n").sum(), least=value.min(), most=value.max(), cells=pl.len().cast(pl.Int64)
    )  # fmt: skip
    return answer_frame(means, keys, "value", "n", "least", "most", "cells", then=["axis", "level"])


@add_metric
def correlation(
    table: Table, by: Sequence[str] = BY_SET, metric: str = "auroc", min_n: int = MIN_N, pooled: bool = False
) -> pl.DataFrame:
    """Pearson correlation of the level means with the level, along each ``axis`` (IS-OOD, equation 5).

    ``levels`` counts the levels; the value is null with fewer than 3, or where the means do not differ.
    Levels whose cells are all too small are left out, and the others keep their numbers.
    """
    return _along(table, by, metric, min_n, pooled, pl.corr("level", "value"))


@add_metric
def sensitivity(
    table: Table, by: Sequence[str] = BY_SET, metric: str = "auroc", min_n: int = MIN_N, pooled: bool = False
) -> pl.DataFrame:
    """Absolute change of the level means per level, by least squares, along each ``axis`` (IS-OOD,
    equation 6).

    The value is in percentage points per level, as in the paper. It is null with fewer than 3 ``levels``.
    """
    slope = 100 * pl.cov("level", "value") / pl.col("level").var()
    return _along(table, by, metric, min_n, pooled, slope.abs())


def _along(
    table: Table, by: Sequence[str], metric: str, min_n: int, pooled: bool, number: pl.Expr
) -> pl.DataFrame:
    curve = level_curve(table, by, metric, min_n, pooled)
    keys = curve.columns[: curve.columns.index("axis")]
    enough = pl.when(pl.len() >= 3).then(number)
    line = curve.group_by(*keys, "axis").agg(
        value=enough, n=pl.col("n").sum(), levels=pl.len().cast(pl.Int64)
    )
    finite = line.with_columns(value=pl.when(pl.col("value").is_finite()).then("value"))
    return answer_frame(finite, keys, "value", "n", "levels", then=["axis"])
