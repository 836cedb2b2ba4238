"""The cells of a prediction file, as the types of the table. A cell that cannot be read is named by file, row and column."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from sorites.errors import SoritesError
from sorites.labels import Labels
from sorites.pipeline.imports.names import ALIASES, Naming
from sorites.reading.frames import as_numbers
from sorites.reading.frames import sheet as read_file
from sorites.reading.texts import json_object, json_value
from sorites.table import SCHEMA

ROW = "(row)"
"""The column with the number of a row in its file, counted from 1 below the header."""

LABEL, LABELS = ("label", "pred"), ("accept", "top5")
LIMITS = {"severity": (0.0, math.inf), "conf": (0.0, 1.0 + 1e-6)}
"""The least and the greatest number of a column."""
NESTED = ("truth", "attrs", "degrees", "boxes")
_TRUTH = {"true": True, "1": True, "yes": True, "1.0": True, "false": False, "0": False, "no": False, "0.0": False}


@dataclass(frozen=True)
class Sheet:
    """One file as read: its rows under the table's names, and what each column is called in the file."""

    file: str
    frame: pl.DataFrame
    called: Mapping[str, str]

    def wrong(self, index: int, name: str, why: object) -> SoritesError:
        """Return the error of one cell."""
        row = self.frame[ROW][index]
        return SoritesError(f"{self.file}, row {row}, column {self.called.get(name, name)}: {why}")


def read_sheet(path: Path, naming: Naming, aliases: Mapping[str, tuple[str, ...]] = ALIASES) -> Sheet:
    """Read a CSV (comma or, in ``.tsv``, tab) or parquet file; the columns that the table does not know are left out."""
    frame = read_frame(path)
    called = naming.of(frame.columns, path.name, aliases)
    chosen = pl.DataFrame([frame[mine].alias(name) for name, mine in called.items()])
    numbered = pl.DataFrame({ROW: range(1, frame.height + 1)}, schema={ROW: pl.Int64}).hstack(chosen)
    return Sheet(path.name, numbered.with_columns(_constant(name, value) for name, value in naming.constants.items()), called)


def read_frame(path: Path) -> pl.DataFrame:
    """Return the file as it stands; cells of text files are text, without spaces around them, and empty ones are null."""
    frame = read_file(path, separator="\t" if path.suffix.lower() == ".tsv" else ",")
    if not frame.height:
        raise SoritesError(f"{path} holds no rows")
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    return frame.with_columns([_stripped(frame[name]) for name in texts])  # by name: pl.col takes * and ^x$ for patterns


def _stripped(column: pl.Series) -> pl.Series:
    bare = column.str.strip_chars()
    return bare.set(bare == "", None)


def _constant(name: str, value: Any) -> pl.Expr:
    return pl.lit(json.dumps(value) if isinstance(value, list | dict) else value).alias(name)


def typed(sheet: Sheet, labels: Labels) -> pl.DataFrame:
    """Return the sheet's rows with the types of the table; entries of ``params`` and ``attrs`` keep theirs."""
    made = [_column(sheet, name, labels) if name in SCHEMA else sheet.frame[name] for name in sheet.frame.columns]
    return pl.DataFrame(made)


def _column(sheet: Sheet, name: str, labels: Labels) -> pl.Series:
    column, kind = sheet.frame[name], SCHEMA[name]
    if name in LABEL:
        return parsed(sheet, name, lambda value: _label(value, labels))
    if name in LABELS:
        return parsed(sheet, name, lambda value: None if value == "null" else [_label(one, labels) for one in _several(value)])
    if kind == pl.Boolean and column.dtype != pl.Boolean:
        return parsed(sheet, name, _boolean)
    if kind.is_numeric():
        return _numbers(sheet, name, kind)
    if name == "params":
        return parsed(sheet, name, lambda value: json.dumps(_object(value), sort_keys=True))
    if name in NESTED and column.dtype == pl.String:
        return parsed(sheet, name, json_value)
    try:
        return column.cast(kind)
    except pl.exceptions.PolarsError:
        raise SoritesError(f"{sheet.file}, column {sheet.called.get(name, name)}: wanted {kind}, got {column.dtype}") from None


def parsed(sheet: Sheet, name: str, parse: Callable[[Any], Any]) -> pl.Series:
    """Parse each different value of a column once; the first row whose value cannot be parsed is named."""
    values = sheet.frame[name].to_list()
    found: dict[Any, Any] = {}
    for index, value in enumerate(values):
        key = _key(value)
        if value is None or key in found:
            continue
        try:
            found[key] = parse(value)
        except (SoritesError, ValueError, TypeError, AttributeError, OverflowError) as error:
            raise sheet.wrong(index, name, str(error)[:300]) from None
    told = [None if v is None else found[_key(v)] for v in values]
    try:
        return pl.Series(name, told, SCHEMA[name], strict=False)
    except (pl.exceptions.PolarsError, TypeError, ValueError):
        raise SoritesError(f"{sheet.file}, column {sheet.called.get(name, name)}: wanted {SCHEMA[name]}") from None


def _key(value: Any) -> Any:
    return repr(value) if isinstance(value, list | dict) else (type(value), value)


def _numbers(sheet: Sheet, name: str, kind: pl.DataType) -> pl.Series:
    column = sheet.frame[name]
    numbers = as_numbers(column, f"{sheet.file}, column {sheet.called.get(name, name)}")
    bad = (numbers.is_null() & column.is_not_null()) | numbers.is_nan().fill_null(False)
    whole = kind.is_integer()
    if whole:
        bad = bad | (numbers != numbers.round()).fill_null(False)
    if bad.any():
        index = bad.arg_max() or 0
        raise sheet.wrong(index, name, f"wanted {'a whole number' if whole else 'a number'}, got {column[index]!r}")
    low, high = LIMITS.get(name, (-math.inf, math.inf))
    beyond = ((numbers < low) | (numbers > high)).fill_null(False)
    if beyond.any():
        index = beyond.arg_max() or 0
        wanted = f"from {low:g} to {high:g}" if math.isfinite(high) else f"of at least {low:g}"
        raise sheet.wrong(index, name, f"wanted a number {wanted}, got {column[index]!r}")
    return numbers.cast(kind)


def _label(value: Any, labels: Labels) -> int:
    text = str(value).strip()
    number = float(text) if text.removesuffix(".0").isdecimal() else math.nan
    if isinstance(value, int | float) or text.endswith(".0"):
        if not (number < len(labels)):
            raise SoritesError(f"wanted a class from 0 to {len(labels) - 1}, got {text}")
        return int(number)
    return labels.find(text)


def _several(value: Any) -> list[Any]:
    """Return a list of classes: one as JSON, or with semicolons between its parts."""
    if isinstance(value, str):
        return list(json_value(value)) if value.startswith("[") else [part for part in value.split(";") if part.strip()]
    return list(value)


def _object(value: Any) -> dict[str, Any]:
    return json_object(value)


def _boolean(value: Any) -> bool:
    text = str(value).lower()
    if text not in _TRUTH:
        raise SoritesError(f"wanted true or false, got {value!r}")
    return _TRUTH[text]
