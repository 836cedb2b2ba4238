"""SQLite files: a table and nothing that goes on for ever."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from sorites.core.errors import SoritesError
from sorites.io import tables

FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS name FROM n"


def made(path: Path, *statements: str) -> Path:
    held = sqlite3.connect(path)
    for statement in statements:
        held.execute(statement)
    held.commit()
    held.close()
    return path


def test_a_table_is_read_in_order_and_by_its_literal_name(tmp_path: Path) -> None:
    for name in ("a?mode=rwc", "a#1", "a%20b", "a[1]"):
        path = made(
            tmp_path / name,
            "CREATE TABLE t(name TEXT, x TEXT)",
            "INSERT INTO t VALUES ('b', NULL), ('a', 'y')",
        )
        assert tables.table(path, "t", "name") == (["name", "x"], [("a", "y"), ("b", None)])


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        ([f"CREATE VIEW t AS {FOREVER}"], "expected a table t, got a view of that name"),
        (["CREATE TABLE other(name)"], "expected a table t, got nothing of that name"),
        (["CREATE TABLE t(x TEXT)", "INSERT INTO t VALUES (1)"], ""),
        (
            ["CREATE TABLE t(name, x BLOB)", "INSERT INTO t VALUES ('a', x'00')"],
            "t, row 1, x: expected text, got bytes",
        ),
        (["CREATE TABLE t(name)", "INSERT INTO t VALUES (7)"], "t, row 1, name: expected text, got int"),
        (["CREATE TABLE t(name TEXT)", "INSERT INTO t VALUES (CAST(x'ff' AS TEXT))"], "Could not decode"),
        (
            [
                "CREATE TABLE t(name TEXT, x TEXT AS (hex(zeroblob(9000000))))",
                "INSERT INTO t(name) VALUES ('a')",
            ],
            "too big",
        ),
    ],
)
def test_what_is_no_table_of_text_is_named(statements: list[str], said: str, tmp_path: Path) -> None:
    path = made(tmp_path / "a.db", *statements)
    if not said:
        assert tables.table(path, "t", "name")[1] == [("1",)]
        return
    with pytest.raises(SoritesError, match=f"a.db.*{said}"):
        tables.table(path, "t", "name")


def test_time_and_rows_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = "x TEXT AS (length(replace(hex(zeroblob(400000)), '00', substr(name, 1, 1))))"
    rows = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT 'a' || i"
        " FROM n"
    )
    path = made(
        tmp_path / "a.db",
        "CREATE TABLE t(name TEXT)",
        f"INSERT INTO t(name) {rows}",
        f"ALTER TABLE t ADD COLUMN {slow}",
    )
    monkeypatch.setattr(tables, "MAX_SECONDS", 0.2)
    start = time.monotonic()
    with pytest.raises(SoritesError, match="it takes more than 0 seconds"):
        tables.table(path, "t", "name")
    assert time.monotonic() - start < 20
    monkeypatch.setattr(tables, "MAX_DATABASE_ROWS", 10)
    few = made(tmp_path / "b.db", "CREATE TABLE t(name TEXT)", f"INSERT INTO t {rows}")
    with pytest.raises(SoritesError, match="more than the 10 rows allowed"):
        tables.table(few, "t", "name")
