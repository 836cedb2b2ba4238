"""Tables in CSV and parquet files, by literal names: Polars alone takes ``[1]`` for a pattern and a folder for its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from sorites.errors import SoritesError
from sorites.reading.places import is_file, reason

MOST_ROWS = 100_000_000
"""The most rows of a table that is read whole."""


def csv(path: Path, wanted: str = "", **options: Any) -> pl.DataFrame:
    """Return a CSV file with every cell as text, unless ``options`` of Polars say otherwise."""
    return _read(path, wanted, lambda: pl.read_csv(path, **{"infer_schema": False, **options}, glob=False))


def parquet(path: Path, wanted: str = "", columns: Iterable[str] | None = None) -> pl.DataFrame:
    """Return a parquet file, or some of its columns."""

    def read() -> pl.DataFrame:
        rows = pl.scan_parquet(path, glob=False).select(pl.len()).collect().item()
        if rows > MOST_ROWS:
            raise SoritesError(f"cannot read {path}: it has {rows:,} rows, more than the {MOST_ROWS:,} allowed")
        return pl.read_parquet(path, columns=None if columns is None else list(columns), glob=False)

    return _read(path, wanted, read)


def sheet(path: Path, wanted: str = "a CSV or parquet file", **options: Any) -> pl.DataFrame:
    """Return a parquet file where the name ends in ``.parquet``, and else a CSV file, which takes the ``options``."""
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


def refuse_types(frame: pl.DataFrame, wanted: Mapping[str, pl.DataType | type[pl.DataType]], called: object) -> None:
    """Raise an error that names the first column of another type than wanted; columns that are absent do not count."""
    for name, kind in wanted.items():
        if name in frame.columns and frame.schema[name] != kind:
            raise SoritesError(f"{called}, column {name}: wanted {kind}, got {frame.schema[name]}")
