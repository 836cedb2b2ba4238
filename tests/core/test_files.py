from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import filelock
import pytest

from sorites.core.errors import SoritesError
from sorites.io.files import (
    cache,
    cached,
    download_lock,
    file_lock,
    locked,
    make_once,
    read_json,
    sweep_temporaries,
    temporary_name,
    write_bytes,
)


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
        SoritesError,
        match=r"shard\.parquet: No space left",
    ):
        write_bytes(b"new", path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in path.parent.iterdir()] == ["shard.parquet"]


def test_what_a_killed_process_left_is_swept_away(tmp_path: Path) -> None:
    for name in ("a.png", f"deep/{temporary_name(tmp_path / 'b.png').name}"):
        write_bytes(b"", tmp_path / name)
    sweep_temporaries(tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.png"]


def test_files_of_the_user_are_never_swept_away(tmp_path: Path) -> None:
    names = {"notes.tmp", "a.tmp", "run.json.99.tmp", "sorites.tmp", "sorites-7.tmp"}
    for name in names:
        (tmp_path / name).write_text("mine")
    sweep_temporaries(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_folder_inside_that_another_process_holds_is_left_alone(tmp_path: Path) -> None:
    unfinished = temporary_name(tmp_path / "inner" / "x.parquet")
    with locked(tmp_path / "inner"):
        unfinished.write_text("half")
        sweep_temporaries(tmp_path)
    assert unfinished.exists()


def test_a_name_as_long_as_the_system_allows_can_be_written(tmp_path: Path) -> None:
    write_bytes(b"x", tmp_path / ("a" * 255))
    assert (tmp_path / ("a" * 255)).read_bytes() == b"x"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EACCES, "choose a"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_write_that_fails_says_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(SoritesError, match=said):
        write_bytes(b"x", tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_a_locked_folder_is_refused_and_free_again_afterwards(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "run"),
        pytest.raises(
            SoritesError,
            match="wait for it, or choose another",
        ),
        locked(tmp_path / "run"),
    ):
        pass
    with locked(tmp_path / "run"):
        pass
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(SoritesError, match="the dataset folder"),
        locked(tmp_path / "file" / "set", "dataset"),
    ):
        pass


def test_whoever_waits_too_long_to_fetch_is_told(tmp_path: Path) -> None:
    with (
        file_lock(tmp_path / "images" / ".lock"),
        pytest.raises(SoritesError, match="images for too long;"),
        download_lock(tmp_path / "images", 0.01),
    ):
        pass
    with pytest.raises(SoritesError, match=r"Set SORITES_CACHE"), download_lock(tmp_path, 1):
        raise OSError(28, "No space left on device")


def test_a_file_that_several_need_is_made_once(tmp_path: Path) -> None:
    path, calls = tmp_path / "models" / "head.bin", []

    def make() -> bytes:
        calls.append(1)
        return b"made"

    with file_lock(tmp_path / "models" / "head.bin.lock"):
        both = [threading.Thread(target=make_once, args=(path, make)) for _ in "ab"]
        for thread in both:
            thread.start()
    for thread in both:
        thread.join()
    make_once(path, make)
    assert (path.read_bytes(), len(calls)) == (b"made", 1)
    with pytest.raises(filelock.Timeout), file_lock(path), file_lock(path, 0):
        pass


def test_a_damaged_file_of_the_cache_is_made_anew_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    made: list[int] = []

    def make() -> bytes:
        made.append(1)
        return b"7"

    def read(file: Path) -> int:
        return int(file.read_text())

    assert cached(path, make, read) == 7
    path.write_bytes(b"half")
    with pytest.warns(UserWarning, match="a.txt is damaged"):
        assert cached(path, make, read) == 7
    assert len(made) == 2


def test_a_fetch_that_failed_is_not_tried_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def fetch() -> None:
        with download_lock(tmp_path / "set", 1.0):
            tried.append(1)
            raise SoritesError("the network is down")

    for _ in range(3):
        with pytest.raises(SoritesError, match="the network is down"):
            fetch()
    assert len(tried) == 1
    monkeypatch.setattr("sorites.io.files.RETRY_SECONDS", 0.0)
    with pytest.raises(SoritesError, match="the network is down"):
        fetch()
    assert len(tried) == 2


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"{", "it is not JSON"), (b"[" * 200_000, "it is nested too deeply"), (b"\xff", "it is not JSON")],
)
def test_json_that_cannot_be_read_says_why(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(SoritesError, match=said):
        read_json(tmp_path / "a.json")
    with pytest.raises(SoritesError, match="No such file"):
        read_json(tmp_path / "b.json")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(SoritesError, match="it is not a file"):
        read_json(tmp_path / "pipe.json")
