"""The fuzz suite is as large as it says: each test counts its cases, and together they are these."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from tests.fuzz import bounds, hostile

from sorites.core.errors import SoritesError


def test_the_long_run_has_fourteen_thousand_cases_and_the_short_one_fifteen_hundred() -> None:
    assert sum(bounds.cases(kind, bounds.LONG) for kind in bounds.CASES) >= 14_000
    assert sum(bounds.cases(kind, bounds.SHORT) for kind in bounds.CASES) >= 1_500


def test_a_multiplier_searches_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SORITES_FUZZ", "2.5")
    assert bounds.cases("images", bounds.LONG) == 2.5 * bounds.LONG * bounds.CASES["images"]


def test_cases_are_counted_and_the_same_every_time() -> None:
    seen: list[list[int]] = []
    for _ in range(2):
        seen.append([])
        bounds.fuzz("databases", 0.1, hostile.seeds, seen[-1].append)
    assert len(seen[0]) == bounds.cases("databases", 0.1)
    assert seen[0] == seen[1]
    with pytest.raises(AssertionError, match="only 3 of 60 different cases"):
        bounds.fuzz("lenses", 0.1, st.sampled_from("abc"), len)


def test_the_watch_sees_tracebacks_time_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise SoritesError("wanted this, got that")

    bounds.watched(refused, 0)
    with pytest.raises(ZeroDivisionError):
        bounds.watched(lambda x: 1 / x, 0)
    # Small, because touching a gigabyte takes seconds on a busy machine.
    monkeypatch.setattr(bounds, "BYTES", 32 << 20)
    with pytest.raises(AssertionError, match="MB"):
        bounds.watched(lambda size: len(b"x" * size), 96 << 20)
    monkeypatch.setattr(bounds, "SECONDS", 0.05)
    with pytest.raises(AssertionError, match=" s$"):
        bounds.watched(lambda n: sum(range(n)), 10**7)
    monkeypatch.setattr(bounds, "WAITING", 0.05)
    with pytest.raises(TimeoutError):
        bounds.watched(lambda _: [None for _ in iter(int, 1)], 0)
