"""Merged shards hold the same table in the same order; a run that goes on brings them back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import sorites
from sorites.cli.app import explain_merged
from sorites.core import Model, shard_index, table
from sorites.core.errors import Damaged, SoritesError
from sorites.core.shard_index import INDEX, RunShards
from sorites.evaluation import runner
from sorites.evaluation.engines import Engine
from sorites.evaluation.integrity.check import check
from sorites.evaluation.integrity.damage import damage, set_aside
from sorites.evaluation.storage.compact import compact
from sorites.evaluation.storage.merge import Merger, expand
from sorites.io import digests
from sorites.suites.suite import parse

SUITE = parse({"name": "small", "frame": {"resize": 40}, "shifts": ["contrast", "jpeg"]}, "test")


@pytest.fixture
def run(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> Path:
    sorites.run(SUITE, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "r")
    return tmp_path / "r"


@pytest.mark.slow
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
    first = sorted((run / "predictions").glob("*~*"))[0]
    first.unlink()  # killed before the second block was merged
    assert_frame_equal(table.read(run).collect(), wanted)


@pytest.mark.slow
def test_shards_that_are_merged_while_a_reader_verifies_them_are_listed_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, require = table.read(run).collect(), digests.Verifier.require
    merges = iter([lambda: compact(run, rows=100), lambda: expand(run), lambda: None])

    def merged_first(self: digests.Verifier, expected: Mapping[Path, str], remedy: str) -> None:
        next(merges)()
        require(self, expected, remedy)

    monkeypatch.setattr(digests.Verifier, "require", merged_first)
    found = table.read(run)
    assert next(merges, None) is None
    assert_frame_equal(found.collect(), wanted)


def test_a_shard_that_is_missing_for_good_is_an_error(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = run / "predictions" / "contrast-0000000.0123456789abcdef0123456789abcdef.parquet"
    monkeypatch.setattr(RunShards, "files", lambda self: [*self.listed.values(), lost])
    with pytest.raises(Damaged) as caught:
        table.read(run)
    assert caught.value.fields["path"] == str(lost)


@pytest.mark.slow
def test_a_question_is_asked_again_if_shards_are_merged_before_they_are_read(run: Path) -> None:
    """Tables are read lazily: ``metrics`` and ``report`` start again, other verbs say what to do."""
    wanted, asked = table.read(run).collect(), []

    def question() -> pl.DataFrame:
        lazy = table.read(run)
        if not asked:
            compact(run, rows=100)
        asked.append(1)
        return lazy.collect()

    assert_frame_equal(table.repeat_if_merged(question), wanted)
    assert len(asked) == 2
    expand(run)
    lazy = table.read(run)
    compact(run, rows=100)
    with pytest.raises(FileNotFoundError) as caught:
        lazy.collect()
    assert table.missing_shard(caught.value) in explain_merged(caught.value)
    assert not explain_merged(FileNotFoundError("No such file or directory (os error 2): other.parquet"))


@pytest.mark.slow
def test_the_index_is_never_needed(run: Path) -> None:
    wanted = table.read(run).collect()
    compact(run, rows=100)
    index = (run / INDEX).read_bytes()
    merged = RunShards(run).merged
    assert [len(contained) for contained in merged.values()] == [3, 2]
    (run / INDEX).unlink()
    assert RunShards(run).merged == merged
    assert_frame_equal(table.read(run).collect(), wanted)
    (run / INDEX).write_bytes(index[:40] + b"x" + index[41:])
    assert_frame_equal(table.read(run).collect(), wanted)
    assert any(problem.path.name == INDEX for problem in damage(run))
    (run / INDEX).write_bytes(index)
    expand(run)  # restores the shards; a backup brings the index back
    (run / INDEX).write_bytes(index)
    assert_frame_equal(table.read(run).collect(), wanted)
    assert not RunShards(run).merged


@pytest.mark.slow
def test_on_a_store_the_index_replaces_listing_until_a_shard_is_written(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_index, "is_on_store", lambda path: True)
    wanted = table.read(run).collect()
    shard_index.write_index(run)
    with monkeypatch.context() as no_listing:
        no_listing.setattr(shard_index.digests, "shards_in", lambda *_: pytest.fail("listed"))
        assert len(RunShards(run).files()) == 6
    assert_frame_equal(table.read(run).collect(), wanted)
    table.write_shard(wanted.select(table.SCHEMA.names()).head(1), run, "later")
    assert not (run / INDEX).exists()
    assert len(RunShards(run).files()) == 7


@pytest.mark.slow
def test_check_finds_an_index_of_other_shards(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a store, readers trust the index; a former version of it is valid in itself, but hides shards."""
    monkeypatch.setattr(shard_index, "is_on_store", lambda path: True)
    shard_index.write_index(run)
    former = (run / INDEX).read_bytes()
    assert not damage(run)
    later = table.write_shard(table.read(run).collect().select(table.SCHEMA.names()).head(1), run, "later")
    (run / INDEX).write_bytes(former)
    assert later not in RunShards(run).files()
    (found,) = damage(run)
    assert found.path.name == INDEX
    assert later.name in found.why
    set_aside(run)
    assert later in RunShards(run).files()


