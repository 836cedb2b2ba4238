"""The cells of a prediction file, as the types of the table.

A cell that cannot be read is named by file, row and column.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import Labels
from sorites.core.table import SCHEMA
from sorites.io.readers import json_object, json_value, toml_file
from sorites.io.tables import as_numbers
from sorites.io.tables import sheet as read_file

# Match the columns of a prediction file with those of the table: by its own name, by an alias, or by a
# small TOML file.


# The columns of the table that a file may have; the id of a run is its own.
FIELDS = tuple(name for name in SCHEMA if name != "run_id")

# A column ``params.iso`` is one entry of ``params``, and ``attrs.weather`` one attribute.
PARTS = ("params.", "attrs.")

# Other names of the table's columns that are common in prediction files.
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

HIGHER = ("unknown", "id")


@dataclass(frozen=True)
class Naming:
    """The columns as a user names them: ``columns`` maps the table's to the file's, ``constants``
    are the same in every row.

    ``higher`` says what a high score means in the file; the table's scores are higher for more OOD images.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    higher: str = "unknown"

    def with_constants(self, **more: str | None) -> Naming:
        """Return the same with further constants; None says nothing."""
        given = {name: value for name, value in more.items() if value is not None}
        twice = sorted(given.keys() & self.columns.keys())
        if twice:
            raise SoritesError(
                f"{twice[0]} is named by --{twice[0]} and by a column of --columns; leave one out"
            )
        return Naming(self.columns, {**self.constants, **given}, self.higher)

    def of(
        self, present: Sequence[str], file: str, aliases: Mapping[str, tuple[str, ...]] = ALIASES
    ) -> dict[str, str]:
        """Return the table's columns that a file with the columns ``present`` has, each with the
        file's own name for it.
        """
        for wanted in self.columns.values():
            if wanted not in present:
                raise UnknownName(f"column of {file}", wanted, present, f"It has {', '.join(present)}.")
        plain = {name.strip().lower(): name for name in reversed(present)}
        found = dict(self.columns)
        for name in dict.fromkeys([*FIELDS, *aliases]):
            if name in found or name in self.constants:
                continue
            if name in plain:
                found[name] = plain[name]
                continue
            several = [
                plain[alias]
                for alias in aliases.get(name, ())
                if alias in plain and plain[alias] not in found.values()
            ]
            if len(several) > 1:
                named = f'say which in a file for --columns: [columns] {name} = "{several[0]}"'
                raise SoritesError(f"{file}: {' and '.join(several)} could both be {name}; {named}")
            found |= {name: several[0]} if several else {}
        parts = {name: plain[name] for name in plain if name.startswith(PARTS) and name not in found}
        return found | {name: mine for name, mine in parts.items() if name not in self.constants}


def read_naming(path: str | Path | None) -> Naming:
    """Read the TOML file of ``--columns``: a table ``[columns]``, a table ``[constants]`` and
    ``higher``, all optional.
    """
    if path is None:
        return Naming()
    data = toml_file(Path(path), "--columns as a TOML file")
    keys = ("columns", "constants", "higher")
    for key in data:
        if key not in keys:
            raise UnknownName(f"key of {path}", key, keys, f"It may have {', '.join(keys)}.")
    columns, constants = (_table(data, key, path) for key in ("columns", "constants"))
    higher = data.get("higher", "unknown")
    if higher not in HIGHER:
        raise SoritesError(f"{path}: higher is one of {', '.join(HIGHER)}, got {higher!r}")
    wrong = next((name for name, mine in columns.items() if not isinstance(mine, str)), None)
    if wrong is not None:
        raise SoritesError(
            f'{path}: expected [columns] as {wrong} = "the file\'s column", got {columns[wrong]!r}'
        )
    twice = sorted(columns.keys() & constants.keys())
    if twice:
        raise SoritesError(f"{path}: {twice[0]} stands in [columns] and in [constants]; leave one out")
    return Naming(columns, constants, higher)


