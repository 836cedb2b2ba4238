"""Engines apply a function to many tasks and yield each task with its result, in any order.

Engines know nothing of plans, run folders or models: a task is any value. For engines with several processes,
tasks, the function and its results are picklable. Such an engine should send the function to each worker
process once and keep it there: it opens what it needs, such as the plan of a run, at its first call.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from sorites.core.compute.machine import cores
from sorites.core.registry import Registry
from sorites.evaluation.engines.interrupts import arm_second_interrupt

# (tasks, function, workers) to pairs of a task and its result.
Start = Callable[[Sequence[Any], Callable[[Any], Any], int], Iterator[tuple[Any, Any]]]


T = TypeVar("T")


class GroupedTasks(Sequence[T]):
    """Tasks that are made when they are sent, so that few are in memory at a time, in groups.

    Tasks of one group need the same models; an engine that can give each worker tasks of one group only saves
    memory and loading.
    """

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return [self.at(i) for i in range(len(self))[index]]
        return self.at(range(len(self))[index])

    @abstractmethod
    def at(self, index: int) -> T:
        """Make the task at an index, which is not negative."""

    @abstractmethod
    def group(self, index: int) -> Hashable:
        """Return the group of the task at an index."""


@dataclass(frozen=True)
class Engine:
    """A way to run tasks.

    Attributes:
        start: Takes tasks, a function of one task, and the number of workers; yields pairs of a task and its
            result.
        one_process: Tasks run in this process and can use its objects.
        name: Name in the registry.
        producers: The number of processes that a worker starts to make images.
    """

    start: Start
    one_process: bool
    name: str = ""
    producers: int = 0
    cores: Callable[[], int] = cores
    """Returns the default number of workers."""

    def __call__(
        self, units: Sequence[Any], work: Callable[[Any], Any], workers: int
    ) -> Iterator[tuple[Any, Any]]:
        arm_second_interrupt()
        return self.start(units, work, workers)


ENGINES: Registry[Engine] = Registry("engine", "sorites.evaluation.engines.builtin")
