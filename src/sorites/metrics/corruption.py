"""Corruption errors relative to a reference model (Hendrycks & Dietterich, ICLR 2019, section 4).

The CE of a shift is the model's error summed over severities, divided by the same sum of the reference.
mCE is the mean of CE over shifts; leave ``shift`` out of ``by`` to get it. Relative CE sums the
increase over the clean error instead. A value of 1 is as bad as the reference. The reference is a model
of the table, or a CSV file with published errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from sorites.core import CLEAN, SHIFTS, add_metric
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.messages import parameter
from sorites.core.table import Table
from sorites.io.paths import path_of
from sorites.io.tables import csv
from sorites.metrics.intervals import normal_interval
from sorites.metrics.rows import (
    CLEAN_KEY,
    IMAGE_COLUMNS,
    SAMPLE_KEY,
    SHIFTED,
    answer_frame,
    judged_rows,
    model_by_model,
    select_rows,
)

# Columns that may give the severity of an error in a reference file.
SEVERITY_COLUMNS = ("severity", "level")


def is_curve(reference: str | None) -> bool:
    """Return whether a reference is a CSV file of errors rather than the name of a model."""
    return reference is not None and reference.lower().endswith(".csv")


def with_reference(rows: pl.LazyFrame, path: str, relative: bool) -> pl.LazyFrame:
    """Join the error of a reference file at the same shift and severity as ``theirs``.

    Args:
        rows: Rows with shift, severity and level.
        path: The reference file.
        relative: Join the increase over the clean error instead of the error.

    Raises:
        SoritesError: If the file lacks a severity of the table; severities that only the file has
            are ignored.
    """
    curve, column = _read(path)
    clean = pl.col("shift") == CLEAN
    starts = curve.filter(clean | (pl.col(column) == 0) if column else clean)
    shifted = curve.filter(~clean & (pl.col(column) > 0) if column else ~clean)
    keys = ["shift", column] if column else ["shift"]
    settings = (
        rows.select("shift", "severity", "level")
        .unique()
        .sort("shift", "severity")
        .collect(engine="streaming")
    )
    _refuse_unmatched(settings, shifted, column, path)
    joined = rows.join(shifted.lazy().select(*keys, theirs="error"), on=keys)
    return (
        _add_rise(joined, starts, settings["shift"].unique(maintain_order=True), path) if relative else joined
    )


def _add_rise(rows: pl.LazyFrame, starts: pl.DataFrame, shifts: Iterable[str], path: str) -> pl.LazyFrame:
    clean_errors = dict(starts.select("shift", "error").iter_rows())
    missing = [shift for shift in shifts if shift not in clean_errors and CLEAN not in clean_errors]
    if missing:
        rows_needed = f"a row {missing[0]} at severity 0, or one row {CLEAN} for all shifts"
        raise SoritesError(f"{path}: relative errors need the clean error: expected {rows_needed}")
    clean = {shift: clean_errors.get(shift, clean_errors.get(CLEAN)) for shift in shifts}
    return rows.with_columns(
        pl.col("theirs") - pl.col("shift").replace_strict(clean, return_dtype=pl.Float64)
    )


def _refuse_unmatched(settings: pl.DataFrame, curve: pl.DataFrame, column: str | None, path: str) -> None:
    for (shift,), rows in settings.group_by("shift", maintain_order=True):
        errors = curve.filter(pl.col("shift") == shift)
        if not errors.height:
            has = ", ".join(curve["shift"].unique(maintain_order=True))
            raise SoritesError(
                f"{path} has no errors for {shift}; it has {has}. Remove {shift} from the table, or add its"
                " rows to the file"
            )
        if column is None:
            _refuse_missing_levels(str(shift), rows, path)
            continue
        mine, theirs = rows[column].to_list(), errors[column].to_list()
        missing = [value for value in mine if value not in theirs]
        if missing:
            here = f"the table has {shift} at {column} {_format_values(mine)}"
            both = f"{here}, {path} at {_format_values(theirs)}"
            raise SoritesError(
                f"{both}: {_format_values(missing)} cannot be compared. Add it to the file, or use only the"
                " severities of the file"
            )


def _refuse_missing_levels(shift: str, rows: pl.DataFrame, path: str) -> None:
    """Raise an error if the file has one error for all levels of a shift and the table lacks some of them."""
    levels = SHIFTS.get(shift).levels if shift in SHIFTS else ()
    if levels and sorted(rows["severity"].unique()) != sorted(levels):
        here = f"the table has {shift} at {_format_values(rows['severity'].unique().sort().to_list())}"
        raise SoritesError(
            f"{path} gives one error for all levels {_format_values(list(levels))} of {shift}, but {here}"
        )


def _format_values(values: list[float | None]) -> str:
    return ", ".join("no value" if value is None else f"{value:g}" for value in values)


def _read(path: str) -> tuple[pl.DataFrame, str | None]:
    """Return the errors and the column that gives their severity: severity, level or None."""
    frame = csv(path_of(path), "the reference as a CSV file")
    values = [name for name in ("error", "accuracy") if name in frame.columns]
    if "shift" not in frame.columns or len(values) != 1:
        needed = "shift, severity (or level, or neither) and error (or accuracy)"
        raise SoritesError(f"{path}: expected the columns {needed}; got {', '.join(frame.columns)}")
    column = next((name for name in SEVERITY_COLUMNS if name in frame.columns), None)
    numbers = [_numbers(frame, name, path) for name in (*values, *([column] if column else ()))]
    share = numbers[0] if values == ["error"] else 1 - numbers[0]
    curve = pl.DataFrame({"shift": frame["shift"].str.strip_chars(), "error": share})
    if column is not None:
        curve = curve.with_columns(numbers[1].cast(pl.Int32 if column == "level" else pl.Float64))
    _check_curve(curve, column, path)
    return curve, column


def _numbers(frame: pl.DataFrame, name: str, path: str) -> pl.Series:
    numbers = frame[name].str.strip_chars().cast(pl.Float64, strict=False)
    # The severity of clean rows may be empty.
    empty_start = (
        frame["shift"].str.strip_chars() == CLEAN
        if name in SEVERITY_COLUMNS
        else pl.repeat(False, frame.height, eager=True)
    )
    bad = numbers.is_null() & ~empty_start.fill_null(False)
    if bad.any():
        row = bad.arg_max() or 0
        raise SoritesError(
            f"{path}, row {row + 1}, column {name}: expected a number, got {frame[name][row]!r}"
        )
    return numbers.fill_null(0.0).alias(name)


def _check_curve(curve: pl.DataFrame, column: str | None, path: str) -> None:
    outside = ~curve["error"].is_between(-1e-9, 1 + 1e-9)
    if outside.any():
        row = outside.arg_max() or 0
        got = f"got {curve['error'][row]:g}; divide percent by 100"
        raise SoritesError(f"{path}, row {row + 1}: expected a share between 0 and 1, {got}")
    duplicated = curve.select("shift", *([column] if column else [])).is_duplicated()
    if duplicated.any():
        raise SoritesError(
            f"{path}, row {(duplicated.arg_max() or 0) + 1}: {curve['shift'][duplicated.arg_max() or 0]}"
            " appears twice"
        )


# Sums of errors below this count as 0: they may be rounding errors of the summation.
ROUNDING_TOLERANCE = 1e-12
# The mean increase of the reference's error over severities below which relative errors are undefined: a
# ratio to a smaller one is mostly noise.
MIN_INCREASE = 0.02


@add_metric
def corruption_error(
    table: Table, by: Sequence[str] = ("model", "shift"), reference: str | None = None
) -> pl.DataFrame:
    """Error summed over severities, divided by the same sum of the named ``reference`` model.

    Only images that both models were judged on count. ``n`` counts samples; the interval linearises the
    ratio over samples. The value is null where the reference makes no errors. A ``reference`` that ends
    in ``.csv`` is a file with the columns ``shift``, ``severity`` and ``error``, which are taken as
    exact.
    """
    rows, keys = _checked_rows(table, by, reference)
    pairs = _join_reference(_errors(judged_rows(rows)), reference, relative=False)
    return _ratio(pairs, keys, ROUNDING_TOLERANCE)


@add_metric
def relative_corruption_error(
    table: Table, by: Sequence[str] = ("model", "shift"), reference: str | None = None
) -> pl.DataFrame:
    """Increase of the error over the clean error, summed over severities, divided by the same sum of the
    ``reference`` model.

    It is computed like ``corruption_error``, on the samples whose clean image was judged too. The value is
    null where the reference's error rises by less than 2 points on average over severities, and so is a
    mean over shifts with such a shift.
    """
    rows, keys = _checked_rows(table, by, reference)
    verdicts = judged_rows(rows)
    clean = (
        verdicts.filter(pl.col("shift") == CLEAN).group_by(CLEAN_KEY).agg(clean=1 - pl.col("correct").mean())
    )
    increase = (
        _errors(verdicts)
        .join(clean, on=CLEAN_KEY, nulls_equal=True)
        .with_columns(pl.col("wrong") - pl.col("clean"))
    )
    return _ratio(_join_reference(increase, reference, relative=True), keys, MIN_INCREASE)


def _checked_rows(table: Table, by: Sequence[str], reference: str | None) -> tuple[pl.LazyFrame, list[str]]:
    rows, keys = select_rows(table, by, IMAGE_COLUMNS)
    checked_reference(rows, keys, by, reference)
    return rows, keys


def checked_reference(
    rows: pl.LazyFrame, keys: Sequence[str], by: Sequence[str], reference: str | None
) -> None:
    """Raise an error if the reference is missing or unknown, or if models are pooled."""
    if "model" not in keys:
        raise SoritesError(
            f"errors of models are relative to a reference: add model to {parameter('by')}, got"
            f" {', '.join(by) or 'nothing'}"
        )
    models = rows.select(pl.col("model").unique().sort()).collect(engine="streaming")["model"].to_list()
    here = f"The table has {', '.join(map(str, models))}."
    if models and reference is None:
        raise SoritesError(f"name the reference model with {parameter('reference', 'NAME')}. {here}")
    if models and reference not in models and not is_curve(reference):
        raise UnknownName("model", str(reference), models, here)


def _errors(verdicts: pl.LazyFrame) -> pl.LazyFrame:
    shifted = verdicts.filter(SHIFTED & (pl.col("severity") > 0))
    return shifted.with_columns(wrong=pl.col("correct").not_().cast(pl.Float64))


def _ratio(pairs: pl.LazyFrame, keys: list[str], least: float) -> pl.DataFrame:
    """Return ratios of summed errors; null where the reference's mean over severities is below ``least``."""
    parts = _linearise(model_by_model(pairs, keys, lambda rows: _by_sample(rows, keys)), keys, least)
    ratios = parts.group_by(_with(keys, "shift")).agg(pl.col("ratio").first())
    means = ratios.group_by(keys).agg(value=_strict_mean("ratio"), shifts=pl.len())
    samples = parts.group_by(_with(keys, *SAMPLE_KEY)).agg(pl.col("part").sum())
    sums = samples.group_by(keys).agg(n=pl.len().cast(pl.Int64), square=(pl.col("part") ** 2).sum())
    n = pl.col("n")
    variance = pl.when(n > 1).then(pl.col("square") / pl.col("shifts") ** 2 * n / (n - 1))
    joined = means.join(sums, on=keys, nulls_equal=True).with_columns(
        **normal_interval(pl.col("value"), variance)
    )
    return answer_frame(joined, keys, "value", "n", "low", "high")


