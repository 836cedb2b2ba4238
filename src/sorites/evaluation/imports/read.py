"""Read prediction files and convert their cells to the types of the table.

Errors name the file, row and column of a cell.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core.errors import Notice, SoritesError, UnknownName
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.core.table import SCHEMA
from sorites.io.readers import json_object, json_value, toml_file
from sorites.io.tables import as_numbers
from sorites.io.tables import sheet as read_file

# The columns of the table that a file may have.
FIELDS = tuple(name for name in SCHEMA if name != "run_id")

# A column ``params.iso`` is an entry of ``params``, and ``attrs.weather`` an attribute.
ENTRY_PREFIXES = ("params.", "attrs.")

# Common names of the table's columns in prediction files.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "sample_id": (
        "sample",
        "id",
        "image",
        "img",
        "file",
        "file_name",
        "filename",
        "path",
        "image_path",
        "img_path",
        "img_dir",
    ),
    "label": (
        "gt",
        "gt_class",
        "gt_label",
        "target",
        "ground_truth",
        "true_label",
        "true_class",
        "y_true",
        "class",
    ),
    "pred": (
        "prediction",
        "pred_class",
        "pred_label",
        "predicted",
        "predicted_label",
        "predicted_class",
        "top1",
        "y_pred",
    ),
    "conf": ("confidence", "prob", "probability", "max_prob"),
    "top5": ("top_5",),
    "correct": ("right", "is_correct"),
    "model": ("model_name", "arch", "architecture"),
    "shift": ("corruption", "nuisance"),
    "severity": ("scale",),
    "source": ("dataset",),
    "score": ("ood_score", "ood"),
    "scorer": ("postprocessor", "ood_method"),
    "attrs": ("attributes",),
}

HIGHER = ("ood", "id")


@dataclass(frozen=True)
class Naming:
    """The mapping of a file's columns to those of the table.

    Attributes:
        columns: The file's column for a column of the table.
        constants: Columns of the table with the same value in every row.
        higher: What a high score means in the file; in the table, higher is more OOD.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    higher: str = "ood"

    def with_constants(self, **more: str | None) -> Naming:
        """Return the naming with further constants; those that are None are ignored."""
        constants = {name: value for name, value in more.items() if value is not None}
        duplicates = sorted(constants.keys() & self.columns.keys())
        if duplicates:
            raise SoritesError(
                f"{duplicates[0]} is set by {option(duplicates[0], None)} and by a column of"
                f" {option('columns', None)}; remove one"
            )
        return Naming(self.columns, {**self.constants, **constants}, self.higher)

    def of(
        self, present: Sequence[str], file: str, aliases: Mapping[str, tuple[str, ...]] = ALIASES
    ) -> dict[str, str]:
        """Return the file's column for each column of the table that it has.

        Args:
            present: The columns of the file.
            file: The name of the file, for error messages.
            aliases: Other names of the table's columns.

        Raises:
            UnknownName: If the file lacks a column of ``columns``.
            SoritesError: If two columns of the file match one column of the table.
        """
        for column in self.columns.values():
            if column not in present:
                raise UnknownName(f"column of {file}", column, present, f"It has {', '.join(present)}.")
        by_lower_name = {name.strip().lower(): name for name in reversed(present)}
        matched = dict(self.columns)
        for name in dict.fromkeys([*FIELDS, *aliases]):
            if name in matched or name in self.constants:
                continue
            if name in by_lower_name:
                matched[name] = by_lower_name[name]
                continue
            candidates = [
                by_lower_name[alias]
                for alias in aliases.get(name, ())
                if alias in by_lower_name and by_lower_name[alias] not in matched.values()
            ]
            if len(candidates) > 1:
                remedy = (
                    f"choose one in a file for {option('columns', None)}:"
                    f' [columns] {name} = "{candidates[0]}"'
                )
                raise SoritesError(f"{file}: {' and '.join(candidates)} could both be {name}; {remedy}")
            matched |= {name: candidates[0]} if candidates else {}
        parts = {
            name: by_lower_name[name]
            for name in by_lower_name
            if name.startswith(ENTRY_PREFIXES) and name not in matched
        }
        return matched | {name: column for name, column in parts.items() if name not in self.constants}


