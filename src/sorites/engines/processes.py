"""Units on processes of this machine, for models that hold the interpreter's lock: each loads what it needs once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from sorites.engines.local import results
from sorites.errors import SoritesError

GONE = (
    "a worker process ended before its work was done: it was killed, it ran out of memory, or a Python script started it outside "
    "of 'if __name__ == \"__main__\":'. What was done is kept: type the command again, with fewer --workers if memory is scarce."
)
Unit = TypeVar("Unit")
Result = TypeVar("Result")


def processes(units: Sequence[Unit], work: Callable[[Unit], Result], workers: int) -> Iterator[tuple[Unit, Result]]:
    """Run ``workers`` units at a time, each in a fresh interpreter. A failure or an interrupt ends the workers at once: what a
    unit writes appears whole or not at all, so that nothing is half done."""
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
    """Begin a worker: the process that started it decides what Ctrl-C does, and takes the worker along when it ends.

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
