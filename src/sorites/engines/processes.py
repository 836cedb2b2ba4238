"""Units on processes of this machine, for models that hold the interpreter's lock: each loads what it needs once."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from sorites.engines.local import results

Unit = TypeVar("Unit")
Result = TypeVar("Result")


def processes(units: Sequence[Unit], work: Callable[[Unit], Result], workers: int) -> Iterator[tuple[Unit, Result]]:
    """Run ``workers`` units at a time, each in a fresh interpreter. A failure or an interrupt ends the workers at once: what a
    unit writes appears whole or not at all, so that nothing is half done."""
    pool = ProcessPoolExecutor(min(workers, max(1, len(units))), multiprocessing.get_context("spawn"), _leave_interrupts)
    finished = False
    try:
        yield from results(pool, units, work)
        finished = True
    finally:
        workers_left = [] if finished else list((pool._processes or {}).values())
        for worker in workers_left:
            worker.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def _leave_interrupts() -> None:
    """Ctrl-C reaches every process of the terminal; the one that started the workers decides what happens."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
