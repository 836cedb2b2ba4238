"""A reference that is a curve in a small file and not a model of the table: errors by shift and severity, as papers print them.

    shift,severity,error          or level instead of severity, or neither; accuracy instead of error
    heavy_snow,0,0.31             severity 0, or the shift "clean" for all shifts: what relative errors rise from
    heavy_snow,0.5,0.35

Errors are shares between 0 and 1. Without severity and level, an error is the mean over all severities of its shift.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from sorites.core import CLEAN, SHIFTS
from sorites.errors import SoritesError
from sorites.reading.frames import csv
from sorites.reading.places import path_of

PLACES = ("severity", "level")


def is_curve(reference: str | None) -> bool:
    """Return whether a reference is a file of errors: models are named otherwise."""
    return reference is not None and reference.lower().endswith(".csv")


def with_reference(rows: pl.LazyFrame, path: str, relative: bool) -> pl.LazyFrame:
    """Join to each row the error of the curve at its shift and severity (``theirs``), or the rise over its clean error.

    A severity of the table that the curve lacks is an error that names both; one that only the curve has is left out.
    """
    curve, place = _read(path)
    clean = pl.col("shift") == CLEAN
    starts = curve.filter(clean | (pl.col(place) == 0) if place else clean)
    along = curve.filter(~clean & (pl.col(place) > 0) if place else ~clean)
    keys = ["shift", place] if place else ["shift"]
    asked = rows.select("shift", "severity", "level").unique().sort("shift", "severity").collect(engine="streaming")
    _refuse_unmatched(asked, along, place, path)
    joined = rows.join(along.lazy().select(*keys, theirs="error"), on=keys)
    return _risen(joined, starts, asked["shift"].unique(maintain_order=True), path) if relative else joined


def _risen(rows: pl.LazyFrame, starts: pl.DataFrame, shifts: Iterable[str], path: str) -> pl.LazyFrame:
    own = dict(starts.select("shift", "error").iter_rows())
    lost = [shift for shift in shifts if shift not in own and CLEAN not in own]
    if lost:
        wanted = f"a row {lost[0]} at severity 0, or one row {CLEAN} for all shifts"
        raise SoritesError(f"{path}: relative errors rise from the clean error: wanted {wanted}")
    clean = {shift: own.get(shift, own.get(CLEAN)) for shift in shifts}
    return rows.with_columns(pl.col("theirs") - pl.col("shift").replace_strict(clean, return_dtype=pl.Float64))


def _refuse_unmatched(asked: pl.DataFrame, curve: pl.DataFrame, place: str | None, path: str) -> None:
    for (shift,), rows in asked.group_by("shift", maintain_order=True):
        here = curve.filter(pl.col("shift") == shift)
        if not here.height:
            has = ", ".join(curve["shift"].unique(maintain_order=True))
            raise SoritesError(f"{path} has no errors of {shift}; it has {has}. Leave {shift} out, or add its rows")
        if place is None:
            _refuse_part(str(shift), rows, path)
            continue
        mine, theirs = rows[place].to_list(), here[place].to_list()
        lost = [value for value in mine if value not in theirs]
        if lost:
            both = f"the table has {shift} at {place} {_listed(mine)}, {path} at {_listed(theirs)}"
            raise SoritesError(f"{both}: {_listed(lost)} cannot be compared. Add it to the file, or run only what the file has")


def _refuse_part(shift: str, rows: pl.DataFrame, path: str) -> None:
    """A mean over all levels is comparable only if the table has them all, where it is known which there are."""
    levels = SHIFTS.get(shift).levels if shift in SHIFTS.names() else ()
    if levels and sorted(rows["severity"].unique()) != sorted(levels):
        here = f"the table has {shift} at {_listed(rows['severity'].unique().sort().to_list())}"
        raise SoritesError(f"{path} gives one error for all levels {_listed(list(levels))} of {shift}, but {here}")


def _listed(values: list[float | None]) -> str:
    return ", ".join("no value" if value is None else f"{value:g}" for value in values)


def _read(path: str) -> tuple[pl.DataFrame, str | None]:
    """Return the curve and the column that places its rows: severity, level or none."""
    frame = csv(path_of(path), "the reference as a CSV file")
    values = [name for name in ("error", "accuracy") if name in frame.columns]
    if "shift" not in frame.columns or len(values) != 1:
        wanted = "shift, severity (or level, or neither) and error (or accuracy)"
        raise SoritesError(f"{path}: wanted the columns {wanted}; got {', '.join(frame.columns)}")
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
    empty_start = frame["shift"].str.strip_chars() == CLEAN if name in PLACES else pl.repeat(False, frame.height, eager=True)
    bad = found.is_null() & ~empty_start.fill_null(False)
    if bad.any():
        row = bad.arg_max() or 0
        raise SoritesError(f"{path}, row {row + 1}, column {name}: wanted a number, got {frame[name][row]!r}")
    return found.fill_null(0.0).alias(name)


def _check(curve: pl.DataFrame, place: str | None, path: str) -> None:
    outside = ~curve["error"].is_between(-1e-9, 1 + 1e-9)
    if outside.any():
        row = outside.arg_max() or 0
        got = f"got {curve['error'][row]:g}; divide percent by 100"
        raise SoritesError(f"{path}, row {row + 1}: wanted a share between 0 and 1, {got}")
    twice = curve.select("shift", *([place] if place else [])).is_duplicated()
    if twice.any():
        raise SoritesError(f"{path}, row {(twice.arg_max() or 0) + 1}: {curve['shift'][twice.arg_max() or 0]} stands there twice")
