"""Accuracy: how often a model is right, and how much of that a shift takes away.

The sample is the unit wherever several of its pictures are pooled: its verdicts are averaged over the settings of each shift,
then over shifts, and only then over samples. Every shift counts the same however many settings it has, and the interval
does not treat the pictures of one sample as independent.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import CLEAN, add_metric
from sorites.metrics._intervals import clustered_wilson_interval, paired_interval, wilson_interval
from sorites.metrics._rows import CLEAN_KEY, ON_GRID, SAMPLE_KEY, answer_frame, judged_rows, model_by_model, select_rows
from sorites.table import Table


@add_metric
def accuracy(table: Table, by: Sequence[str] = ("model", "shift", "severity")) -> pl.DataFrame:
    """Share of judged rows that are right; Wilson interval; ``missing`` counts the rows that have an error instead.

    A group with nothing but errors has a null value. The interval treats rows as independent: where ``by`` pools
    several settings of one sample it is too narrow, and ``mean_accuracy`` is the metric to use.
    """
    rows, keys = select_rows(table, by)
    sound = pl.col("error").is_null()
    counts = (
        rows.filter(ON_GRID)
        .group_by(keys)
        .agg(
            n=(sound & pl.col("correct").is_not_null()).sum().cast(pl.Int64),
            right=(sound & pl.col("correct")).sum().cast(pl.Int64),
            missing=sound.not_().sum().cast(pl.Int64),
        )
    )
    shares = counts.filter(pl.col("n") + pl.col("missing") > 0).with_columns(
        value=pl.when(pl.col("n") > 0).then(pl.col("right") / pl.col("n"))
    )
    bounded = shares.with_columns(**wilson_interval(pl.col("value"), pl.col("n")))
    return answer_frame(bounded, keys, "value", "n", "low", "high", "missing")


@add_metric
def mean_accuracy(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Mean accuracy over the settings of each shift, then over shifts and samples, without clean pictures; ``n`` counts samples.

    The interval is Wilson's with the effective number of verdicts. A sample that lacks a setting or a shift is averaged over
    the rest.
    """
    rows, keys = select_rows(table, by)
    shifted = judged_rows(rows).filter(pl.col("shift") != CLEAN)
    sums = over_samples(shifted, keys, value=pl.col("correct").cast(pl.Float64))
    value, n = pl.col("value"), pl.col("n")
    spread = pl.col("value_squared") - value**2
    bounded = sums.with_columns(**clustered_wilson_interval(value, spread, n, pl.col("rows")))
    return answer_frame(bounded, keys, "value", "n", "low", "high")


@add_metric
def accuracy_drop(table: Table, by: Sequence[str] = ("model", "shift", "severity")) -> pl.DataFrame:
    """Clean accuracy minus shifted accuracy of the same samples, as a fraction; ``clean`` and ``shifted`` hold the two.

    The comparison is paired: a picture counts only where its sample's clean picture was judged too, by the same model and run.
    ``n`` counts samples. The interval comes from the samples' differences, with half a pair added to each of the four
    ways two verdicts can fall (Agresti & Min 2005), so that it does not collapse where no verdict changed.
    """
    rows, keys = select_rows(table, by)
    verdicts = judged_rows(rows)
    clean = verdicts.filter(pl.col("shift") == CLEAN).group_by(CLEAN_KEY).agg(clean=pl.col("correct").mean())
    shifted = verdicts.filter(pl.col("shift") != CLEAN).join(clean, on=CLEAN_KEY, nulls_equal=True)
    right = pl.col("correct").cast(pl.Float64)
    parts = {"value": pl.col("clean") - right, "clean": pl.col("clean"), "shifted": right}
    sums = model_by_model(shifted, keys, lambda rows: over_samples(rows, keys, **parts))
    bounds = paired_interval(pl.col("value"), pl.col("value_squared"), pl.col("n"))
    return answer_frame(sums.with_columns(**bounds), keys, "value", "n", "low", "high", "clean", "shifted")


def over_samples(rows: pl.LazyFrame, keys: list[str], **parts: pl.Expr) -> pl.LazyFrame:
    """Average ``parts`` over settings, then shifts, then samples; add the mean square of ``value``, ``n`` and ``rows``."""
    names = list(parts)
    of_sample = list(dict.fromkeys([*keys, *SAMPLE_KEY]))
    of_shift = list(dict.fromkeys([*of_sample, "shift"]))
    means = rows.group_by(of_shift).agg(rows=pl.len(), **{name: part.mean() for name, part in parts.items()})
    if "shift" not in keys:
        means = means.group_by(of_sample).agg(pl.col("rows").sum(), *(pl.col(name).mean() for name in names))
    return means.group_by(keys).agg(
        *(pl.col(name).mean() for name in names),
        value_squared=(pl.col("value") ** 2).mean(),
        n=pl.len().cast(pl.Int64),
        rows=pl.col("rows").sum(),
    )
