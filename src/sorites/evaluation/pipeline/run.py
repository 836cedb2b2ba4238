"""Run tasks as a pipeline: producers make images, a consumer per device evaluates them, a finisher writes
their rows.

All threads and processes of a run work at once, bounded by queues. The result of a task does not depend on
the number of producers, on the order in which images arrive, or on the tasks beside it in a batch.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from sorites.core import Model
from sorites.core.errors import inform
from sorites.evaluation.pipeline.batches import Batcher
from sorites.evaluation.pipeline.consume import Consumer, Counts
from sorites.evaluation.pipeline.finish import Answered, Collected
from sorites.evaluation.pipeline.jobs import Job, Made, Workshop, cut, distinct_inputs
from sorites.evaluation.pipeline.lanes import Halt, Lane
from sorites.evaluation.pipeline.producers import NoProducers, Producers, ThreadProducers
from sorites.evaluation.plan import Plan
from sorites.evaluation.predict import Predictions
from sorites.evaluation.worker import Task

# Batches that wait for a device: one is filled while another is evaluated.
BATCHES_AHEAD = 2
# Messages that wait for the finisher.
ANSWERS_AHEAD = 64

Write = Callable[[Task, Mapping[str, Predictions]], None]
Make = Callable[[Iterator[Job]], Iterator[Sequence[Made]]]


@dataclass(frozen=True)
class Pipeline:
    """How tasks are run.

    Attributes:
        producers: The number of processes that make images; 0 uses threads of this process.
        batch: Images per forward pass.
        devices: The models of each device by name; default: the models of the plan.
        threads: The number of threads that make images if there are no producers.
    """

    producers: int
    batch: int
    devices: Sequence[Mapping[str, Model]] = ()
    threads: int = 2
    counts: Counts = field(default_factory=Counts)

    def run(
        self, plan: Plan, tasks: Sequence[Task], write: Write, tick: Callable[[int], None] = lambda n: None
    ) -> Iterator[Task]:
        """Evaluate tasks and yield each when it is written.

        Args:
            plan: The plan.
            tasks: The tasks, in the order of the plan.
            write: Writes the predictions of a task; called by one thread.
            tick: Called with the number of images that were evaluated by a model.
        """
        inputs, places = distinct_inputs(plan)
        workshop = Workshop.of(plan, inputs)
        jobs = cut(plan, tasks, places)
        first = next(jobs, None)
        if first is None:
            return
        with self._making(workshop, first) as make:
            yield from _Running(self, plan, tasks, write, tick).run(make, chain([first], jobs), places)

    def _making(self, workshop: Workshop, first: Job) -> Producers | ThreadProducers:
        if self.producers:
            try:
                return Producers(workshop, self.producers, first)
            except NoProducers as error:
                inform(f"images are made on threads of this process: {error}")
        return ThreadProducers(workshop, self.threads)


class _Running:
    """The state of one call of ``Pipeline.run``."""

    def __init__(
        self,
        pipeline: Pipeline,
        plan: Plan,
        tasks: Sequence[Task],
        write: Write,
        tick: Callable[[int], None],
    ) -> None:
        self._plan, self._tasks, self._write, self._tick = plan, tasks, write, tick
        self._pipeline, self._counts = pipeline, pipeline.counts
        self._halt = Halt()
        self._done: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._collected: dict[int, Collected] = {}
        self._models: list[Mapping[int, tuple[str, ...]]] = []
        self._finisher: Lane[Made | Answered] = Lane(self._finish, self._halt, ANSWERS_AHEAD)

    def run(self, make: Make, jobs: Iterator[Job], places: Mapping[str, int]) -> Iterator[Task]:
        self._models = [_by_input(task, places) for task in self._tasks]
        devices = self._pipeline.devices or (self._plan.models,)
        consumers = [Consumer(self._plan, models, self._finisher.put) for models in devices]
        lanes = [Lane(consumer, self._halt, BATCHES_AHEAD) for consumer in consumers]
        batcher = Batcher(self._models, self._pipeline.batch)
        start = time.perf_counter()
        try:
            turn = 0
            for made in self._arriving(make(jobs)):
                for batch in batcher.add(made):
                    lanes[turn % len(lanes)].put(batch)
                    turn += 1
                yield from self._written()
            for batch in batcher.rest():
                lanes[turn % len(lanes)].put(batch)
                turn += 1
            for lane in lanes:
                lane.put(None)
                lane.join()
            self._finisher.put(None)
            self._finisher.join()
            if self._halt.failure is not None:
                raise self._halt.failure
            yield from self._written()
        except BaseException as error:
            self._halt.fail(error)
            raise self._halt.failure or error from None
        finally:
            self._halt.event.set()
            for consumer in consumers:
                self._counts.add(consumer.counts)
            self._counts.seconds += time.perf_counter() - start

    def _arriving(self, messages: Iterator[Sequence[Made]]) -> Iterator[Made]:
        """Yield images that have not arrived before, and tell the finisher about them."""
        arrived: set[tuple[int, int]] = set()
        for images in messages:
            for made in images:
                if (made.task, made.index) in arrived:
                    self._counts.repeated += 1
                    continue
                arrived.add((made.task, made.index))
                self._counts.images += 1
                about = tuple(given if isinstance(given, str) else None for given in made.inputs)
                self._finisher.put(replace(made, inputs=about))  # type: ignore[arg-type]
                yield made

    def _finish(self, value: Made | Answered | None) -> None:
        """Handle what arrives at the finisher."""
        if isinstance(value, Made):
            models = list(self._models[value.task].values())
            self._of(value.task).note(value, models)
            self._end(value.task)
        elif value is not None:
            rows: dict[int, list[int]] = {}
            for row, (task, _) in enumerate(value.places):
                rows.setdefault(task, []).append(row)
            for task, positions in rows.items():
                self._of(task).add(value, positions)
                self._end(task)
            self._tick(len(value.places))

    def _of(self, task: int) -> Collected:
        if task not in self._collected:
            self._collected[task] = Collected(self._plan, self._tasks[task])
        return self._collected[task]

    def _end(self, task: int) -> None:
        if self._collected[task].is_complete:
            collected = self._collected.pop(task)
            self._write(self._tasks[task], collected.predictions())
            self._done.put(self._tasks[task])

    def _written(self) -> Iterator[Task]:
        while not self._done.empty():
            yield self._done.get()


def _by_input(task: Task, places: Mapping[str, int]) -> dict[int, tuple[str, ...]]:
    """Return the models of a task by their input, in the order of the inputs of its images."""
    numbers = sorted({places[name] for name in task.models})
    return {number: tuple(name for name in task.models if places[name] == number) for number in numbers}