def read_naming(path: str | Path | None) -> Naming:
    """Read a TOML file with the tables ``[columns]`` and ``[constants]`` and the key ``higher``, all
    optional.

    Raises:
        SoritesError: If the file has unknown keys or values.
    """
    if path is None:
        return Naming()
    data = toml_file(Path(path), f"{option('columns', None)} as a TOML file")
    keys = ("columns", "constants", "higher")
    for key in data:
        if key not in keys:
            raise UnknownName(f"key of {path}", key, keys, f"It may have {', '.join(keys)}.")
    columns, constants = (_table(data, key, path) for key in ("columns", "constants"))
    higher = data.get("higher", "ood")
    if higher not in HIGHER:
        raise SoritesError(f"{path}: higher must be one of {', '.join(HIGHER)}, got {higher!r}")
    invalid = next((name for name, column in columns.items() if not isinstance(column, str)), None)
    if invalid is not None:
        raise SoritesError(
            f'{path}: expected [columns] {invalid} = "COLUMN OF THE FILE", got {columns[invalid]!r}'
        )
    duplicates = sorted(columns.keys() & constants.keys())
    if duplicates:
        raise SoritesError(f"{path}: {duplicates[0]} is in [columns] and in [constants]; remove one")
    return Naming(columns, constants, higher)


