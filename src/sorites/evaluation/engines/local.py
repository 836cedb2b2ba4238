"""Engines on this machine: threads, and processes for models that hold the interpreter lock."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, TypeVar

from sorites.core.errors import SoritesError, exit_message
from sorites.core.messages import option
from sorites.evaluation.engines.interrupts import watch_stop
from sorites.io.decode import allow_pixels, max_pixels

Unit = TypeVar("Unit")
Result = TypeVar("Result")

# Tasks per worker that are submitted in advance: enough that none waits, few enough to fit into memory.
TASKS_AHEAD = 4
# Seconds between two checks for an interrupt: a signal that another thread receives does not wake the waiting
# one.
POLL_SECONDS = 0.1


def local(
    units: Sequence[Unit], work: Callable[[Unit], Result], workers: int
) -> Iterator[tuple[Unit, Result]]:
    """Run ``workers`` tasks at a time on threads; pixel work and models release the interpreter lock.

    After a failure or an interrupt, pending tasks are dropped and running ones stop at their next image; then
    it is raised.
    """
    stop_requested = threading.Event()
    with ThreadPoolExecutor(workers, initializer=watch_stop, initargs=(stop_requested,)) as pool:
        try:
            yield from results(pool, units, work, workers * TASKS_AHEAD)
        finally:
            stop_requested.set()
            pool.shutdown(wait=False, cancel_futures=True)


def results(
    pool: Executor, units: Sequence[Unit], work: Callable[[Unit], Result], ahead: int
) -> Iterator[tuple[Unit, Result]]:
    """Submit tasks to a pool, at most ``ahead`` before they are done, and yield each with its result as it
    completes; the first failure is raised.
    """
    done = queue.SimpleQueue[Future[Result]]()
    jobs: dict[Future[Result], Unit] = {}
    left = iter(units)

    def submit() -> None:
        for unit in islice(left, 1):
            job = pool.submit(work, unit)
            jobs[job] = unit
            job.add_done_callback(done.put)

    for _ in range(ahead):
        submit()
    while jobs:
        job = _next_done(done)
        unit = jobs.pop(job)
        submit()
        try:
            result = job.result()
        # user code called by a task must not end the program
        except SystemExit as error:
            raise SoritesError(f"a task failed: {exit_message(error)}") from error
        yield unit, result


def _next_done(done: queue.SimpleQueue[Future[Result]]) -> Future[Result]:
    """Wait for the next completed future, and wake up often enough to notice Ctrl-C."""
    while True:
        try:
            return done.get(timeout=POLL_SECONDS)
        except queue.Empty:
            continue


WORKER_DIED = (
    "a worker process ended early: it was killed, it ran out of memory, or a Python script started it outside"
    " of 'if __name__ == \"__main__\":'. Finished work is kept; repeat the command, with fewer"
    f" {option('workers', None)} if memory is scarce."
)


def processes(
    units: Sequence[Unit], work: Callable[[Unit], Result], workers: int
) -> Iterator[tuple[Unit, Result]]:
    """Run ``workers`` tasks at a time, each in a fresh interpreter, for models that hold the interpreter
    lock.

    A failure or an interrupt ends the workers immediately; files are written atomically, so nothing is left
    half-written.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        min(workers, max(1, len(units))), context, _start_worker, (work, max_pixels(), context.Value("i", 0))
    )
    finished = False
    try:
        yield from results(pool, units, _do_task, workers * TASKS_AHEAD)
        finished = True
    except BrokenProcessPool as error:
        raise SoritesError(WORKER_DIED) from error
    finally:
        workers_left = [] if finished else list((pool._processes or {}).values())
        for worker in workers_left:
            worker.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


class _Worker:
    """The job of a worker process; the function stays here, so that it loads what it needs once."""

    work: Callable[[Any], Any]
    number: int | None = None


def worker_number() -> int | None:
    """Return the number of this worker process, from 0; None in other processes.

    Workers use it to share the GPUs of a machine.
    """
    return _Worker.number


def _do_task(unit: Any) -> Any:
    return _Worker.work(unit)


def _start_worker(work: Callable[[Any], Any], pixels: int, started: Any) -> None:
    """Initialise a worker process: take over the pixel limit, ignore Ctrl-C, which reaches all processes of a
    terminal, and end with the parent.
    """
    _Worker.work = staticmethod(work)
    with started.get_lock():
        _Worker.number = started.value
        started.value += 1
    allow_pixels(pixels)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Wait until the parent process has ended, then end this process immediately."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
