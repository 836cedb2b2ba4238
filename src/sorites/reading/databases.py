"""Tables in SQLite files, read-only and within limits: a view or a computed column may go on for ever."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from sorites.errors import SoritesError
from sorites.reading.places import is_file, reason

MOST_ROWS = 5_000_000
"""The most rows of a table."""

LONGEST = 1 << 20
"""The most bytes of a cell."""

SECONDS = 20.0
"""The most seconds that reading a table may take."""

STEPS = 100
"""Steps of SQLite between two looks at the clock; a single step may take milliseconds."""

Rows = list[tuple[str | None, ...]]


def table(path: Path, name: str, order: str) -> tuple[list[str], Rows]:
    """Return the columns and rows of the table ``name``, whose cells are text or null, ordered by one of its columns."""
    if not is_file(path):
        raise SoritesError(f"cannot read {path}: there is no such file")
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)) as database:
            return _read(database, path, name, order)
    except (sqlite3.Error, ValueError, OverflowError, MemoryError) as error:
        late = f"it takes more than {SECONDS:.0f} seconds" if "interrupted" in str(error) else reason(error)
        raise SoritesError(f"cannot read {path}: {late}. Wanted a SQLite file with the table {name}") from error


def _read(database: sqlite3.Connection, path: Path, name: str, order: str) -> tuple[list[str], Rows]:
    database.execute("PRAGMA trusted_schema = OFF")
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    end = time.monotonic() + SECONDS
    database.set_progress_handler(lambda: time.monotonic() > end, STEPS)
    kind = database.execute("SELECT type FROM sqlite_master WHERE name = ?", [name]).fetchone()
    if kind is None or kind[0] != "table":
        raise SoritesError(
            f"cannot read {path}: wanted a table {name}, got {'nothing' if kind is None else f'a {kind[0]}'} of that name"
        )
    cursor = database.execute(f'SELECT * FROM "{name}" ORDER BY "{order}" LIMIT {MOST_ROWS + 1}')
    columns = [column[0] for column in cursor.description]
    rows: Rows = cursor.fetchall()
    if len(rows) > MOST_ROWS:
        raise SoritesError(f"cannot read {path}: {name} has more than the {MOST_ROWS:,} rows allowed")
    for number, row in enumerate(rows, start=1):
        for column, value in zip(columns, row, strict=True):
            if not isinstance(value, str | None):
                raise SoritesError(f"{path}, {name}, row {number}, {column}: wanted text, got {type(value).__name__}")
    return columns, rows
