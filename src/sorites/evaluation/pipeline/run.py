"""Run tasks as a pipeline: producers make images, a consumer per device evaluates them, a finisher writes
their rows.

All threads and processes of a run work at once, bounded by queues. The result of a task does not depend on
the number of producers, on the order in which images arrive, or on the tasks beside it in a batch.
"""

from __future__ import annotations

import contextlib
import queue
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from sorites.core import Model
from sorites.core.errors import inform
from sorites.evaluation.pipeline.batches import Batch, Batcher, Buffers
from sorites.evaluation.pipeline.consume import Consumer, Counts
from sorites.evaluation.pipeline.finish import Answered, Collected
from sorites.evaluation.pipeline.jobs import Job, Made, Part, Workshop, cut, distinct_inputs
from sorites.evaluation.pipeline.lanes import Halt, Lane
from sorites.evaluation.pipeline.producers import NoProducers, Producers, ThreadProducers
from sorites.evaluation.pipeline.stages import Grid, Stage, Write
from sorites.evaluation.plan import Plan
from sorites.evaluation.worker import Task

# Batches that wait for a device: one is filled while another is evaluated.
BATCHES_AHEAD = 2
# Messages that wait for the finisher.
ANSWERS_AHEAD = 64

Make = Callable[[Iterator[Job]], Iterator[Sequence[Made]]]
Tick = Callable[[int], None]


def _no_tick(n: int) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Pipeline:
    """Settings of a pipeline.

    Attributes:
        producers: The number of processes that make images; 0 uses threads of this process.
        batch: Images per forward pass.
        devices: The models of each device by name; default: the models of the plan.
        threads: The number of threads that make images if there are no producers.
        counts: Counts what was done.
    """

    producers: int
    batch: int
    devices: Sequence[Mapping[str, Model]] = ()
    threads: int = 2
    counts: Counts = field(default_factory=Counts)

    def run(self, plan: Plan, tasks: Sequence[Task], write: Write, tick: Tick = _no_tick) -> Iterator[Task]:
        """Evaluate tasks of the grid and yield each when it is written.

        Args:
            plan: The plan.
            tasks: The tasks, in the order of the plan.
            write: Writes the predictions of a task; called by one thread.
            tick: Called with the number of images that were evaluated by a model.
        """
        with self.open(plan) as session:
            yield from session.run(Grid(plan, write), tasks, tick)

    def session(self, plan: Plan) -> Session:
        """Start a session whose producers end when nobody refers to it any more, or with this process."""
        stack = contextlib.ExitStack()
        session = Session(self, plan, stack)
        weakref.finalize(session, stack.close)
        return session

    @contextlib.contextmanager
    def open(self, plan: Plan) -> Iterator[Session]:
        """Start a session, in which several stages use the same producers."""
        with contextlib.ExitStack() as stack:
            yield Session(self, plan, stack)


class Session:
    """Producers and devices that are ready for tasks; made by ``Pipeline.open``.

    Args:
        pipeline: How tasks are run.
        plan: The plan, which decides what producers make.
        stack: Ends the producers.
    """

    def __init__(self, pipeline: Pipeline, plan: Plan, stack: contextlib.ExitStack) -> None:
        self._pipeline, self._stack = pipeline, stack
        self._inputs, self._places = distinct_inputs(plan)
        self._workshop = Workshop.of(plan, self._inputs)
        self._make: Producers | ThreadProducers | None = None
        self._buffers = Buffers()

    def run(self, stage: Stage, tasks: Sequence[Task], tick: Tick = _no_tick) -> Iterator[Task]:
        """Evaluate tasks and yield each when the stage has finished it.

        Args:
            stage: What is evaluated.
            tasks: The tasks, with all shifts of a range of samples in a row, as ``Plan.units`` returns them.
            tick: Called with the number of images that were evaluated by a model.
        """
        jobs = cut(self._parts(stage, tasks))
        first = next(jobs, None)
        if first is None:
            return
        make = self._make = self._make or self._started(first)
        running = _Running(self._pipeline, stage, tasks, tick, self._buffers)
        models = [_by_input(task, self._places) for task in tasks]
        yield from running.run(make, chain([first], jobs), models)
        self._pipeline.counts.repeated = make.repeated

    def _started(self, first: Job) -> Producers | ThreadProducers:
        making = self._producers(first)
        self._stack.callback(making.__exit__)
        return making

    def _parts(self, stage: Stage, tasks: Iterable[Task]) -> Iterator[tuple[int, Part]]:
        for number, task in enumerate(tasks):
            inputs = tuple(sorted({self._places[name] for name in task.models}))
            yield task.unit.start, stage.part(number, task, inputs)

    def _producers(self, first: Job) -> Producers | ThreadProducers:
        if self._pipeline.producers:
            try:
                return Producers(self._workshop, self._pipeline.producers, first)
            except NoProducers as error:
                inform(f"images are made on threads of this process: {error}")
        return ThreadProducers(self._workshop, self._pipeline.threads)


