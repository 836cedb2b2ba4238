from __future__ import annotations

import threading
import time

import pytest

from sorites.core.errors import SoritesError
from sorites.evaluation.engines.interrupts import stop_if_requested
from sorites.evaluation.engines.local import local
from sorites.evaluation.plan import Unit

UNITS = [Unit("s", start, start + 1) for start in range(6)]


def test_every_unit_is_done_once() -> None:
    done: list[Unit] = []
    assert sorted(unit.start for unit, _ in local(UNITS, done.append, 3)) == [0, 1, 2, 3, 4, 5]
    assert sorted(unit.start for unit in done) == [0, 1, 2, 3, 4, 5]


def test_an_interrupt_drops_what_is_under_way_at_its_next_image() -> None:
    finished: list[int] = []
    begun = threading.Event()

    def work(unit: Unit) -> None:
        for _ in range(2000 if unit.start else 1):
            stop_if_requested()
            begun.set() if unit.start else None
            time.sleep(0.01)
        finished.append(unit.start)

    def stopped() -> None:
        for _ in local(UNITS, work, 2):
            begun.wait(30)
            raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert time.monotonic() - start < 15
    assert finished == [0]


def test_the_first_failure_is_the_one_that_is_raised() -> None:
    def work(unit: Unit) -> None:
        if unit.start == 1:
            raise ValueError("one")
        while True:
            stop_if_requested()
            time.sleep(0.01)

    with pytest.raises(ValueError, match="one"):
        list(local(UNITS, work, 2))


def test_nobody_is_asked_to_leave_outside_an_engine() -> None:
    stop_if_requested()


def test_work_that_calls_exit_is_an_error() -> None:
    def work(unit: Unit) -> None:
        raise SystemExit(0)

    with pytest.raises(SoritesError, match=r"it calls sys\.exit\(0\)"):
        list(local(UNITS, work, 2))
