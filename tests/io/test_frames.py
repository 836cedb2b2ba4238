"""Tables by literal names, within limits, and with errors that name file and column."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from sorites.core.errors import SoritesError
from sorites.io import tables


def test_names_are_literal(tmp_path: Path) -> None:
    for name in ("a1", "a[1]"):
        pl.DataFrame({"x": [name]}).write_parquet(tmp_path / f"{name}.parquet")
        pl.DataFrame({"x": [name]}).write_csv(tmp_path / f"{name}.csv")
    assert tables.sheet(tmp_path / "a[1].parquet")["x"].to_list() == ["a[1]"]
    assert tables.sheet(tmp_path / "a[1].csv")["x"].to_list() == ["a[1]"]
    with pytest.raises(SoritesError, match="a CSV or parquet file"):
        tables.sheet(tmp_path / "a*.csv")
    with pytest.raises(SoritesError, match="there is no such file"):
        tables.parquet(tmp_path)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + b"\xff" * 40 + b"PAR1", b"x" * 100])
def test_what_is_no_parquet_is_named(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(SoritesError, match=r"a\.parquet:"):
        tables.parquet(tmp_path / "a.parquet", "facts")


def test_rows_beyond_the_limit_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pl.DataFrame({"x": range(11)}).write_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr(tables, "MAX_PARQUET_ROWS", 10)
    with pytest.raises(SoritesError, match="has 11 rows, more than the 10"):
        tables.parquet(tmp_path / "a.parquet")


def test_a_byte_order_mark_is_no_part_of_a_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfx,y\n1,2\n")
    assert tables.csv(tmp_path / "a.csv").columns == ["x", "y"]


def test_columns_of_another_type_are_named() -> None:
    frame = pl.DataFrame({"x": [[1]], "y": ["1"]})
    tables.refuse_types(frame, {"y": pl.String, "z": pl.String}, "file")
    with pytest.raises(SoritesError, match="String, got List"):
        tables.refuse_types(frame, {"x": pl.String}, "file")
    with pytest.raises(SoritesError, match="here: expected numbers, got"):
        tables.as_numbers(frame["x"], "here")
    assert tables.as_numbers(pl.Series(["1", "x"]), "here").to_list() == [1.0, None]
