"""Units on processes of this machine, for models that hold the interpreter's lock: each loads what it needs once."""

from __future__ import annotations

import multiprocessing
import queue
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import TypeVar

from sorites.engines.local import next_done

Unit = TypeVar("Unit")
Result = TypeVar("Result")


def processes(units: Sequence[Unit], work: Callable[[Unit], Result], workers: int) -> Iterator[tuple[Unit, Result]]:
    """Run ``workers`` units at a time, each in a fresh interpreter. A failure or an interrupt ends the workers at once: what a
    unit writes appears whole or not at all, so that nothing is half done."""
    done = queue.SimpleQueue[Future[Result]]()
    pool = ProcessPoolExecutor(min(workers, max(1, len(units))), multiprocessing.get_context("spawn"), _leave_interrupts)
    finished = False
    try:
        jobs = {pool.submit(work, unit): unit for unit in units}
        for job in jobs:
            job.add_done_callback(done.put)
        for _ in jobs:
            job = next_done(done)
            yield jobs[job], job.result()
        finished = True
    finally:
        workers_left = [] if finished else list((pool._processes or {}).values())
        for worker in workers_left:
            worker.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def _leave_interrupts() -> None:
    """Ctrl-C reaches every process of the terminal; the one that started the workers decides what happens."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
