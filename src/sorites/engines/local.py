"""Units on threads of this process: the pixel work and the model pass both leave the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from sorites.engines import ENGINES
from sorites.plan import Unit


def local(units: Sequence[Unit], work: Callable[[Unit], None], workers: int) -> Iterator[Unit]:
    """``workers`` units at a time. The first failure stops what has not begun and is raised when the rest is done."""
    with ThreadPoolExecutor(workers) as pool:
        jobs = {pool.submit(work, unit): unit for unit in units}
        try:
            for job in as_completed(jobs):
                job.result()
                yield jobs[job]
        finally:
            for job in jobs:
                job.cancel()


ENGINES.add("local", local)
