"""Merged shards hold the same table in the same order; a run that goes on brings them back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import sorites
from sorites.core import Model, table
from sorites.core.errors import SoritesError
from sorites.evaluation.integrity.check import check
from sorites.evaluation.storage.compact import compact, expand
from sorites.suites.suite import parse

SUITE = parse({"name": "small", "frame": {"resize": 40}, "shifts": ["contrast", "jpeg"]}, "test")


@pytest.fixture
def run(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> Path:
    sorites.run(SUITE, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "r")
    return tmp_path / "r"


def test_the_table_stays_the_same_row_for_row_and_the_shards_come_back(run: Path) -> None:
    wanted = table.read(run).collect()
    names = sorted(path.name for path in (run / "predictions").iterdir())
    assert compact(run, rows=100) == (6, 3)
    assert len(list((run / "predictions").iterdir())) == 3
    assert_frame_equal(table.read(run).collect(), wanted)
    assert compact(run, rows=100) == (3, 3)
    assert "complete" in check(str(run))
    assert expand(run)
    assert sorted(path.name for path in (run / "predictions").iterdir()) == names
    assert_frame_equal(table.read(run).collect(), wanted)
    assert not expand(run)


def test_at_every_moment_each_row_stands_once(run: Path) -> None:
    wanted = table.read(run).collect()
    shards = {path: path.read_bytes() for path in (run / "predictions").iterdir()}
    compact(run, rows=100)
    for path, data in shards.items():  # killed before the shards were deleted
        path.write_bytes(data)
    assert_frame_equal(table.read(run).collect(), wanted)
    (run / "compacted.json").unlink()  # killed before the merged files were in force
    assert_frame_equal(table.read(run).collect(), wanted)


def test_a_run_goes_on_from_merged_shards(run: Path, photos: Path, tiny: Callable[..., Model]) -> None:
    compact(run)
    refined = sorites.run(SUITE, source=f"folder:{photos}", models=[tiny()], out=run, refine=0.2).collect()
    assert len(list((run / "predictions").glob("*-probe--*.parquet"))) == 4
    assert refined.filter(~pl.col("probe")).height == 20 * 11


def test_an_unfinished_run_is_not_merged(run: Path) -> None:
    next((run / "predictions").glob("jpeg*")).unlink()
    with pytest.raises(SoritesError, match="is not finished"):
        compact(run)


def test_what_a_killed_process_left_is_deleted(run: Path) -> None:
    wanted = table.read(run).collect()
    shards = {path: path.read_bytes() for path in (run / "predictions").iterdir()}
    compact(run, rows=100)
    unlisted = table.write_shard(wanted.select(table.SCHEMA.names()), run, "a~9")
    for path, data in shards.items():
        path.write_bytes(data)
    assert expand(run)
    assert set((run / "predictions").iterdir()) == set(shards)
    assert not unlisted.exists()
    assert_frame_equal(table.read(run).collect(), wanted)
