"""Corruption errors: a model's error relative to a reference model's (Hendrycks & Dietterich, ICLR
2019, section 4).

The CE of a shift is the model's error summed over severities, divided by the same sum of the
reference model. mCE is the mean of CE over shifts; leave the shift out of ``by`` to get it.
Relative CE sums the rise over the clean error instead. A value of 1 is as bad as the reference. The
reference is a model of the table, or a CSV file with the errors that were published of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from sorites.core import CLEAN, SHIFTS, add_metric
from sorites.core.errors import SoritesError, UnknownName
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

# A reference that is a curve in a small file and not a model of the table: errors by shift and severity,
# as papers print them.


PLACES = ("severity", "level")


def is_curve(reference: str | None) -> bool:
    """Return whether a reference is a file of errors: models are named otherwise."""
    return reference is not None and reference.lower().endswith(".csv")


def with_reference(rows: pl.LazyFrame, path: str, relative: bool) -> pl.LazyFrame:
    """Join to each row the error of the curve at its shift and severity (``theirs``), or the rise
    over its clean error.

    A severity of the table that the curve lacks is an error that names both; one that only the
    curve has is left out.
    """
    curve, place = _read(path)
    clean = pl.col("shift") == CLEAN
    starts = curve.filter(clean | (pl.col(place) == 0) if place else clean)
    along = curve.filter(~clean & (pl.col(place) > 0) if place else ~clean)
    keys = ["shift", place] if place else ["shift"]
    asked = (
        rows.select("shift", "severity", "level")
        .unique()
        .sort("shift", "severity")
        .collect(engine="streaming")
    )
    _refuse_unmatched(asked, along, place, path)
    joined = rows.join(along.lazy().select(*keys, theirs="error"), on=keys)
    return _risen(joined, starts, asked["shift"].unique(maintain_order=True), path) if relative else joined


def _risen(rows: pl.LazyFrame, starts: pl.DataFrame, shifts: Iterable[str], path: str) -> pl.LazyFrame:
    own = dict(starts.select("shift", "error").iter_rows())
    lost = [shift for shift in shifts if shift not in own and CLEAN not in own]
    if lost:
        wanted = f"a row {lost[0]} at severity 0, or one row {CLEAN} for all shifts"
        raise SoritesError(f"{path}: relative errors rise from the clean error: expected {wanted}")
    clean = {shift: own.get(shift, own.get(CLEAN)) for shift in shifts}
    return rows.with_columns(
        pl.col("theirs") - pl.col("shift").replace_strict(clean, return_dtype=pl.Float64)
    )


def _refuse_unmatched(asked: pl.DataFrame, curve: pl.DataFrame, place: str | None, path: str) -> None:
    for (shift,), rows in asked.group_by("shift", maintain_order=True):
        here = curve.filter(pl.col("shift") == shift)
        if not here.height:
            has = ", ".join(curve["shift"].unique(maintain_order=True))
            raise SoritesError(
                f"{path} has no errors of {shift}; it has {has}. Leave {shift} out, or add its rows"
            )
        if place is None:
            _refuse_part(str(shift), rows, path)
            continue
        mine, theirs = rows[place].to_list(), here[place].to_list()
        lost = [value for value in mine if value not in theirs]
        if lost:
            both = f"the table has {shift} at {place} {_listed(mine)}, {path} at {_listed(theirs)}"
            raise SoritesError(
                f"{both}: {_listed(lost)} cannot be compared. Add it to the file, or run only what the"
                " file has"
            )


def _refuse_part(shift: str, rows: pl.DataFrame, path: str) -> None:
    """A mean over all levels is comparable only if the table has them all, where it is known which
    there are.
    """
    levels = SHIFTS.get(shift).levels if shift in SHIFTS.names() else ()
    if levels and sorted(rows["severity"].unique()) != sorted(levels):
        here = f"the table has {shift} at {_listed(rows['severity'].unique().sort().to_list())}"
        raise SoritesError(
            f"{path} gives one error for all levels {_listed(list(levels))} of {shift}, but {here}"
        )


def _listed(values: list[float | None]) -> str:
    return ", ".join("no value" if value is None else f"{value:g}" for value in values)


def _read(path: str) -> tuple[pl.DataFrame, str | None]:
    """Return the curve and the column that places its rows: severity, level or none."""
    frame = csv(path_of(path), "the reference as a CSV file")
    values = [name for name in ("error", "accuracy") if name in frame.columns]
    if "shift" not in frame.columns or len(values) != 1:
        wanted = "shift, severity (or level, or neither) and error (or accuracy)"
        raise SoritesError(f"{path}: expected the columns {wanted}; got {', '.join(frame.columns)}")
    place = next((name for name in PLACES if name in frame.columns), None)
    numbers = [_numbers(frame, name, path) for name in (*values, *([place] if place else ()))]
    share = numbers[0] if values == ["error"] else 1 - numbers[0]
    made = pl.DataFrame({"shift": frame["shift"].str.strip_chars(), "error": share})
    if place is not None:
        made = made.with_columns(numbers[1].cast(pl.Int32 if place == "level" else pl.Float64))
    _check(made, place, path)
    return made, place


def _numbers(frame: pl.DataFrame, name: str, path: str) -> pl.Series:
    found = frame[name].str.strip_chars().cast(pl.Float64, strict=False)
    empty_start = (
        frame["shift"].str.strip_chars() == CLEAN
        if name in PLACES
        else pl.repeat(False, frame.height, eager=True)
    )
    bad = found.is_null() & ~empty_start.fill_null(False)
    if bad.any():
        row = bad.arg_max() or 0
        raise SoritesError(
            f"{path}, row {row + 1}, column {name}: expected a number, got {frame[name][row]!r}"
        )
    return found.fill_null(0.0).alias(name)


def _check(curve: pl.DataFrame, place: str | None, path: str) -> None:
    outside = ~curve["error"].is_between(-1e-9, 1 + 1e-9)
    if outside.any():
        row = outside.arg_max() or 0
        got = f"got {curve['error'][row]:g}; divide percent by 100"
        raise SoritesError(f"{path}, row {row + 1}: expected a share between 0 and 1, {got}")
    twice = curve.select("shift", *([place] if place else [])).is_duplicated()
    if twice.any():
        raise SoritesError(
            f"{path}, row {(twice.arg_max() or 0) + 1}: {curve['shift'][twice.arg_max() or 0]} stands there"
            " twice"
        )


# A sum of errors below this counts as 0, since the order of additions alone can make it that large.
ROUNDING = 1e-12


@add_metric
def corruption_error(
    table: Table, by: Sequence[str] = ("model", "shift"), reference: str | None = None
) -> pl.DataFrame:
    """Error summed over severities, divided by the same sum of the named ``reference`` model.

    Only images that both models were judged on count. ``n`` counts samples; the interval
    linearises the ratio sample by sample. The value is null where the reference makes no error at
    all. A ``reference`` that ends in ``.csv`` is a file with the columns ``shift``, ``severity``
    and ``error``; its errors are taken as exact.
    """
    rows, keys = _checked_rows(table, by, reference)
    return _ratio(_paired(_errors(judged_rows(rows)), reference, relative=False), keys)


@add_metric
def relative_corruption_error(
    table: Table, by: Sequence[str] = ("model", "shift"), reference: str | None = None
) -> pl.DataFrame:
    """Rise of the error over the clean error, summed over severities, divided by the same sum of
    the ``reference`` model.

    It is computed as ``corruption_error`` is, on the samples whose clean image was judged too.
    """
    rows, keys = _checked_rows(table, by, reference)
    verdicts = judged_rows(rows)
    clean = (
        verdicts.filter(pl.col("shift") == CLEAN).group_by(CLEAN_KEY).agg(clean=1 - pl.col("correct").mean())
    )
    risen = (
        _errors(verdicts)
        .join(clean, on=CLEAN_KEY, nulls_equal=True)
        .with_columns(pl.col("wrong") - pl.col("clean"))
    )
    return _ratio(_paired(risen, reference, relative=True), keys)


def _checked_rows(table: Table, by: Sequence[str], reference: str | None) -> tuple[pl.LazyFrame, list[str]]:
    """Return the rows and the group columns; a missing or unknown reference is an error."""
    rows, keys = select_rows(table, by, IMAGE_COLUMNS)
    checked_reference(rows, keys, by, reference)
    return rows, keys


def checked_reference(
    rows: pl.LazyFrame, keys: Sequence[str], by: Sequence[str], reference: str | None
) -> None:
    """Raise an error where the reference is missing or unknown, or where models are not held apart."""
    if "model" not in keys:
        raise SoritesError(
            "a model's error is measured against a reference: by needs model, got"
            f" {', '.join(by) or 'nothing'}"
        )
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
    joined = means.join(sums, on=keys, nulls_equal=True).with_columns(
        **normal_interval(pl.col("value"), variance)
    )
    return answer_frame(joined, keys, "value", "n", "low", "high")


def _linearised(sums: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Add each shift's ``ratio`` and each sample's first-order ``part`` in its deviation; the parts
    of a shift sum to 0.
    """
    over, under = (pl.col(name).sum().over(_with(keys, "shift")) for name in ("mine", "theirs"))
    ratios = sums.with_columns(under=under, ratio=pl.when(under.abs() > ROUNDING).then(over / under))
    return ratios.with_columns(part=(pl.col("mine") - pl.col("ratio") * pl.col("theirs")) / pl.col("under"))


