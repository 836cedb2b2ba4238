"""Read tables from CSV, parquet and SQLite files, and arrays from safetensors files.

Paths are taken literally, whereas Polars treats ``[1]`` as a pattern and a folder as its files.
"""

from __future__ import annotations

import io
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.io.paths import is_file, reason

# Maximum number of rows of a parquet file that is read at once.
MAX_PARQUET_ROWS = 100_000_000


def csv(path: Path, expected: str = "", **options: Any) -> pl.DataFrame:
    """Return a CSV file with every cell as text, unless ``options`` for Polars say otherwise."""
    return _read(path, expected, lambda: pl.read_csv(path, **{"infer_schema": False, **options}, glob=False))


# Characters that separate fields: comma, and those of spreadsheets in other languages.
SEPARATORS = (",", ";", "\t")
# The longest header of a CSV file, in bytes.
MAX_HEADER = 1 << 16


def listing(path: Path, expected: str = "") -> pl.DataFrame:
    """Return a CSV file with every cell as text; its fields are separated by commas, semicolons or tabs,
    whichever its header has most of.
    """
    return _read(
        path, expected, lambda: pl.read_csv(path, infer_schema=False, separator=_separator(path), glob=False)
    )


def _separator(path: Path) -> str:
    with path.open("rb") as file:
        header = file.readline(MAX_HEADER)
    return max(SEPARATORS, key=lambda each: header.count(each.encode()))


def parquet(path: Path, expected: str = "", columns: Iterable[str] | None = None) -> pl.DataFrame:
    """Return a parquet file, or some of its columns."""

    def read() -> pl.DataFrame:
        rows = pl.scan_parquet(path, glob=False).select(pl.len()).collect().item()
        if rows > MAX_PARQUET_ROWS:
            raise SoritesError(
                f"cannot read {path}: it has {rows:,} rows, more than the {MAX_PARQUET_ROWS:,} allowed"
            )
        return pl.read_parquet(path, columns=None if columns is None else list(columns), glob=False)

    return _read(path, expected, read)


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """Return a table as the content of a parquet file."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def sheet(path: Path, expected: str = "a CSV or parquet file", **options: Any) -> pl.DataFrame:
    """Return a parquet file (by suffix ``.parquet``) or a CSV file, which takes the ``options``."""
    return parquet(path, expected) if path.suffix.lower() == ".parquet" else csv(path, expected, **options)


def _read(path: Path, expected: str, read: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    hint = f". Expected {expected}" if expected else ""
    if not is_file(path):
        raise SoritesError(f"cannot read {path}: there is no such file{hint}")
    try:
        return read()
    except SoritesError:
        raise
    except Exception as error:  # a damaged file makes Polars raise nearly anything
        raise SoritesError(f"cannot read {path}: {reason(error)}{hint}") from error
    except BaseException as error:
        if not isinstance(error, pl.exceptions.PanicException):  # not a subclass of Exception
            raise
        raise SoritesError(f"cannot read {path}: it is damaged ({reason(error)}){hint}") from error


def as_numbers(column: pl.Series, called: object) -> pl.Series:
    """Return a column as floats, with null for cells that are not numbers.

    Raises:
        SoritesError: The type of the column cannot hold numbers.
    """
    if column.dtype.is_nested() or column.dtype.is_temporal() or column.dtype in (pl.Binary, pl.Object):
        raise SoritesError(f"{called}: expected numbers, got {column.dtype}")
    return column.cast(pl.Float64, strict=False)


def refuse_types(
    frame: pl.DataFrame, expected: Mapping[str, pl.DataType | type[pl.DataType]], called: object
) -> None:
    """Raise a ``SoritesError`` for the first column that has another type than in ``expected``; absent
    columns are ignored.
    """
    for name, kind in expected.items():
        if name in frame.columns and frame.schema[name] != kind:
            raise SoritesError(f"{called}, column {name}: expected {kind}, got {frame.schema[name]}")


# SQLite, read-only and with limits, because a view or computed column may never end.


# Maximum number of rows.
MAX_DATABASE_ROWS = 5_000_000

# Maximum size of a cell in bytes.
MAX_CELL_BYTES = 1 << 20

# Maximum seconds for reading a table.
MAX_SECONDS = 20.0

# SQLite instructions between two checks of the clock; a single one may take milliseconds.
INSTRUCTIONS_PER_CHECK = 100

Rows = list[tuple[str | None, ...]]


def table(path: Path, name: str, order: str) -> tuple[list[str], Rows]:
    """Return the columns and rows of a SQLite table whose cells are text or null.

    Args:
        path: The file.
        name: Name of the table.
        order: Column to sort by.
    """
    if not is_file(path):
        raise SoritesError(f"cannot read {path}: there is no such file")
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)) as database:
            return _read_database(database, path, name, order)
    except (sqlite3.Error, ValueError, OverflowError, MemoryError) as error:
        late = (
            f"it takes more than {MAX_SECONDS:.0f} seconds" if "interrupted" in str(error) else reason(error)
        )
        raise SoritesError(
            f"cannot read {path}: {late}. Expected a SQLite file with the table {name}"
        ) from error


def _read_database(database: sqlite3.Connection, path: Path, name: str, order: str) -> tuple[list[str], Rows]:
    database.execute("PRAGMA trusted_schema = OFF")
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL_BYTES)
    end = time.monotonic() + MAX_SECONDS
    database.set_progress_handler(lambda: time.monotonic() > end, INSTRUCTIONS_PER_CHECK)
    kind = database.execute("SELECT type FROM sqlite_master WHERE name = ?", [name]).fetchone()
    if kind is None or kind[0] != "table":
        actual = "nothing" if kind is None else f"a {kind[0]}"
        raise SoritesError(f"cannot read {path}: expected a table {name}, got {actual} of that name")
    cursor = database.execute(f'SELECT * FROM "{name}" ORDER BY "{order}" LIMIT {MAX_DATABASE_ROWS + 1}')
    columns = [column[0] for column in cursor.description]
    rows: Rows = cursor.fetchall()
    if len(rows) > MAX_DATABASE_ROWS:
        raise SoritesError(f"cannot read {path}: {name} has more than the {MAX_DATABASE_ROWS:,} rows allowed")
    for number, row in enumerate(rows, start=1):
        for column, value in zip(columns, row, strict=True):
            if not isinstance(value, str | None):
                raise SoritesError(
                    f"{path}, {name}, row {number}, {column}: expected text, got {type(value).__name__}"
                )
    return columns, rows


# Safetensors.


Arrays = dict[str, NDArray[Any]]


def tensors(path: Path, names: Iterable[str] | None = None) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays of a safetensors file, all or those in ``names``, and the metadata of its header."""
    from safetensors import safe_open

    if not is_file(path):
        raise SoritesError(f"cannot read {path}: there is no such file")
    try:
        with safe_open(str(path), framework="numpy") as file:
            selected = list(file.keys()) if names is None else list(names)
            arrays = {name: np.asarray(file.get_tensor(name)) for name in selected}
            return arrays, dict(file.metadata() or {})
    except Exception as error:  # a damaged file makes safetensors raise nearly anything
        raise SoritesError(f"cannot read {path}: {reason(error)}. Expected a safetensors file") from error
