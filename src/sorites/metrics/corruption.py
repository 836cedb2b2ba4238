"""Corruption errors: a model's error relative to a reference model's (Hendrycks & Dietterich, ICLR 2019, section 4).

The CE of a shift is the model's error summed over severities, divided by the same sum of the reference model. mCE is the mean of
CE over shifts; leave the shift out of ``by`` to get it. Relative CE sums the rise over the clean error instead. A value of 1 is
as bad as the reference. The reference is a model of the table, or a CSV file with the errors that were published of one.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import CLEAN, add_metric
from sorites.errors import SoritesError, UnknownName
from sorites.metrics._intervals import normal_interval
from sorites.metrics._reference import is_curve, with_reference
from sorites.metrics._rows import (
    CLEAN_KEY,
    IMAGE_COLUMNS,
    SAMPLE_KEY,
    SHIFTED,
    answer_frame,
    judged_rows,
    model_by_model,
    select_rows,
)
from sorites.table import Table

ROUNDING = 1e-12
"""A sum of errors below this counts as 0, since the order of additions alone can make it that large."""


@add_metric
def corruption_error(table: Table, by: Sequence[str] = ("model", "shift"), reference: str | None = None) -> pl.DataFrame:
    """Error summed over severities, divided by the same sum of the named ``reference`` model.

    Only pictures that both models were judged on count. ``n`` counts samples; the interval linearises the ratio sample by
    sample. The value is null where the reference makes no error at all. A ``reference`` that ends in ``.csv`` is a file with the
    columns ``shift``, ``severity`` and ``error``; its errors are taken as exact.
    """
    rows, keys = _checked_rows(table, by, reference)
    return _ratio(_paired(_errors(judged_rows(rows)), reference, relative=False), keys)


@add_metric
def relative_corruption_error(table: Table, by: Sequence[str] = ("model", "shift"), reference: str | None = None) -> pl.DataFrame:
    """Rise of the error over the clean error, summed over severities, divided by the same sum of the ``reference`` model.

    It is computed as ``corruption_error`` is, on the samples whose clean picture was judged too.
    """
    rows, keys = _checked_rows(table, by, reference)
    verdicts = judged_rows(rows)
    clean = verdicts.filter(pl.col("shift") == CLEAN).group_by(CLEAN_KEY).agg(clean=1 - pl.col("correct").mean())
    risen = _errors(verdicts).join(clean, on=CLEAN_KEY, nulls_equal=True).with_columns(pl.col("wrong") - pl.col("clean"))
    return _ratio(_paired(risen, reference, relative=True), keys)


def _checked_rows(table: Table, by: Sequence[str], reference: str | None) -> tuple[pl.LazyFrame, list[str]]:
    """Return the rows and the group columns; a missing or unknown reference is an error."""
    rows, keys = select_rows(table, by, IMAGE_COLUMNS)
    checked_reference(rows, keys, by, reference)
    return rows, keys


def checked_reference(rows: pl.LazyFrame, keys: Sequence[str], by: Sequence[str], reference: str | None) -> None:
    """Raise an error where the reference is missing or unknown, or where models are not held apart."""
    if "model" not in keys:
        raise SoritesError(f"a model's error is measured against a reference: by needs model, got {', '.join(by) or 'nothing'}")
    models = rows.select(pl.col("model").unique().sort()).collect(engine="streaming")["model"].to_list()
    here = f"The table has {', '.join(map(str, models))}."
    if models and reference is None:
        raise SoritesError(f"name the model to measure against: reference=NAME. {here}")
    if models and reference not in models and not is_curve(reference):
        raise UnknownName("model", str(reference), models, here)


def _errors(verdicts: pl.LazyFrame) -> pl.LazyFrame:
    shifted = verdicts.filter(SHIFTED & (pl.col("severity") > 0))
    return shifted.with_columns(wrong=pl.col("correct").not_().cast(pl.Float64))


def _ratio(pairs: pl.LazyFrame, keys: list[str]) -> pl.DataFrame:
    parts = _linearised(model_by_model(pairs, keys, lambda some: _by_sample(some, keys)), keys)
    ratios = parts.group_by(_with(keys, "shift")).agg(pl.col("ratio").first())
    means = ratios.group_by(keys).agg(value=_strict_mean("ratio"), shifts=pl.len())
    samples = parts.group_by(_with(keys, *SAMPLE_KEY)).agg(pl.col("part").sum())
    sums = samples.group_by(keys).agg(n=pl.len().cast(pl.Int64), square=(pl.col("part") ** 2).sum())
    n = pl.col("n")
    variance = pl.when(n > 1).then(pl.col("square") / pl.col("shifts") ** 2 * n / (n - 1))
    joined = means.join(sums, on=keys, nulls_equal=True).with_columns(**normal_interval(pl.col("value"), variance))
    return answer_frame(joined, keys, "value", "n", "low", "high")


def _linearised(sums: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Add each shift's ``ratio`` and each sample's first-order ``part`` in its deviation; the parts of a shift sum to 0."""
    over, under = (pl.col(name).sum().over(_with(keys, "shift")) for name in ("mine", "theirs"))
    ratios = sums.with_columns(under=under, ratio=pl.when(under.abs() > ROUNDING).then(over / under))
    return ratios.with_columns(part=(pl.col("mine") - pl.col("ratio") * pl.col("theirs")) / pl.col("under"))


def _with(keys: list[str], *more: str) -> list[str]:
    return list(dict.fromkeys([*keys, *more]))


def _strict_mean(name: str) -> pl.Expr:
    return pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).mean())


def _paired(errors: pl.LazyFrame, reference: str | None, relative: bool) -> pl.LazyFrame:
    """Join to each row the error of the reference model on the same picture, or that of a published curve at its severity."""
    if reference is not None and is_curve(reference):
        return with_reference(errors, reference, relative)
    reference_rows = errors.filter(pl.col("model") == pl.lit(reference, pl.String))
    theirs = reference_rows.group_by("image_id").agg(theirs=pl.col("wrong").mean()).collect(engine="streaming")
    return errors.join(theirs.lazy(), on="image_id")


def _by_sample(pairs: pl.LazyFrame, keys: list[str]) -> pl.LazyFrame:
    """Return each sample's part of the mean error summed over severities, for the model (mine) and the reference (theirs)."""
    slim = pairs.select(_with(keys, "shift", "severity", *SAMPLE_KEY, "wrong", "theirs"))
    weighed = slim.with_columns(share=1 / pl.len().over(_with(keys, "shift", "severity")))
    adds = {"mine": pl.col("wrong") * pl.col("share"), "theirs": pl.col("theirs") * pl.col("share")}
    return weighed.group_by(_with(keys, "shift", *SAMPLE_KEY)).agg(**{name: part.sum() for name, part in adds.items()})
