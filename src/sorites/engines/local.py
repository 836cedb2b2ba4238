"""Units on threads of this process: the pixel work and the model pass both leave the interpreter's lock."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from sorites.engines import ENGINES, Unit
from sorites.engines.interrupts import heed

PULSE = 0.1
"""Seconds between two looks for an interrupt: a signal that another thread receives does not wake the one that waits."""


def local(units: Sequence[Unit], work: Callable[[Unit], None], workers: int) -> Iterator[Unit]:
    """``workers`` units at a time. A failure or an interrupt drops what has not begun, and what is under way at its next
    picture; it is raised when that is done."""
    asked, done = threading.Event(), queue.SimpleQueue[Future[None]]()
    with ThreadPoolExecutor(workers, initializer=heed, initargs=(asked,)) as pool:
        try:
            jobs = {pool.submit(work, unit): unit for unit in units}
            for job in jobs:
                job.add_done_callback(done.put)
            for _ in jobs:
                job = _next(done)
                job.result()
                yield jobs[job]
        finally:
            asked.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _next(done: queue.SimpleQueue[Future[None]]) -> Future[None]:
    while True:
        try:
            return done.get(timeout=PULSE)
        except queue.Empty:
            continue


ENGINES.add("local", local)