class _Finisher:
    """Collects what arrives about each task, and finishes complete tasks."""

    def __init__(
        self, stage: Stage, tasks: Sequence[Task], models: Sequence[Mapping[int, tuple[str, ...]]], tick: Tick
    ) -> None:
        self._stage, self._tasks, self._models, self._tick = stage, tasks, models, tick
        self._collected: dict[int, Collected] = {}
        self.done: queue.SimpleQueue[Task] = queue.SimpleQueue()

    def __call__(self, value: Made | Answered | None) -> None:
        """Handle an image or answers to a batch."""
        if isinstance(value, Made):
            self._of(value.task).note(value, list(self._models[value.task].values()))
            self._end(value.task)
        elif value is not None:
            rows: dict[int, list[int]] = {}
            for row, (task, _) in enumerate(value.places):
                rows.setdefault(task, []).append(row)
            for task, positions in rows.items():
                self._of(task).add(value, positions)
                self._end(task)
            self._tick(len(value.places))

    def wait(self) -> None:
        """Do nothing: each value is handled at once."""

    def _of(self, task: int) -> Collected:
        if task not in self._collected:
            this = self._tasks[task]
            self._collected[task] = Collected(self._stage.shots(this), this.models)
        return self._collected[task]

    def _end(self, task: int) -> None:
        if self._collected[task].is_complete:
            self._stage.finish(self._tasks[task], self._collected.pop(task))
            self.done.put(self._tasks[task])

    def written(self) -> Iterator[Task]:
        """Yield the tasks that were finished since the last call."""
        while not self.done.empty():
            yield self.done.get()


class _Running:
    """The state of one call of ``Session.run``."""

    def __init__(
        self, pipeline: Pipeline, stage: Stage, tasks: Sequence[Task], tick: Tick, buffers: Buffers
    ) -> None:
        self._pipeline, self._stage, self._tasks, self._tick = pipeline, stage, tasks, tick
        self._buffers, self._counts = buffers, pipeline.counts

    def run(
        self, make: Make, jobs: Iterator[Job], models: Sequence[Mapping[int, tuple[str, ...]]]
    ) -> Iterator[Task]:
        halt = Halt()
        finisher = _Finisher(self._stage, self._tasks, models, self._tick)
        finishing: Lane[Made | Answered] = Lane([finisher], halt, ANSWERS_AHEAD)
        devices = self._pipeline.devices or (self._stage.plan.models,)
        consumers = [Consumer(self._stage, loaded, finishing.put) for loaded in devices]
        evaluating: Lane[Batch] = Lane(consumers, halt, BATCHES_AHEAD * len(consumers))
        batcher = Batcher(models, self._pipeline.batch, self._buffers)
        start, end = None, None
        try:
            for made in self._arriving(make(jobs), finishing):
                start = start or time.perf_counter()
                for batch in batcher.add(made):
                    evaluating.put(batch)
                yield from finisher.written()
            for batch in batcher.rest():
                evaluating.put(batch)
            evaluating.close()
            end = time.perf_counter()
            finishing.close()
            if halt.failure is not None:
                raise halt.failure
            yield from finisher.written()
        except BaseException as error:
            halt.fail(error)
            raise halt.failure or error from None
        finally:
            halt.event.set()
            end = end or time.perf_counter()
            for consumer in consumers:
                self._counts.add(replace(consumer.counts, seconds=end - (start or end)))

    def _arriving(
        self, messages: Iterator[Sequence[Made]], finishing: Lane[Made | Answered]
    ) -> Iterator[Made]:
        """Yield images, and tell the finisher about them."""
        for images in messages:
            for made in images:
                self._counts.images += 1
                self._counts.decoded += made.decoded
                about = tuple(given if isinstance(given, str) else None for given in made.inputs)
                finishing.put(replace(made, inputs=about))  # type: ignore[arg-type]
                yield made


def _by_input(task: Task, places: Mapping[str, int]) -> dict[int, tuple[str, ...]]:
    """Return the models of a task by their input, in the order of the inputs of its images."""
    numbers = sorted({places[name] for name in task.models})
    return {number: tuple(name for name in task.models if places[name] == number) for number in numbers}