def _linearise(sums: pl.DataFrame, keys: list[str], least: float) -> pl.DataFrame:
    """Add each shift's ``ratio`` and each sample's first-order contribution ``part``; the parts of a shift
    sum to 0.
    """
    over, under = (pl.col(name).sum().over(_with(keys, "shift")) for name in ("mine", "theirs"))
    # The order of a summation must not decide at the limit.
    defined = under >= least * pl.col("severities") * (1 - 1e-9)
    ratios = sums.with_columns(under=under, ratio=pl.when(defined).then(over / under))
    return ratios.with_columns(part=(pl.col("mine") - pl.col("ratio") * pl.col("theirs")) / pl.col("under"))


def _with(keys: list[str], *more: str) -> list[str]:
    return list(dict.fromkeys([*keys, *more]))


def _strict_mean(name: str) -> pl.Expr:
    return pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).mean())


def _join_reference(errors: pl.LazyFrame, reference: str | None, relative: bool) -> pl.LazyFrame:
    """Join the reference's error on the same image, or that of a published curve at the same severity."""
    if reference is not None and is_curve(reference):
        return with_reference(errors, reference, relative)
    reference_rows = errors.filter(pl.col("model") == pl.lit(reference, pl.String))
    theirs = (
        reference_rows.group_by("source", "image_id")
        .agg(theirs=pl.col("wrong").mean())
        .collect(engine="streaming")
    )
    return errors.join(theirs.lazy(), on=["source", "image_id"], nulls_equal=True)


def _by_sample(pairs: pl.LazyFrame, keys: list[str]) -> pl.LazyFrame:
    """Return each sample's contribution to the error summed over severities, of the model and of the
    reference.
    """
    slim = pairs.select(_with(keys, "shift", "severity", *SAMPLE_KEY, "wrong", "theirs"))
    weighted = slim.with_columns(
        share=1 / pl.len().over(_with(keys, "shift", "severity")),
        severities=pl.col("severity").n_unique().over(_with(keys, "shift")),
    )
    contributions = {"mine": pl.col("wrong") * pl.col("share"), "theirs": pl.col("theirs") * pl.col("share")}
    return weighted.group_by(_with(keys, "shift", *SAMPLE_KEY)).agg(
        pl.col("severities").first(), **{name: part.sum() for name, part in contributions.items()}
    )
