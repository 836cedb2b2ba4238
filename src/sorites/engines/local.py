"""Units on threads of this process: the pixel work and the model pass both release the interpreter's lock."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TypeVar

from sorites.engines.interrupts import heed
from sorites.errors import SoritesError, left_by_exit

Unit = TypeVar("Unit")
Result = TypeVar("Result")

PULSE = 0.1
"""Seconds between two looks for an interrupt: a signal that another thread receives does not wake the one that waits."""


def local(units: Sequence[Unit], work: Callable[[Unit], Result], workers: int) -> Iterator[tuple[Unit, Result]]:
    """Run ``workers`` units at a time. A failure or an interrupt drops what has not begun, and what is under way at its next
    picture; it is raised when that is done."""
    asked = threading.Event()
    with ThreadPoolExecutor(workers, initializer=heed, initargs=(asked,)) as pool:
        try:
            yield from results(pool, units, work)
        finally:
            asked.set()
            pool.shutdown(wait=False, cancel_futures=True)


def results(pool: Executor, units: Sequence[Unit], work: Callable[[Unit], Result]) -> Iterator[tuple[Unit, Result]]:
    """Submit all units to a pool and yield each with its result as it ends; the first failure is raised."""
    done = queue.SimpleQueue[Future[Result]]()
    jobs = {pool.submit(work, unit): unit for unit in units}
    for job in jobs:
        job.add_done_callback(done.put)
    for _ in jobs:
        job = _next_done(done)
        try:
            result = job.result()
        except SystemExit as error:  # somebody's code that a unit of work calls would end the program as if all were done
            raise SoritesError(f"{work}: {left_by_exit(error)}") from error
        yield jobs[job], result


def _next_done(done: queue.SimpleQueue[Future[Result]]) -> Future[Result]:
    """Wait for the next future that ends, and wake often enough to notice a Ctrl-C."""
    while True:
        try:
            return done.get(timeout=PULSE)
        except queue.Empty:
            continue
