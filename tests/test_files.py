from __future__ import annotations

import os
import threading
from pathlib import Path

import filelock
import pytest

from sorites.errors import SoritesError
from sorites.files import cache, fetching, locked, make_once, sweep_temporaries, waiting, write_bytes


def test_the_cache_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path))
    assert cache("models", "a.onnx") == tmp_path / "models" / "a.onnx"
    monkeypatch.setenv("SORITES_CACHE", "")
    assert cache().name == "sorites"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "shard.parquet"
    write_bytes(b"old", path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        SoritesError, match=r"cannot write .*shard\.parquet: No space left on device.*type the same command again"
    ):
        write_bytes(b"new", path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in path.parent.iterdir()] == ["shard.parquet"]


def test_what_a_killed_process_left_is_swept_away(tmp_path: Path) -> None:
    for name in ("a.png", "deep/b.png.7.tmp"):
        write_bytes(b"", tmp_path / name)
    sweep_temporaries(tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.png"]


def test_a_locked_folder_is_refused_and_free_again_afterwards(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "run"),
        pytest.raises(SoritesError, match=r"another sorites is writing into .*run; wait for it, or choose another --out DIR"),
        locked(tmp_path / "run"),
    ):
        pass
    with locked(tmp_path / "run"):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(SoritesError, match="cannot make the dataset folder"), locked(tmp_path / "file" / "set", "dataset"):
        pass


def test_whoever_waits_too_long_to_fetch_is_told(tmp_path: Path) -> None:
    with (
        waiting(tmp_path / "pictures" / ".lock"),
        pytest.raises(SoritesError, match=r"fetching into .*pictures for too long; end it and try again"),
        fetching(tmp_path / "pictures", 0.01),
    ):
        pass
    with pytest.raises(SoritesError, match=r"cannot fetch into .*Set SORITES_CACHE"), fetching(tmp_path, 1):
        raise OSError(28, "No space left on device")


def test_a_file_that_several_need_is_made_once(tmp_path: Path) -> None:
    path, calls = tmp_path / "models" / "head.bin", []

    def make() -> bytes:
        calls.append(1)
        return b"made"

    with waiting(tmp_path / "models" / "head.bin.lock"):
        both = [threading.Thread(target=make_once, args=(path, make)) for _ in "ab"]
        for thread in both:
            thread.start()
    for thread in both:
        thread.join()
    make_once(path, make)
    assert (path.read_bytes(), len(calls)) == (b"made", 1)
    with pytest.raises(filelock.Timeout), waiting(path), waiting(path, 0):
        pass
