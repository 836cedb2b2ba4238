"""Choose what a command leaves open: threads unless a model lets only one of them work, and the batch."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sorites.core import Model
from sorites.engines import ENGINES, Engine
from sorites.pipeline.answers import out_of_memory
from sorites.pipeline.plan import Plan
from sorites.pipeline.predict import GREY
from sorites.torch_tools import device_of

FEW = 5_000
"""Passes of a picture through a model below which starting processes is not worth a thought."""
MOST = 1024
"""The largest batch that is tried."""
LATE = 0.003
"""Seconds that a thread wakes late if another holds the interpreter's lock; the holder gives it up every 5 ms, or never."""
WAITS = 0.02
"""The share of the time below which a model that works alone only waits; a busy machine leaves a model that computes more."""
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
    alone = [f"{name} {why}" for name, model in plan.models.items() if (why := works_alone(model))]
    if device_used(plan) != "cpu" or _on_gpu():
        return Chosen(local, f"{here}: the models share a GPU")
    if not alone:
        return Chosen(local, f"{here}: while a model works, other threads can too")
    if plan.objects:
        return Chosen(local, f"{here}: {'; '.join(alone)}, but {', '.join(plan.objects)} is an object of this process")
    return Chosen(ENGINES.get("processes"), f"processes, {count}: {'; '.join(alone)}")


def choose_batch(plan: Plan, smallest: int) -> tuple[int, str]:
    """Return the largest batch that all models take on their device, and one line that says so.

    On a CPU the smallest: larger ones are not faster there.
    """
    device = device_used(plan)
    if device == "cpu":
        return smallest, f"{smallest} pictures: on a CPU larger batches are not faster"
    size = min((largest_batch(model, smallest) for model in plan.models.values()), default=smallest)
    return size, f"{size} pictures: the largest that fits on {device}"


def largest_batch(model: Model, smallest: int, most: int = MOST) -> int:
    """Return the largest power of two, from ``smallest`` on, of pictures that a model takes at once."""
    size = smallest
    while size < most:
        try:
            model([GREY] * (2 * size), False)
        except Exception as error:
            if not out_of_memory(error):
                raise
            return size
        size *= 2
    return size


def device_used(plan: Plan) -> str:
    """Return where the models of a plan compute: torch's device where one is a torch model, else the CPU unless one is asked."""
    if plan.suite.device is not None:
        return plan.suite.device
    return device_of(None) if any(model.module is not None for model in plan.models.values()) else "cpu"


def works_alone(model: Model) -> str:
    """Say why other threads cannot work while the model does; empty where they can, or where it keeps the cores busy itself."""
    if holds_lock(model):
        return "holds the interpreter's lock while it works"
    return "takes one caller at a time, and computes on one core" if model.one_caller and on_one_core(model) else ""


def on_one_core(model: Model) -> bool:
    """Return whether the model computes, and on the core of its caller: other threads of the process then have little to do."""
    clock, whole, own = time.perf_counter(), time.process_time(), time.thread_time()
    while time.perf_counter() < clock + LOOK:
        model([GREY] * 4, False)
    own = time.thread_time() - own
    return own > WAITS * (time.perf_counter() - clock) and time.process_time() - whole < 1.5 * own


def _on_gpu() -> bool:
    """Return whether a model of this process computes on a GPU, of which every process would take a part."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def holds_lock(model: Model) -> bool:
    """Return whether another thread wakes late while the model works, later than while nothing does."""
    model([GREY], False)  # what is only done once must not be timed
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
