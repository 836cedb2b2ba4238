"""Tasks of a large run hash the images that they decode; its manifest is that of a run that hashed first."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

import sorites
from sorites.core import Model
from sorites.evaluation.engines import Engine
from sorites.evaluation.storage import contents, folder
from sorites.evaluation.storage.folder import read_manifest
from sorites.suites.suite import parse

SUITE = parse({"name": "small", "frame": {"resize": 40}, "shifts": ["contrast", "jpeg"]}, "test")


class Stopped(Exception):
    pass


def counting(hashed: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    own = contents.Span.hash

    def count(span: contents.Span) -> str | None:
        hashed.append(span.file)
        return own(span)

    monkeypatch.setattr(contents.Span, "hash", count)


@pytest.fixture
def images(photos: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(photos, tmp_path / "images"))


@pytest.fixture
def evaluate(
    images: Path, tiny: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    monkeypatch.setattr(folder, "MAX_HASHED_FIRST", 0)

    def run(name: str, **options: Any) -> Path:
        return sorites.run(
            SUITE, source=f"folder:{images}", models=[tiny()], out=tmp_path / name, **options
        ).folder

    return run


@pytest.mark.slow
def test_each_image_is_hashed_once_by_its_task(
    evaluate: Callable[..., Path], images: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hashed: list[Path] = []
    counting(hashed, monkeypatch)
    before: list[int] = []

    def start(units: Sequence[Any], work: Callable[[Any], Any], workers: int) -> Iterator[tuple[Any, Any]]:
        before.append(len(hashed))
        assert read_manifest(tmp_path / "lazy")["content"].null_count() == 20
        for unit in units:
            yield unit, work(unit)

    lazy = evaluate("lazy", engine=Engine(start, one_process=True, name="own"))
    assert before == [0], "nothing is hashed before the run"
    assert len(hashed) == len(set(hashed)) == 20
    monkeypatch.setattr(folder, "MAX_HASHED_FIRST", 4096)
    assert_frame_equal(read_manifest(lazy), read_manifest(evaluate("first")))
    assert len(hashed) == 40
    evaluate("lazy")
    assert len(hashed) == 40, "known hashes are kept"


@pytest.mark.slow
def test_an_interrupted_run_keeps_its_hashes_and_a_killed_one_hashes_the_rest(
    evaluate: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def failing(units: Sequence[Any], work: Callable[[Any], Any], workers: int) -> Iterator[tuple[Any, Any]]:
        for unit in units[:3]:
            yield unit, work(unit)
        raise Stopped

    stopping = Engine(failing, one_process=True, name="failing")
    with pytest.raises(Stopped):
        evaluate("stopped", engine=stopping)
    assert read_manifest(tmp_path / "stopped")["content"].null_count() == 4
    with monkeypatch.context() as killed:
        killed.setattr(folder, "record_hashes", lambda *_: None)
        with pytest.raises(Stopped):
            evaluate("killed", engine=stopping)
    assert read_manifest(tmp_path / "killed")["content"].null_count() == 20
    hashed: list[Path] = []
    counting(hashed, monkeypatch)
    wanted = read_manifest(evaluate("whole"))
    assert len(hashed) == 20
    for name, more in (("stopped", 4), ("killed", 20)):
        hashed.clear()
        assert_frame_equal(read_manifest(evaluate(name)), wanted)
        assert len(hashed) == more


@pytest.mark.slow
def test_an_image_that_changes_meanwhile_is_evaluated_again(
    evaluate: Callable[..., Path], images: Path, tmp_path: Path
) -> None:
    file = sorted(path for path in images.rglob("*") if path.is_file())[0]

    def changing(units: Sequence[Any], work: Callable[[Any], Any], workers: int) -> Iterator[tuple[Any, Any]]:
        os.utime(file, ns=(1, 1))
        for unit in units:
            yield unit, work(unit)

    evaluate("run", engine=Engine(changing, one_process=True, name="changing"))
    assert read_manifest(tmp_path / "run")["content"].null_count() == 1
    with pytest.warns(UserWarning, match="1 of 20 images have changed"):
        evaluate("run")
    assert read_manifest(tmp_path / "run")["content"].null_count() == 0


def test_a_touched_image_that_was_hashed_is_unchanged(evaluate: Callable[..., Path], images: Path) -> None:
    first = evaluate("run")
    wanted = read_manifest(first)
    for path in images.rglob("*"):
        os.utime(path)
    again = read_manifest(evaluate("run"))
    assert_frame_equal(again.drop("modified"), wanted.drop("modified"))
