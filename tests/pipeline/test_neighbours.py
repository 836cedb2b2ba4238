"""Distances of a source on an engine: what is done is kept, and equals what one process gives in memory."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.pipeline.conftest import how

from sorites.errors import SoritesError
from sorites.pipeline import distance, neighbours, slices
from sorites.stores import place


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE", 3)


def measured(judge: str, photos: Path, out: Path, engine: str | None = "local", **more: object) -> distance.Distances:
    options = how(judge, photos, sem_edges=(0.1, 0.3), cov_edges=(0.1, 0.3), **more)
    return distance.distance(f"folder:{photos}", options, out=out, engine=engine, workers=2)


@pytest.mark.usefixtures("small")
def test_an_engine_finds_what_memory_finds(judge: str, photos: Path, tmp_path: Path) -> None:
    alone = measured(judge, photos, tmp_path / "a.parquet", None)
    found = measured(judge, photos, tmp_path / "b.parquet")
    assert found.rows["sample_id"].to_list() == alone.rows["sample_id"].to_list()
    for half in ("semantic", "covariate"):
        np.testing.assert_allclose(found.rows[half], alone.rows[half], atol=1e-5)
    assert {**found.record, "path": ""} == {**alone.record, "path": ""}
    assert pl.read_parquet(tmp_path / "b.parquet").equals(found.rows)
    assert not (tmp_path / "a.work").exists()


@pytest.mark.usefixtures("small")
def test_stopped_work_goes_on_and_gives_the_same(
    judge: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = measured(judge, photos, tmp_path / "whole.parquet")
    searched, real = [], neighbours.search_files

    def stopped(bank: neighbours.Bank, work: Path, files: tuple[Path, ...]) -> int:
        if len(searched) == 2:
            raise KeyboardInterrupt
        searched.append(files)
        return real(bank, work, files)

    monkeypatch.setattr(neighbours, "search_files", stopped)
    with pytest.raises(KeyboardInterrupt):
        measured(judge, photos, tmp_path / "d.parquet")
    assert not (tmp_path / "d.parquet").exists()
    searched.clear()
    monkeypatch.setattr(neighbours, "search_files", lambda bank, work, files: searched.append(files) or real(bank, work, files))
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "d.work").rglob("*.safetensors")}
    again = measured(judge, photos, tmp_path / "d.parquet")
    assert again.rows.equals(whole.rows)
    assert searched
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())
    searched.clear()
    assert measured(judge, photos, tmp_path / "d.parquet").rows.equals(whole.rows)
    assert not searched
    assert not measured(judge, photos, tmp_path / "d.parquet", k=2).rows.equals(whole.rows)
    assert searched


@pytest.mark.usefixtures("small")
def test_other_pictures_begin_anew_and_broken_ones_are_counted(judge: str, photos: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(photos, mine)
    first = measured(judge, mine, tmp_path / "d.parquet")
    folder = next(path for path in sorted(mine.iterdir()) if path.is_dir())
    (folder / "a broken one.jpg").write_bytes(b"no picture")
    second = measured(judge, mine, tmp_path / "d.parquet")
    assert second.rows.sort("sample_id").equals(first.rows.sort("sample_id"))
    said = second.record["left_out"]
    assert [text.split(" could")[0] for text in said] == ["1 familiar pictures", "1 pictures"]
    assert all("a broken one.jpg" in text for text in said)


def test_an_index_is_kept_and_named_with_its_recall(judge: str, photos: Path, tmp_path: Path) -> None:
    found = measured(judge, photos, tmp_path / "d.parquet", neighbours="hnsw")
    assert len(list((tmp_path / "d.work").rglob("*.faiss"))) == 2
    assert all("hnsw(" in name and "recall 1.000" in name for name in found.record["searched"].values())
    exact = measured(judge, photos, tmp_path / "e.parquet")
    np.testing.assert_allclose(found.rows["semantic"], exact.rows["semantic"], atol=1e-5)


def test_what_cannot_be_done(judge: str, photos: Path, tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="only"):
        measured(judge, photos, tmp_path / "d.parquet", k=1000)
    with pytest.raises(SoritesError, match="engine"):
        measured(judge, photos, tmp_path / "d.parquet", "nonsense")


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_processes_give_the_same(judge: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    threads = measured(judge, photos, tmp_path / "a.parquet")
    assert measured(judge, photos, tmp_path / "b.parquet", "processes").rows.equals(threads.rows)


@pytest.mark.usefixtures("small")
def test_the_work_may_lie_on_a_store(judge: str, photos: Path, tmp_path: Path) -> None:
    here = measured(judge, photos, tmp_path / "a.parquet", neighbours="hnsw")
    there = measured(judge, photos, place("memory://bucket/a.parquet"), neighbours="hnsw")
    assert there.rows.equals(here.rows)
    assert (
        len(place("memory://bucket/a.work").files())
        == len([path for path in (tmp_path / "a.work").rglob("*") if path.is_file()]) - 1
    )
