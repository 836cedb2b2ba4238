"""Tables in CSV and parquet files, by literal names: Polars alone takes ``[1]`` for a pattern and a
folder for its files.
"""

from __future__ import annotations

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

# The most rows of a table that is read whole.
MOST_ROWS = 100_000_000


def csv(path: Path, wanted: str = "", **options: Any) -> pl.DataFrame:
    """Return a CSV file with every cell as text, unless ``options`` of Polars say otherwise."""
    return _read(path, wanted, lambda: pl.read_csv(path, **{"infer_schema": False, **options}, glob=False))


def parquet(path: Path, wanted: str = "", columns: Iterable[str] | None = None) -> pl.DataFrame:
    """Return a parquet file, or some of its columns."""

    def read() -> pl.DataFrame:
        rows = pl.scan_parquet(path, glob=False).select(pl.len()).collect().item()
        if rows > MOST_ROWS:
            raise SoritesError(
                f"cannot read {path}: it has {rows:,} rows, more than the {MOST_ROWS:,} allowed"
            )
        return pl.read_parquet(path, columns=None if columns is None else list(columns), glob=False)

    return _read(path, wanted, read)


def sheet(path: Path, wanted: str = "a CSV or parquet file", **options: Any) -> pl.DataFrame:
    """Return a parquet file where the name ends in ``.parquet``, and else a CSV file, which takes
    the ``options``.
    """
    return parquet(path, wanted) if path.suffix.lower() == ".parquet" else csv(path, wanted, **options)


def _read(path: Path, wanted: str, read: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    hint = f". Wanted {wanted}" if wanted else ""
    if not is_file(path):
        raise SoritesError(f"cannot read {path}: there is no such file{hint}")
    try:
        return read()
    except SoritesError:
        raise
    except Exception as error:  # a damaged file makes Polars raise nearly anything
        raise SoritesError(f"cannot read {path}: {reason(error)}{hint}") from error
    except BaseException as error:
        if not isinstance(error, pl.exceptions.PanicException):  # which is no Exception
            raise
        raise SoritesError(f"cannot read {path}: it is damaged ({reason(error)}){hint}") from error


def as_numbers(column: pl.Series, called: object) -> pl.Series:
    """Return a column as numbers, null where a cell is none; a column that cannot hold any is an error."""
    if column.dtype.is_nested() or column.dtype.is_temporal() or column.dtype in (pl.Binary, pl.Object):
        raise SoritesError(f"{called}: wanted numbers, got {column.dtype}")
    return column.cast(pl.Float64, strict=False)


def refuse_types(
    frame: pl.DataFrame, wanted: Mapping[str, pl.DataType | type[pl.DataType]], called: object
) -> None:
    """Raise an error that names the first column of another type than wanted; columns that are
    absent do not count.
    """
    for name, kind in wanted.items():
        if name in frame.columns and frame.schema[name] != kind:
            raise SoritesError(f"{called}, column {name}: wanted {kind}, got {frame.schema[name]}")


# Tables in SQLite files, read-only and within limits: a view or a computed column may go on for ever.


# The most rows of a table.
MAX_DATABASE_ROWS = 5_000_000

# The most bytes of a cell.
LONGEST = 1 << 20

# The most seconds that reading a table may take.
SECONDS = 20.0

# Steps of SQLite between two looks at the clock; a single step may take milliseconds.
STEPS = 100

Rows = list[tuple[str | None, ...]]


def table(path: Path, name: str, order: str) -> tuple[list[str], Rows]:
    """Return the columns and rows of the table ``name``, whose cells are text or null, ordered by
    one of its columns.
    """
    if not is_file(path):
        raise SoritesError(f"cannot read {path}: there is no such file")
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)) as database:
            return _read_database(database, path, name, order)
    except (sqlite3.Error, ValueError, OverflowError, MemoryError) as error:
        late = f"it takes more than {SECONDS:.0f} seconds" if "interrupted" in str(error) else reason(error)
        raise SoritesError(
            f"cannot read {path}: {late}. Wanted a SQLite file with the table {name}"
        ) from error


def _read_database(database: sqlite3.Connection, path: Path, name: str, order: str) -> tuple[list[str], Rows]:
    database.execute("PRAGMA trusted_schema = OFF")
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    end = time.monotonic() + SECONDS
    database.set_progress_handler(lambda: time.monotonic() > end, STEPS)
    kind = database.execute("SELECT type FROM sqlite_master WHERE name = ?", [name]).fetchone()
    if kind is None or kind[0] != "table":
        raise SoritesError(
            f"cannot read {path}: wanted a table {name}, got {'nothing' if kind is None else f'a {kind[0]}'}"
            " of that name"
        )
    cursor = database.execute(f'SELECT * FROM "{name}" ORDER BY "{order}" LIMIT {MAX_DATABASE_ROWS + 1}')
    columns = [column[0] for column in cursor.description]
    rows: Rows = cursor.fetchall()
    if len(rows) > MAX_DATABASE_ROWS:
        raise SoritesError(f"cannot read {path}: {name} has more than the {MAX_DATABASE_ROWS:,} rows allowed")
    for number, row in enumerate(rows, start=1):
        for column, value in zip(columns, row, strict=True):
            if not isinstance(value, str | None):
                raise SoritesError(
                    f"{path}, {name}, row {number}, {column}: wanted text, got {type(value).__name__}"
                )
    return columns, rows


# Arrays in safetensors files, with the text that stands in their header.


Arrays = dict[str, NDArray[Any]]


def tensors(path: Path, names: Iterable[str] | None = None) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays of a file, all of them or those named, and the texts of its header."""
    from safetensors import safe_open

    if not is_file(path):
        raise SoritesError(f"cannot read {path}: there is no such file")
    try:
        with safe_open(str(path), framework="numpy") as file:
            wanted = list(file.keys()) if names is None else list(names)
            arrays = {name: np.asarray(file.get_tensor(name)) for name in wanted}
            return arrays, dict(file.metadata() or {})
    except Exception as error:  # a damaged file makes safetensors raise nearly anything
        raise SoritesError(f"cannot read {path}: {reason(error)}. Wanted a safetensors file") from error