def _table(data: Mapping[str, Any], key: str, path: str | Path) -> dict[str, Any]:
    found = data.get(key, {})
    if not isinstance(found, dict):
        raise SoritesError(f"{path}: expected {key} as a table [{key}], got {found!r}")
    flat: dict[str, Any] = {}
    for name, value in found.items():
        inner = (
            {f"{name}.{part}": one for part, one in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
        flat |= inner
    allowed = (*FIELDS, "n", "light", "param", "shot")
    for name in flat:
        if name not in allowed and not name.startswith(PARTS):
            raise UnknownName(
                f"column in [{key}] of {path}", name, FIELDS, f"The table's columns are {', '.join(FIELDS)}."
            )
    return flat


# The column with the number of a row in its file, counted from 1 below the header.
ROW = "(row)"

LABEL, LABELS = ("label", "pred"), ("accept", "top5")
# The least and the greatest number of a column.
LIMITS = {"severity": (0.0, math.inf), "conf": (0.0, 1.0 + 1e-6)}
NESTED = ("ground_truth", "attrs", "degrees", "boxes")
_GROUND_TRUTH = {
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
    """One file as read: its rows under the table's names, and what each column is called in the file."""

    file: str
    frame: pl.DataFrame
    called: Mapping[str, str]

    def wrong(self, index: int, name: str, why: object) -> SoritesError:
        """Return the error of one cell."""
        row = self.frame[ROW][index]
        return SoritesError(f"{self.file}, row {row}, column {self.called.get(name, name)}: {why}")


def read_sheet(path: Path, naming: Naming, aliases: Mapping[str, tuple[str, ...]] = ALIASES) -> Sheet:
    """Read a CSV (comma or, in ``.tsv``, tab) or parquet file; the columns that the table does not
    know are left out.
    """
    frame = read_frame(path)
    called = naming.of(frame.columns, path.name, aliases)
    chosen = pl.DataFrame([frame[mine].alias(name) for name, mine in called.items()])
    numbered = pl.DataFrame({ROW: range(1, frame.height + 1)}, schema={ROW: pl.Int64}).hstack(chosen)
    return Sheet(
        path.name,
        numbered.with_columns(_constant(name, value) for name, value in naming.constants.items()),
        called,
    )


def read_frame(path: Path) -> pl.DataFrame:
    """Return the file as it stands; cells of text files are text, without spaces around them, and
    empty ones are null.
    """
    frame = read_file(path, separator="\t" if path.suffix.lower() == ".tsv" else ",")
    if not frame.height:
        raise SoritesError(f"{path} holds no rows")
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    # by name: pl.col takes * and ^x$ for patterns
    return frame.with_columns([_stripped(frame[name]) for name in texts])


def _stripped(column: pl.Series) -> pl.Series:
    bare = column.str.strip_chars()
    return bare.set(bare == "", None)


def _constant(name: str, value: Any) -> pl.Expr:
    return pl.lit(json.dumps(value) if isinstance(value, list | dict) else value).alias(name)


def typed(sheet: Sheet, labels: Labels) -> pl.DataFrame:
    """Return the sheet's rows with the types of the table; entries of ``params`` and ``attrs`` keep
    theirs.
    """
    made = [
        _column(sheet, name, labels) if name in SCHEMA else sheet.frame[name] for name in sheet.frame.columns
    ]
    return pl.DataFrame(made)


def _column(sheet: Sheet, name: str, labels: Labels) -> pl.Series:
    column, kind = sheet.frame[name], SCHEMA[name]
    if name in LABEL:
        return parsed(sheet, name, lambda value: _label(value, labels))
    if name in LABELS:
        return parsed(
            sheet,
            name,
            lambda value: None if value == "null" else [_label(one, labels) for one in _several(value)],
        )
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
        raise SoritesError(
            f"{sheet.file}, column {sheet.called.get(name, name)}: expected {kind}, got {column.dtype}"
        ) from None


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
    low, high = LIMITS.get(name, (-math.inf, math.inf))
    beyond = ((numbers < low) | (numbers > high)).fill_null(False)
    if beyond.any():
        index = beyond.arg_max() or 0
        wanted = f"from {low:g} to {high:g}" if math.isfinite(high) else f"of at least {low:g}"
        raise sheet.wrong(index, name, f"expected a number {wanted}, got {column[index]!r}")
    return numbers.cast(kind)


def _label(value: Any, labels: Labels) -> int:
    text = str(value).strip()
    number = float(text) if text.removesuffix(".0").isdecimal() else math.nan
    if isinstance(value, int | float) or text.endswith(".0"):
        if not (number < len(labels)):
            raise SoritesError(f"expected a class from 0 to {len(labels) - 1}, got {text}")
        return int(number)
    return labels.find(text)


def _several(value: Any) -> list[Any]:
    """Return a list of classes: one as JSON, or with semicolons between its parts."""
    if isinstance(value, str):
        return (
            list(json_value(value))
            if value.startswith("[")
            else [part for part in value.split(";") if part.strip()]
        )
    return list(value)


def _object(value: Any) -> dict[str, Any]:
    return json_object(value)


def _boolean(value: Any) -> bool:
    text = str(value).lower()
    if text not in _GROUND_TRUTH:
        raise SoritesError(f"expected true or false, got {value!r}")
    return _GROUND_TRUTH[text]
