"""Distances of a source on an engine: what is done is kept, and equals what one process gives in memory."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow
from tests.evaluation.conftest import how

from sorites.core.errors import SoritesError
from sorites.evaluation.facts import distance, encoding, neighbours
from sorites.io.stores import to_path


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "IMAGES_PER_FILE", 3)


def measured(
    judge: str, photos: Path, out: Path, engine: str | None = "local", **more: object
) -> distance.Distances:
    options = how(judge, photos, sem_edges=(0.1, 0.3), cov_edges=(0.1, 0.3), **more)
    settings = options.model_dump(exclude_unset=True)
    workers = None if engine is None else 2
    return distance.distance(f"folder:{photos}", **settings, out=out, engine=engine, workers=workers)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_an_engine_finds_what_memory_finds(judge: str, photos: Path, tmp_path: Path) -> None:
    alone = measured(judge, photos, tmp_path / "a.parquet", None)
    found = measured(judge, photos, tmp_path / "b.parquet")
    assert found.rows["sample_id"].to_list() == alone.rows["sample_id"].to_list()
    for half in ("semantic", "covariate"):
        np.testing.assert_allclose(found.rows[half], alone.rows[half], atol=1e-5)
    assert found.having(path="").record == alone.having(path="").record
    assert pl.read_parquet(tmp_path / "b.parquet").equals(found.rows)
    assert not (tmp_path / "a.work").exists()


@pytest.mark.slow
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
    monkeypatch.setattr(
        neighbours,
        "search_files",
        lambda bank, work, files: searched.append(files) or real(bank, work, files),
    )
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


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_other_images_begin_anew_and_broken_ones_are_counted(
    judge: str, photos: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(photos, mine)
    first = measured(judge, mine, tmp_path / "d.parquet")
    folder = next(path for path in sorted(mine.iterdir()) if path.is_dir())
    (folder / "a broken one.jpg").write_bytes(b"no image")
    second = measured(judge, mine, tmp_path / "d.parquet")
    assert second.rows.sort("sample_id").equals(first.rows.sort("sample_id"))
    said = second.record.left_out
    assert [text.split(" could")[0] for text in said] == ["1 in-distribution images", "1 images"]
    assert all("a broken one.jpg" in text for text in said)


@pytest.mark.slow
def test_an_index_is_kept_and_named_with_its_recall(judge: str, photos: Path, tmp_path: Path) -> None:
    found = measured(judge, photos, tmp_path / "d.parquet", neighbours="hnsw")
    assert len(list((tmp_path / "d.work").rglob("*.faiss"))) == 2
    assert all("hnsw(" in name and "recall 1.000" in name for name in found.record.searched.values())
    times = [path.stat().st_mtime_ns for path in sorted((tmp_path / "d.work").rglob("*.faiss"))]
    assert (
        measured(judge, photos, tmp_path / "d.parquet", neighbours="hnsw", k=4).rows.height
        == found.rows.height
    )
    assert [path.stat().st_mtime_ns for path in sorted((tmp_path / "d.work").rglob("*.faiss"))] == times
    exact = measured(judge, photos, tmp_path / "e.parquet")
    np.testing.assert_allclose(found.rows["semantic"], exact.rows["semantic"], atol=1e-5)


@pytest.mark.slow
def test_what_cannot_be_done(judge: str, photos: Path, tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="k=1000 exceeds"):
        measured(judge, photos, tmp_path / "d.parquet", k=1000)
    with pytest.raises(SoritesError, match="engine"):
        measured(judge, photos, tmp_path / "d.parquet", "nonsense")


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_processes_give_the_same(
    judge: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    threads = measured(judge, photos, tmp_path / "a.parquet")
    assert measured(judge, photos, tmp_path / "b.parquet", "processes").rows.equals(threads.rows)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_the_work_may_lie_on_a_store(judge: str, photos: Path, tmp_path: Path) -> None:
    here = measured(judge, photos, tmp_path / "a.parquet", neighbours="hnsw")
    there = measured(judge, photos, to_path("memory://bucket/a.parquet"), neighbours="hnsw")
    assert there.rows.equals(here.rows)
    assert (
        len(to_path("memory://bucket/a.work").files())
        == len([path for path in (tmp_path / "a.work").rglob("*") if path.is_file()]) - 1
    )


def changed(folder: Path, seed: int) -> Path:
    """Return an image of a folder after it was replaced by another one."""
    image = next(path for path in sorted(folder.rglob("*")) if path.suffix in {".jpg", ".JPEG", ".png"})
    Pillow.fromarray(np.random.default_rng(seed).integers(0, 256, (40, 40, 3), np.uint8)).save(image, "png")
    return image


def same(found: distance.Distances, alone: distance.Distances) -> bool:
    return len(found.rows) == len(alone.rows) and np.allclose(
        found.rows["semantic"], alone.rows["semantic"], atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ["exact", "hnsw"])
def test_changed_mended_and_damaged_files_are_done_again(
    judge: str, photos: Path, tmp_path: Path, kind: str
) -> None:
    mine, out = tmp_path / "mine", tmp_path / "d.parquet"
    shutil.copytree(photos, mine)
    image = changed(mine, 0)
    image.write_bytes(b"no image")
    assert (
        len(measured(judge, mine, out, neighbours=kind).rows)
        == len(measured(judge, photos, tmp_path / "p.parquet").rows) - 1
    )
    changed(mine, 1)
    assert same(
        measured(judge, mine, out, neighbours=kind), measured(judge, mine, tmp_path / "a.parquet", None)
    )
    changed(mine, 2)
    assert same(
        measured(judge, mine, out, neighbours=kind), measured(judge, mine, tmp_path / "a.parquet", None)
    )
    for room in ("features", "bank", "found"):
        for path in (tmp_path / "d.work").glob(f"{room}-*/0*.safetensors"):
            path.write_bytes(path.read_bytes()[:-5])
    assert same(
        measured(judge, mine, out, neighbours=kind), measured(judge, mine, tmp_path / "a.parquet", None)
    )
    shutil.rmtree(tmp_path / "d.work")
    changed(mine, 3)
    assert same(
        measured(judge, mine, out, neighbours=kind), measured(judge, mine, tmp_path / "a.parquet", None)
    )


@pytest.mark.slow
def test_a_encoder_without_a_version_is_known_by_its_answers(
    judge: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = judge.split(":")[1]
    (tmp_path / f"{name}.py").write_text(
        (tmp_path / f"{name}.py").read_text().replace('version = "1"', 'version = ""')
    )
    monkeypatch.delitem(sys.modules, name, raising=False)
    first = measured(judge, photos, tmp_path / "d.parquet")
    again = measured(judge, photos, tmp_path / "d.parquet")
    assert again.rows.equals(first.rows)
    monkeypatch.setattr(sys.modules[name].Judge, "images", lambda self, images: 1.0 / (1 + _means(images)))
    other = measured(judge, photos, tmp_path / "d.parquet")
    assert not same(other, first)


def _means(some: list[np.ndarray]) -> np.ndarray:
    return np.array(
        [
            np.concatenate([p.mean((0, 1)), p.std((0, 1)), p[::2].mean((0, 1)), p[:, ::3].std((0, 1))])
            for p in some
        ]
    )


def test_labels_do_not_hold_for_the_images_asked_about(judge: str, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("\n".join(sorted(path.name for path in photos.iterdir())))
    (tmp_path / "asked" / "no such class").mkdir(parents=True)
    for place, path in enumerate(sorted(photos.glob("*/*"))[:8]):
        shutil.copy(path, tmp_path / "asked" / "no such class" / f"{place}{path.suffix}")
    for engine in (None, "local"):
        found = distance.distance(
            f"folder:{tmp_path / 'asked'}",
            **how(judge, photos).model_dump(exclude_unset=True),
            labels=str(tmp_path / "labels.txt"),
            out=tmp_path / f"{engine}",
            engine=engine,
        )
        assert found.rows.height == 8