@pytest.mark.slow
def test_a_damaged_merged_shard_is_named(run: Path) -> None:
    compact(run, rows=100)
    (run / INDEX).unlink()
    path = sorted((run / "predictions").glob("*~*"))[0]
    data = path.read_bytes()
    path.write_bytes(data[:-20] + bytes(20))
    with pytest.raises(Damaged, match="does not match its digest"):
        table.read(run)
    assert [problem.path for problem in damage(run)] == [path]


@pytest.mark.slow
def test_a_run_goes_on_from_merged_shards(run: Path, photos: Path, tiny: Callable[..., Model]) -> None:
    compact(run)
    refined = sorites.run(SUITE, source=f"folder:{photos}", models=[tiny()], out=run, refine=0.2).collect()
    assert len(list((run / "predictions").glob("*-probe--*.parquet"))) == 4
    assert refined.filter(~pl.col("probe")).height == 20 * 11


@pytest.mark.slow
def test_shards_are_merged_while_the_run_goes_on(
    run: Path, photos: Path, tiny: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = table.read(run).collect()
    monkeypatch.setattr(runner, "MIN_SHARDS", 3)
    monkeypatch.setattr(runner, "RUNNING_ROWS", 110)  # blocks of three shards
    seen: list[int] = []
    stops = [4, 99]

    def start(units: Sequence[Any], work: Callable[[Any], Any], workers: int) -> Iterator[tuple[Any, Any]]:
        for unit in units:
            yield unit, work(unit)
            if len(seen) == stops[0]:
                raise KeyboardInterrupt
            seen.append(table.read(tmp_path / "again").collect().height)

    engine = Engine(start, one_process=True, name="own")
    monkeypatch.setattr(Merger, "add", _and_wait(Merger.add))
    options: dict[str, Any] = {"models": [tiny()], "out": tmp_path / "again", "engine": engine}
    with pytest.raises(KeyboardInterrupt):
        sorites.run(SUITE, source=f"folder:{photos}", **options)
    stops.pop(0)
    sorites.run(SUITE, source=f"folder:{photos}", **options)
    assert seen == sorted(seen), "no row is lost or doubled while shards are merged"
    names = sorted(path.name.split(".")[0] for path in (tmp_path / "again" / "predictions").iterdir())
    assert names == ["clean-0000000--tiny~3", "contrast-0000016--tiny~3"]
    assert_frame_equal(table.read(tmp_path / "again").collect(), wanted)
    assert "complete" in check(str(tmp_path / "again"))


def _and_wait(add: Callable[[Merger, Iterable[str]], None]) -> Callable[[Merger, Iterable[str]], None]:
    def added(merger: Merger, names: Iterable[str]) -> None:
        add(merger, names)
        for future in merger._merging:
            future.result()

    return added


@pytest.mark.slow
def test_only_affected_shards_are_restored_from_merged_ones(
    run: Path, photos: Path, tiny: Callable[..., Model]
) -> None:
    wanted = table.read(run).collect()
    compact(run, rows=100)
    assert expand(run, {"jpeg-0000000--tiny"})
    names = sorted(path.name.split(".")[0] for path in (run / "predictions").iterdir())
    assert "clean-0000000--tiny~3" in names
    assert "jpeg-0000000--tiny" in names
    assert_frame_equal(table.read(run).collect(), wanted)
    sorites.run(SUITE, source=f"folder:{photos}", models=[tiny()], out=run)
    assert sorted(path.name.split(".")[0] for path in (run / "predictions").iterdir()) == names
    assert_frame_equal(table.read(run).collect(), wanted)


def test_an_unfinished_run_is_not_merged(run: Path) -> None:
    next((run / "predictions").glob("jpeg*")).unlink()
    with pytest.raises(SoritesError, match="is not finished"):
        compact(run)


@pytest.mark.slow
def test_what_a_killed_process_left_is_deleted(run: Path) -> None:
    wanted = table.read(run).collect()
    shards = {path: path.read_bytes() for path in (run / "predictions").iterdir()}
    compact(run, rows=100)
    for path, data in shards.items():
        path.write_bytes(data)
    assert expand(run)
    assert set((run / "predictions").iterdir()) == set(shards)
    assert_frame_equal(table.read(run).collect(), wanted)
