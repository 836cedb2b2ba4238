"""OOD detection on near and far OOD images, averaged over sets of images as in OpenOOD."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.core.errors import InvalidOption
from sorites.core.messages import parameter
from sorites.core.table import Table
from sorites.metrics.ood import COLUMNS, MAIN, ood_numbers
from sorites.metrics.rows import SET, answer_frame
from sorites.metrics.separation import BY_SCORER

GROUP, SETS, METRIC = "group", "sets", "metric"


@add_metric
def near_far(
    table: Table,
    by: Sequence[str] = BY_SCORER,
    framework: str = "semantic",
    against: str = "clean",
    average: str = "sets",
) -> pl.DataFrame:
    """AUROC, AUPR and FPR at 95 % TPR by ``group`` of OOD images (near, far): the mean over its sets, each
    weighted equally (OpenOOD).

    With ``average="images"`` the images of all sets of a group are pooled, so that large sets count more.
    ``sets`` counts the sets, ``ood`` their images. The interval of a mean is the mean of the intervals of its
    sets: it allows for sets that err together, because all share the in-distribution images, and is too wide
    if they do not. It is null where a set has none.
    """
    if average not in ("sets", "images"):
        raise InvalidOption(
            "average", f"near_far: {parameter('average')} must be sets or images, got {average!r}"
        )
    columns = list(dict.fromkeys([*([by] if isinstance(by, str) else by), *BY_SCORER]))
    each = _numbers(table, [*columns, GROUP, SET], framework, against)
    then = [GROUP, METRIC]
    if average == "sets":
        means = each.group_by(*columns, *then).agg(
            pl.col("value").mean(),
            *(_unless_null(pl.col(bound)) for bound in ("low", "high")),
            pl.col("id").max(),
            pl.col("ood", "missing").sum(),
            pl.col(SET).n_unique().cast(pl.Int64).alias(SETS),
        )
        found = means.with_columns(n=pl.col("id") + pl.col("ood"))
    else:
        sets = each.group_by(*columns, *then).agg(pl.col(SET).n_unique().cast(pl.Int64).alias(SETS))
        pooled = _numbers(table, [*columns, GROUP], framework, against)
        found = pooled.join(sets, on=[*columns, *then], nulls_equal=True)
    return answer_frame(found, columns, *COLUMNS, SETS, then=then)


def _numbers(table: Table, by: Sequence[str], framework: str, against: str) -> pl.DataFrame:
    numbers = ood_numbers(table, by, framework, against, MAIN)
    return numbers.filter(pl.col(GROUP).is_not_null() & pl.col("value").is_not_null())


def _unless_null(bound: pl.Expr) -> pl.Expr:
    return pl.when(bound.null_count() == 0).then(bound.mean())
