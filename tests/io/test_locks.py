"""Locks on a store: taken, refused, and taken over."""

from __future__ import annotations

import json
import secrets
import threading
import time
from typing import cast

import pytest

from sorites.core.errors import Notice, SoritesError
from sorites.io import locks
from sorites.io.stores import StorePath, to_path


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> StorePath:
    monkeypatch.setattr(locks, "SETTLE_SECONDS", 0.01)
    monkeypatch.setattr(locks, "STALE_SECONDS", 0.4)
    return cast(StorePath, to_path(f"memory://bucket/{secrets.token_hex(4)}/lock"))


def of_another_machine(seconds: float) -> bytes:
    """Return a lock of another machine, renewed that many seconds ago."""
    content = {"host": "elsewhere", "pid": 1, "key": "other", "started": "1", "time": time.time() - seconds}
    return json.dumps(content).encode()


def take(lock: StorePath) -> None:
    with locks.hold(lock, cast(StorePath, lock.parent), "run"):
        assert json.loads(lock.read_bytes())["key"] != "other"


def test_a_lock_is_held_and_released(lock: StorePath) -> None:
    take(lock)
    assert not lock.exists()


def test_a_fresh_lock_is_respected(lock: StorePath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "STALE_SECONDS", 90.0)
    lock.put(of_another_machine(1.0))
    with pytest.raises(SoritesError, match="elsewhere"):
        take(lock)


def test_a_stale_lock_is_taken_over(lock: StorePath) -> None:
    lock.put(of_another_machine(100.0))
    take(lock)


def test_a_lock_from_the_future_is_taken_over_if_nobody_renews_it(lock: StorePath) -> None:
    lock.put(of_another_machine(-86400.0))
    with pytest.warns(Notice, match="future"):
        take(lock)


def test_a_lock_from_the_future_is_respected_while_it_is_renewed(lock: StorePath) -> None:
    lock.put(of_another_machine(-86400.0))
    renewal = threading.Timer(0.15, lambda: lock.put(of_another_machine(-86401.0)))
    renewal.start()
    with pytest.warns(Notice, match="future"), pytest.raises(SoritesError, match="elsewhere"):
        take(lock)
    renewal.join()