def _table(data: Mapping[str, Any], key: str, path: str | Path) -> dict[str, Any]:
    section = data.get(key, {})
    if not isinstance(section, dict):
        raise SoritesError(f"{path}: expected {key} as a table [{key}], got {section!r}")
    flat: dict[str, Any] = {}
    for name, value in section.items():
        inner = (
            {f"{name}.{part}": entry for part, entry in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
        flat |= inner
    allowed = (*FIELDS, "n", "light", "param", "shot")
    for name in flat:
        if name not in allowed and not name.startswith(ENTRY_PREFIXES):
            raise UnknownName(
                f"column in [{key}] of {path}", name, FIELDS, f"The table's columns are {', '.join(FIELDS)}."
            )
    return flat


# The column with the number of a row in its file, from 1 below the header.
ROW = "(row)"

LABEL, LABELS = ("label", "pred"), ("accept", "top5")
# The minimum and maximum of a column.
LIMITS = {"severity": (0.0, math.inf), "conf": (0.0, 1.0)}
# A softmax in single precision may exceed 1 by this much.
ROUNDING = 1e-6
NESTED = ("ground_truth", "attrs", "degrees", "boxes")
_BOOLEANS = {
    "true": True,
    "1": True,
    "yes": True,
    "1.0": True,
    "false": False,
    "0": False,
    "no": False,
    "0.0": False,
}


@dataclass(frozen=True)
class Sheet:
    """A prediction file.

    Attributes:
        file: The name of the file.
        frame: Its rows under the table's names.
        called: The file's name of each column.
    """

    file: str
    frame: pl.DataFrame
    called: Mapping[str, str]

    def wrong(self, index: int, name: str, why: object) -> SoritesError:
        """Return the error of one cell."""
        row = self.frame[ROW][index]
        return SoritesError(f"{self.file}, row {row}, column {self.called.get(name, name)}: {why}")


@dataclass(frozen=True)
class Part:
    """A file of an import: its name in messages, and what reads it."""

    name: str
    read: Callable[[], Sheet]


@dataclass(frozen=True)
class Reading:
    """The files of an import and how they are read.

    Attributes:
        files: Name and content hash of every file that the rows depend on.
        parts: The files of predictions in the order in which they are read; each becomes a shard.
        labels: The classes.
    """

    files: tuple[tuple[str, str], ...]
    parts: Sequence[Part]
    labels: Labels


def read_sheet(path: Path, naming: Naming, aliases: Mapping[str, tuple[str, ...]] = ALIASES) -> Sheet:
    """Read a CSV, TSV (``.tsv``) or parquet file; columns that the table does not have are left out."""
    frame = read_frame(path)
    called = naming.of(frame.columns, path.name, aliases)
    chosen = pl.DataFrame([frame[column].alias(name) for name, column in called.items()])
    numbered = pl.DataFrame({ROW: range(1, frame.height + 1)}, schema={ROW: pl.Int64}).hstack(chosen)
    return Sheet(
        path.name,
        numbered.with_columns(_constant(name, value) for name, value in naming.constants.items()),
        called,
    )


def read_frame(path: Path) -> pl.DataFrame:
    """Return a file as a frame; cells of text files are stripped strings, and empty ones are null."""
    frame = read_file(path, separator="\t" if path.suffix.lower() == ".tsv" else ",")
    if not frame.height:
        raise SoritesError(f"{path} has no rows")
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    # By name, because pl.col interprets * and ^x$ as patterns.
    return frame.with_columns([_strip(frame[name]) for name in texts])


def _strip(column: pl.Series) -> pl.Series:
    bare = column.str.strip_chars()
    return bare.set(bare == "", None)


def _constant(name: str, value: Any) -> pl.Expr:
    return pl.lit(json.dumps(value) if isinstance(value, list | dict) else value).alias(name)


def typed(sheet: Sheet, labels: Labels) -> pl.DataFrame:
    """Return the sheet's rows with the types of the table; entries of ``params`` and ``attrs`` keep
    theirs.
    """
    columns = [
        _column(sheet, name, labels) if name in SCHEMA else sheet.frame[name] for name in sheet.frame.columns
    ]
    return pl.DataFrame(columns)


def _column(sheet: Sheet, name: str, labels: Labels) -> pl.Series:
    column, kind = sheet.frame[name], SCHEMA[name]
    if name in LABEL:
        return parsed(sheet, name, lambda value: _label(value, labels))
    if name in LABELS:
        return parsed(
            sheet,
            name,
            lambda value: (
                None if value == "null" else [_label(label, labels) for label in _split_classes(value)]
            ),
        )
    if kind == pl.Boolean and column.dtype != pl.Boolean:
        return parsed(sheet, name, _boolean)
    if kind.is_numeric():
        return _numbers(sheet, name, kind)
    if name == "params":
        return parsed(sheet, name, lambda value: json.dumps(json_object(value), sort_keys=True))
    if name in NESTED and column.dtype == pl.String:
        return parsed(sheet, name, json_value)
    try:
        return column.cast(kind)
    except pl.exceptions.PolarsError:
        raise SoritesError(
            f"{sheet.file}, column {sheet.called.get(name, name)}: expected {kind}, got {column.dtype}"
        ) from None


def parsed(sheet: Sheet, name: str, parse: Callable[[Any], Any]) -> pl.Series:
    """Parse each distinct value of a column once; an error names the first row with an invalid value."""
    values = sheet.frame[name].to_list()
    results: dict[Any, Any] = {}
    for index, value in enumerate(values):
        key = _key(value)
        if value is None or key in results:
            continue
        try:
            results[key] = parse(value)
        except (SoritesError, ValueError, TypeError, AttributeError, OverflowError) as error:
            raise sheet.wrong(index, name, str(error)[:300]) from None
    converted = [None if v is None else results[_key(v)] for v in values]
    try:
        return pl.Series(name, converted, SCHEMA[name], strict=False)
    except (pl.exceptions.PolarsError, TypeError, ValueError):
        raise SoritesError(
            f"{sheet.file}, column {sheet.called.get(name, name)}: expected {SCHEMA[name]}"
        ) from None


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
        raise sheet.wrong(
            index, name, f"expected {'a whole number' if whole else 'a number'}, got {column[index]!r}"
        )
    return _within_limits(sheet, name, numbers).cast(kind)


def _within_limits(sheet: Sheet, name: str, numbers: pl.Series) -> pl.Series:
    """Return the numbers of a column that has limits; those that exceed one by a rounding error are set to
    it, with a notice.
    """
    if name not in LIMITS:
        return numbers
    low, high = LIMITS[name]
    outside = ((numbers < low) | (numbers > high + ROUNDING) | numbers.is_infinite()).fill_null(False)
    if outside.any():
        index = outside.arg_max() or 0
        allowed = f"from {low:g} to {high:g}" if math.isfinite(high) else f"of at least {low:g}"
        raise sheet.wrong(
            index, name, f"expected a finite number {allowed}, got {sheet.frame[name][index]!r}"
        )
    rounded = int((numbers > high).sum())
    if rounded:
        text = (
            f"{sheet.file}, column {sheet.called.get(name, name)}: {rounded} values above {high:g} by a"
            f" rounding error were set to {high:g}."
        )
        warnings.warn(Notice(text, code="rounded", column=name, count=rounded), stacklevel=2)
    return numbers.clip(low, high)


def _label(value: Any, labels: Labels) -> int:
    text = str(value).strip()
    number = float(text) if text.removesuffix(".0").isdecimal() else math.nan
    if isinstance(value, int | float) or text.endswith(".0"):
        if not (number < len(labels)):
            raise SoritesError(f"expected a class from 0 to {len(labels) - 1}, got {text}")
        return int(number)
    return labels.find(text)


def _split_classes(value: Any) -> list[Any]:
    """Return a list of classes given as JSON, or separated by semicolons."""
    if isinstance(value, str):
        return (
            list(json_value(value))
            if value.startswith("[")
            else [part for part in value.split(";") if part.strip()]
        )
    return list(value)


def _boolean(value: Any) -> bool:
    text = str(value).lower()
    if text not in _BOOLEANS:
        raise SoritesError(f"expected true or false, got {value!r}")
    return _BOOLEANS[text]
