"""Units on threads of this process: the pixel work and the model pass both release the interpreter's lock."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from sorites.core.errors import SoritesError, left_by_exit
from sorites.evaluation.engines.interrupts import heed

Unit = TypeVar("Unit")
Result = TypeVar("Result")

# Seconds between two looks for an interrupt: a signal that another thread receives does not wake
# the one that waits.
PULSE = 0.1


def local(
    units: Sequence[Unit], work: Callable[[Unit], Result], workers: int
) -> Iterator[tuple[Unit, Result]]:
    """Run ``workers`` units at a time.

    A failure or an interrupt drops what has not begun, and what is under way at its next image;
    it is raised when that is done.
    """
    asked = threading.Event()
    with ThreadPoolExecutor(workers, initializer=heed, initargs=(asked,)) as pool:
        try:
            yield from results(pool, units, work)
        finally:
            asked.set()
            pool.shutdown(wait=False, cancel_futures=True)


def results(
    pool: Executor, units: Sequence[Unit], work: Callable[[Unit], Result]
) -> Iterator[tuple[Unit, Result]]:
    """Submit all units to a pool and yield each with its result as it ends; the first failure is raised."""
    done = queue.SimpleQueue[Future[Result]]()
    jobs = {pool.submit(work, unit): unit for unit in units}
    for job in jobs:
        job.add_done_callback(done.put)
    for _ in jobs:
        job = _next_done(done)
        try:
            result = job.result()
        # somebody's code that a unit of work calls would end the program as if all were
        # done
        except SystemExit as error:
            raise SoritesError(f"{work}: {left_by_exit(error)}") from error
        yield jobs[job], result


def _next_done(done: queue.SimpleQueue[Future[Result]]) -> Future[Result]:
    """Wait for the next future that ends, and wake often enough to notice a Ctrl-C."""
    while True:
        try:
            return done.get(timeout=PULSE)
        except queue.Empty:
            continue


# Units on processes of this machine, for models that hold the interpreter's lock: each loads what it
# needs once.


GONE = (
    "a worker process ended before its work was done: it was killed, it ran out of memory, or a Python script"
    " started it outside of 'if __name__ == \"__main__\":'. What was done is kept: type the command again,"
    " with fewer --workers if memory is scarce."
)


def processes(
    units: Sequence[Unit], work: Callable[[Unit], Result], workers: int
) -> Iterator[tuple[Unit, Result]]:
    """Run ``workers`` units at a time, each in a fresh interpreter.

    A failure or an interrupt ends the workers at once: what a unit writes appears whole or not at
    all, so that nothing is half done.
    """
    pool = ProcessPoolExecutor(min(workers, max(1, len(units))), multiprocessing.get_context("spawn"), _begin)
    finished = False
    try:
        yield from results(pool, units, work)
        finished = True
    except BrokenProcessPool as error:
        raise SoritesError(GONE) from error
    finally:
        workers_left = [] if finished else list((pool._processes or {}).values())
        for worker in workers_left:
            worker.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """Begin a worker: the process that started it decides what Ctrl-C does, and takes the worker
    along when it ends.

    Ctrl-C reaches every process of the terminal.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait until the process that started this one is gone, however it ended, and end this one at once."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
