"""Places by what was typed, before any store is asked."""

from __future__ import annotations

import errno
import time
import warnings
from pathlib import Path

import pytest

from sorites.core.errors import Notice, SoritesError
from sorites.io import stores
from sorites.io.stores import StorePath, to_path


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("s3://", "s3://BUCKET/PATH"),
        (Path("gs://"), "gs:// names no bucket"),
        ("x\0y", "a null character"),
    ],
)
def test_what_is_no_place_is_said(typed: str | Path, said: str) -> None:
    with pytest.raises(SoritesError, match=said):
        to_path(typed)


def test_a_scheme_makes_a_place_on_a_store() -> None:
    assert str(to_path(Path("s3://bucket/run"))) == "s3://bucket/run"
    assert isinstance(to_path("s3://bucket"), StorePath)
    assert to_path("runs/a") == Path("runs/a")
    assert not isinstance(to_path("runs/s3:/a"), StorePath)


def test_errors_of_a_store_have_a_number_and_the_path() -> None:
    with pytest.raises(FileNotFoundError) as missing:
        to_path("memory://bucket/nothing").read_bytes()
    assert missing.value.errno == errno.ENOENT
    assert missing.value.filename == "memory://bucket/nothing"

    def fail() -> None:
        raise ValueError("no such thing")

    with pytest.raises(OSError, match="no such thing") as other:
        stores._call(StorePath("memory://bucket/a"), fail)
    assert other.value.errno == errno.EIO


def test_a_slow_store_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "SLOW_SECONDS", 0.05)
    stores._watcher.cache_clear()  # a watcher that is asleep keeps its former interval
    shown: list[Warning | str] = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_, **__: shown.append(message))
    warnings.simplefilter("always")
    assert stores._call(StorePath("memory://bucket/a"), lambda: time.sleep(0.3) or "answer") == "answer"
    assert [notice.code for notice in shown if isinstance(notice, Notice)] == ["store_slow"]
    shown.clear()
    assert stores._call(StorePath("memory://bucket/a"), lambda: "answer") == "answer"
    time.sleep(0.1)
    assert not shown