def _with(keys: list[str], *more: str) -> list[str]:
    return list(dict.fromkeys([*keys, *more]))


def _strict_mean(name: str) -> pl.Expr:
    return pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).mean())


def _paired(errors: pl.LazyFrame, reference: str | None, relative: bool) -> pl.LazyFrame:
    """Join to each row the error of the reference model on the same image, or that of a published
    curve at its severity.
    """
    if reference is not None and is_curve(reference):
        return with_reference(errors, reference, relative)
    reference_rows = errors.filter(pl.col("model") == pl.lit(reference, pl.String))
    theirs = (
        reference_rows.group_by("image_id").agg(theirs=pl.col("wrong").mean()).collect(engine="streaming")
    )
    return errors.join(theirs.lazy(), on="image_id")


def _by_sample(pairs: pl.LazyFrame, keys: list[str]) -> pl.LazyFrame:
    """Return each sample's part of the mean error summed over severities, for the model (mine) and
    the reference (theirs).
    """
    slim = pairs.select(_with(keys, "shift", "severity", *SAMPLE_KEY, "wrong", "theirs"))
    weighed = slim.with_columns(share=1 / pl.len().over(_with(keys, "shift", "severity")))
    adds = {"mine": pl.col("wrong") * pl.col("share"), "theirs": pl.col("theirs") * pl.col("share")}
    return weighed.group_by(_with(keys, "shift", *SAMPLE_KEY)).agg(
        **{name: part.sum() for name, part in adds.items()}
    )
