"""Accuracy under lenses: by lens, by distance from the middle of the picture, and against the measured sharpness of the lens.

The rows are those of the shift ``lens``, whose params hold the lens, the field (a fraction of the half field of view), the MTF50
there in cycles/pixel, and its mean over the field, which is the quality of the lens; or those of ``lens_whole``, which covers the
whole picture and has no field. Mueller, Braun and Keuper, section VIII.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.metrics._rows import WHOLE, answer_frame, select_rows
from sorites.metrics.accuracy import accuracy, mean_accuracy
from sorites.table import Table

NUMBERS = {"field": "lens_field", "mtf50": "mtf50", "quality": "quality"}


def with_lenses(table: Table) -> pl.LazyFrame:
    """Return the rows of lenses with their params as columns ``lens``, ``lens_field``, ``mtf50`` and ``quality``."""

    def part(name: str) -> pl.Expr:
        return pl.col("params").str.json_path_match(f"$.{name}")

    rows = table.lazy().filter(pl.col("shift").is_in(["lens", "lens_whole"]))
    numbers = {column: part(name).cast(pl.Float64) for name, column in NUMBERS.items()}
    return rows.with_columns(lens=part("lens"), **numbers).filter(pl.col("lens").is_not_null())


@add_metric
def lens_field(table: Table, by: Sequence[str] = ("model", "lens_field")) -> pl.DataFrame:
    """Accuracy at each distance from the middle of the picture, over all lenses; ``n`` counts samples."""
    return mean_accuracy(with_lenses(table).filter(pl.col("lens_field").is_not_null()), by)


@add_metric
def lens_accuracy(table: Table, by: Sequence[str] = ("model", "lens")) -> pl.DataFrame:
    """Accuracy of each lens over its field positions, with its ``quality`` and the standard ``error`` over those positions."""
    rows = with_lenses(table)
    _, keys = select_rows(rows, by)
    where = [key for key in keys if key != WHOLE]
    whole = mean_accuracy(rows, where)
    each = accuracy(rows, [*where, "lens_field"]).filter(pl.col("n") > 0)
    spread = each.group_by(where or [pl.lit(0).alias(WHOLE)]).agg(error=pl.col("value").std() / pl.len().sqrt())
    quality = rows.select(*where, "quality").collect().group_by(where or [pl.lit(0).alias(WHOLE)]).agg(pl.col("quality").mean())
    if not where:
        return whole.with_columns(quality=quality["quality"].mean(), error=spread["error"].mean())
    joined = whole.join(quality, on=where, nulls_equal=True, how="left").join(spread, on=where, nulls_equal=True, how="left")
    return answer_frame(joined, where, "value", "n", "low", "high", "quality", "error")


@add_metric
def lens_correlation(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Pearson correlation (``value``) and Kendall's tau-b (``tau``) of lens quality and accuracy over lenses, with p-values.

    ``n`` counts lenses; the numbers are null with fewer than 3 lenses, or where quality or accuracy does not vary.
    """
    _, keys = select_rows(with_lenses(table), by)
    where = [key for key in keys if key not in (WHOLE, "lens")]
    each = lens_accuracy(table, [*where, "lens"])
    groups = each.partition_by(where, as_dict=True) if where else {(): each} if each.height else {}
    rows = [{**dict(zip(where, key, strict=True)), **_related(some)} for key, some in groups.items()]
    kinds = {"value": pl.Float64, "n": pl.Int64, "p": pl.Float64, "tau": pl.Float64, "tau_p": pl.Float64}
    frame = pl.DataFrame(rows, schema={**{key: each.schema[key] for key in where}, **kinds})
    return answer_frame(frame, where, *kinds) if where else frame


def _related(some: pl.DataFrame) -> dict[str, float | int | None]:
    from scipy import stats

    complete = some.drop_nulls(["quality", "value"])
    varies = len(complete) > 2 and complete["quality"].n_unique() > 1 and complete["value"].n_unique() > 1
    if not varies:
        return {"value": None, "n": len(complete), "p": None, "tau": None, "tau_p": None}
    line, rank = (test(complete["quality"], complete["value"]) for test in (stats.pearsonr, stats.kendalltau))
    return {"value": float(line[0]), "n": len(complete), "p": float(line[1]), "tau": float(rank[0]), "tau_p": float(rank[1])}
