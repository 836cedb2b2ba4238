"""The engine of a run whose command names none: threads, unless a model holds the interpreter's lock for long."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sorites.core import Model
from sorites.engines import ENGINES, Engine
from sorites.pipeline.plan import Plan
from sorites.pipeline.predict import GREY

FEW = 5_000
"""Passes of a picture through a model below which starting processes is not worth a thought."""
LATE = 0.003
"""Seconds that a thread wakes late if another holds the interpreter's lock; the holder gives it up every 5 ms, or never."""
LOOK = 0.25
"""Seconds for which a model is watched."""


@dataclass(frozen=True)
class Chosen:
    """An engine, and one line that says what was chosen and why."""

    engine: Engine
    said: str


def choose(plan: Plan, workers: int | None) -> Chosen:
    """Choose an engine for a plan by its size and by whether its models let other threads work meanwhile."""
    local = ENGINES.get("local")
    count = workers or local.cores()
    here = f"local, {count} thread{'s' if count > 1 else ''}"
    if count == 1 or plan.images() * len(plan.models) < FEW:
        return Chosen(local, f"{here}: the run is {'for one worker' if count == 1 else 'small'}")
    holding = [name for name, model in plan.models.items() if holds_lock(model)]
    if not holding:
        return Chosen(local, f"{here}: while a model works, other threads can too")
    if plan.objects:
        why = f"{', '.join(holding)} holds the interpreter's lock, but {', '.join(plan.objects)} is an object of this process"
        return Chosen(local, f"{here}: {why}")
    found = ENGINES.get("processes")
    return Chosen(found, f"processes, {count}: {', '.join(holding)} holds the interpreter's lock while it works")


def holds_lock(model: Model) -> bool:
    """Return whether another thread wakes late while the model works, later than while nothing does."""
    model([GREY], False)  # what is only done once shall not be seen
    busy = _late(lambda: model([GREY] * 4, False))
    return busy > LATE and busy > 3 * _late(lambda: time.sleep(LOOK))


def _late(do: Callable[[], object]) -> float:
    """Return by how much a thread that sleeps for a moment wakes late, in the median, while ``do`` is called again and again."""
    late: list[float] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            start = time.perf_counter()
            time.sleep(0.001)
            late.append(time.perf_counter() - start - 0.001)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    until = time.perf_counter() + LOOK
    while time.perf_counter() < until:
        do()
    ended.set()
    thread.join()
    return statistics.median(late) if late else LOOK
