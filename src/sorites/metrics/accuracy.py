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

    A group with nothing but errors has a null value. Every row counts the same; where ``by`` pools several settings of one sample
    the interval is over samples, and ``mean_accuracy`` is the mean in which every shift counts the same.
    """
    rows, keys = select_rows(table, by)
    on_grid = rows.filter(ON_GRID)
    sums = _counted(on_grid, keys, [*keys, SAMPLE] if _pools(on_grid, keys) else keys)
    n = pl.col("n")
    shares = sums.filter(n + pl.col("missing") > 0).with_columns(value=pl.when(n > 0).then(pl.col("right") / n))
    p = pl.col("value")
    spread = pl.col("samples") * (pl.col("rr") - 2 * p * pl.col("rn") + p**2 * pl.col("nn")) / n**2
    pooled = clustered_wilson_interval(p, spread, pl.col("samples"), n)
    plain = wilson_interval(p, n)
    bounds = {end: pl.when(pl.col("samples") == n).then(plain[end]).otherwise(pooled[end]) for end in plain}
    return answer_frame(shares.with_columns(**bounds), keys, "value", "n", "low", "high", "missing")


SAMPLE = "(sample)"
"""A number that differs between samples."""


def _pools(rows: pl.LazyFrame, keys: list[str]) -> bool:
    """Return whether a group may hold several rows of one sample; it cannot where ``keys`` tell all its images apart."""
    if "image_id" in keys and "model" in keys:
        return False
    if not {"model", "shift", "severity"} <= set(keys):
        return True
    several = pl.struct("run_id", "seed").n_unique() > 1
    unordered = (pl.col("severity").is_null() & pl.col("correct").is_not_null()).any()
    return bool(rows.select(several | unordered).collect(engine="streaming").item())


def _counted(rows: pl.LazyFrame, keys: list[str], unit: list[str]) -> pl.LazyFrame:
    """Count rows, right ones and those that are missing, with the sums over units that the spread between samples follows from.

    Where a unit is the group itself, every row is a sample of its own.
    """
    sound = pl.col("error").is_null()
    n, right = pl.col("n"), pl.col("right")
    counts = rows.with_columns(pl.struct(SAMPLE_KEY).hash().alias(SAMPLE)) if SAMPLE in unit else rows
    each = counts.group_by(unit).agg(
        n=(sound & pl.col("correct").is_not_null()).sum().cast(pl.Int64),
        right=(sound & pl.col("correct")).sum().cast(pl.Int64),
        missing=sound.not_().sum().cast(pl.Int64),
    )
    if SAMPLE not in unit:
        return each.with_columns(samples=n, nn=n, rn=right, rr=right)
    return each.group_by(keys).agg(
        n.sum(), right.sum(), pl.col("missing").sum(), samples=(n > 0).sum().cast(pl.Int64),
        nn=(n * n).sum(), rn=(right * n).sum(), rr=(right * right).sum(),
    )  # fmt: skip


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
    apart = pl.col("clean") - right
    parts = {"value": apart, "clean": pl.col("clean"), "shifted": right, "apart": apart.abs()}
    sums = model_by_model(shifted, keys, lambda rows: over_samples(rows, keys, **parts))
    bounds = paired_interval(pl.col("value"), pl.col("value_squared"), pl.col("apart"), pl.col("n"))
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
