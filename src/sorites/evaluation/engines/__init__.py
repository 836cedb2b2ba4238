"""Engines apply a function to many tasks and yield each task with its result, in any order.

Engines know nothing of plans, run folders or models: a task is any value. For engines with several processes,
tasks, the function and its results are picklable. Such an engine should send the function to each worker
process once and keep it there: it opens what it needs, such as the plan of a run, at its first call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sorites.core.machine import cores
from sorites.core.registry import Registry
from sorites.evaluation.engines.interrupts import arm_second_interrupt

# (tasks, function, workers) to pairs of a task and its result.
Start = Callable[[Sequence[Any], Callable[[Any], Any], int], Iterator[tuple[Any, Any]]]


@dataclass(frozen=True)
class Engine:
    """A way to run tasks.

    Attributes:
        start: Takes tasks, a function of one task, and the number of workers; yields pairs of a task and its
            result.
        one_process: Tasks run in this process and can use its objects.
        name: Name in the registry.
    """

    start: Start
    one_process: bool
    name: str = ""
    cores: Callable[[], int] = cores
    """Returns the default number of workers."""

    def __call__(
        self, units: Sequence[Any], work: Callable[[Any], Any], workers: int
    ) -> Iterator[tuple[Any, Any]]:
        arm_second_interrupt()
        return self.start(units, work, workers)


ENGINES: Registry[Engine] = Registry("engine", "sorites.evaluation.engines.builtin")
