"""Producers: processes that make images, and hand them over in shared memory.

Threads of one interpreter make about 2,000 images per second on any number of cores, because a quarter of the
work holds the interpreter lock; a GPU evaluates more. Each producer has a pipe and some slots of shared
memory. It fills a slot, sends a description, and continues with the next slot; the parent returns a slot when
it has copied the images. A producer that runs out of slots waits, which bounds the memory.

A producer that dies is replaced, and its jobs are made again. Images that arrive twice are dropped by the
receiver; they are equal, because randomness belongs to the sample.
"""

from __future__ import annotations

import multiprocessing
import pickle
import queue
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.evaluation.engines.interrupts import watch_stop
from sorites.evaluation.engines.local import end_with_parent
from sorites.evaluation.pipeline.jobs import Job, Made, Workshop
from sorites.io.decode import allow_pixels, max_pixels

# Bytes of shared memory per slot; larger images are sent through the pipe.
SLOT_BYTES = 8 << 20
# Slots per producer: one is filled while others are copied.
SLOTS = 4
# Jobs that are sent to a producer in advance, so that it never waits for the next.
JOBS_AHEAD = 2
# Images per message at most; the receiver handles messages one at a time.
IMAGES_PER_MESSAGE = 64
# How often a job may end its producer before that is an error.
MAX_DEATHS = 3
# Seconds between two looks at the producers if nothing arrives.
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class _Stored:
    """An array in a slot."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class _Message:
    """Images of a job; their arrays are in a slot, or inline if they do not fit. Without images, the job is
    done.
    """

    job: int
    slot: int | None = None
    images: tuple[Made, ...] = ()


# In a producer.


def _work(pipe: Connection, memory: str, pixels: int) -> None:
    """Run a producer: receive jobs and free slots, and send images."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal
    threading.Thread(target=end_with_parent, daemon=True).start()
    allow_pixels(pixels)
    try:
        producer = _Producer(pipe, memory, pipe.recv())
    except Exception as error:  # a plug-in may not exist here, or fail while it is imported
        pipe.send(f"{type(error).__name__}: {error}")
        return
    pipe.send("")
    producer.run()


class _Producer:
    def __init__(self, pipe: Connection, memory: str, workshop: Workshop) -> None:
        workshop.shifts()  # fails now if a plug-in does not exist in this process
        self._pipe, self._workshop = pipe, workshop
        self._memory = SharedMemory(memory)
        self._free = deque(range(SLOTS))
        self._jobs: deque[Job] = deque()

    def run(self) -> None:
        """Make jobs until the parent closes the pipe."""
        try:
            while True:
                while not self._jobs:
                    self._receive()
                self._make(self._jobs.popleft())
        except (EOFError, OSError):
            return
        finally:
            self._memory.close()

    def _receive(self) -> None:
        message = self._pipe.recv()
        if isinstance(message, Job):
            self._jobs.append(message)
        else:
            self._free.append(message)

    def _make(self, job: Job) -> None:
        filling = _Filling(job.number)
        for made in self._workshop.make(job):
            if filling.is_full(made):
                self._send(filling)
                filling = _Filling(job.number)
            if filling.slot is None and made.inputs:
                filling.slot = self._free_slot()
            filling.add(made, _bytes_of(self._memory))
        self._send(filling)
        self._pipe.send(_Message(job.number))

    def _free_slot(self) -> int:
        while not self._free:
            self._receive()
        return self._free.popleft()

    def _send(self, filling: _Filling) -> None:
        if filling.images:
            self._pipe.send(_Message(filling.job, filling.slot, tuple(filling.images)))


@dataclass
class _Filling:
    """A message that is being filled."""

    job: int
    slot: int | None = None
    used: int = 0
    images: list[Made] = field(default_factory=list)

    def is_full(self, made: Made) -> bool:
        """Return whether an image belongs into the next message."""
        size = _size(made)
        fits = self.used + size <= SLOT_BYTES or size > SLOT_BYTES
        return bool(self.images) and (not fits or len(self.images) >= IMAGES_PER_MESSAGE)

    def add(self, made: Made, memory: memoryview) -> None:
        """Copy the arrays of an image into the slot."""
        inputs = made.inputs
        if _size(made) <= SLOT_BYTES:
            inputs = tuple(self._store(array, memory) for array in made.inputs)
        self.images.append(replace(made, inputs=inputs))

    def _store(self, array: Any, memory: memoryview) -> Any:
        if not isinstance(array, np.ndarray):
            return array
        assert self.slot is not None
        stored = _Stored(self.slot * SLOT_BYTES + self.used, array.shape, array.dtype.str)
        _view(stored, memory)[...] = array
        self.used += array.nbytes
        return stored


def _size(made: Made) -> int:
    return sum(array.nbytes for array in made.inputs if isinstance(array, np.ndarray))


def _bytes_of(memory: SharedMemory) -> memoryview:
    assert memory.buf is not None  # only after it was closed
    return memory.buf


def _view(stored: _Stored, memory: memoryview) -> NDArray[Any]:
    return np.ndarray(stored.shape, np.dtype(stored.dtype), memory, stored.offset)


# In the parent.


@dataclass(eq=False)
class _Worker:
    """A producer as the parent sees it."""

    process: Any
    pipe: Connection
    memory: SharedMemory
    jobs: dict[int, Job] = field(default_factory=dict)
    ready: bool = False

    def close(self) -> None:
        self.pipe.close()
        if self.process.is_alive():
            self.process.terminate()
        self.process.join()
        self.memory.close()
        self.memory.unlink()


class NoProducers(SoritesError):
    """The images of a run cannot be made in other processes."""

    code = "no_producers"


class Producers:
    """Processes that make the images of jobs; use it in a ``with`` block.

    Args:
        workshop: What they need to make images.
        count: The number of processes.
        first: A job, to find out whether jobs can be sent to other processes.

    Raises:
        NoProducers: What the images are made from cannot be sent to other processes or does not exist there.
    """

    def __init__(self, workshop: Workshop, count: int, first: Job) -> None:
        try:
            pickle.dumps((workshop, first))
        except Exception as error:  # pickle raises many kinds of errors
            raise NoProducers(f"{type(error).__name__}: {error}") from error
        self._workshop = workshop
        self._context = multiprocessing.get_context("spawn")
        self._deaths: Counter[int] = Counter()
        self._workers = [self._start() for _ in range(count)]
        try:
            for _ in self._handle(self._workers[0], self._workers[0].pipe.recv()):
                pass
        except (NoProducers, EOFError, OSError) as error:
            self.__exit__()
            raise NoProducers(str(error) or "a process that makes images ended at its start") from error

    def __enter__(self) -> Producers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.close()

    def __call__(self, jobs: Iterator[Job]) -> Iterator[Sequence[Made]]:
        """Yield the images of jobs as they are made.

        The arrays are views of shared memory: they are overwritten when the next images are requested. Images
        may arrive twice if a producer died.
        """
        waiting: deque[Job] = deque()
        left = True
        while left or waiting or any(worker.jobs for worker in self._workers):
            left = self._assign(jobs, waiting) if left or waiting else False
            pipes = {worker.pipe: worker for worker in self._workers}
            for pipe in wait(list(pipes), POLL_SECONDS):
                worker = pipes[pipe]  # type: ignore[index]
                try:
                    message = worker.pipe.recv()
                except (EOFError, OSError):
                    waiting.extendleft(reversed(self._replace(worker)))
                    continue
                yield from self._handle(worker, message)

    def _assign(self, jobs: Iterator[Job], waiting: deque[Job]) -> bool:
        """Give jobs to producers that have too few; return whether there may be more."""
        for worker in self._workers:
            while worker.ready and len(worker.jobs) < JOBS_AHEAD:
                job = waiting.popleft() if waiting else next(jobs, None)
                if job is None:
                    return False
                worker.jobs[job.number] = job
                self._send(worker, job)
        return True

    def _send(self, worker: _Worker, message: Job | int) -> None:
        try:
            worker.pipe.send(message)
        except OSError:  # it has died, which the next look at its pipe shows
            return
        except Exception as error:  # a sample that cannot be pickled
            raise NoProducers(f"{type(error).__name__}: {error}") from error

    def _handle(self, worker: _Worker, message: str | _Message) -> Iterator[Sequence[Made]]:
        if isinstance(message, str):
            if message:
                raise NoProducers(message)
            worker.ready = True
        elif message.images:
            yield [_restored(made, _bytes_of(worker.memory)) for made in message.images]
            if message.slot is not None:
                self._send(worker, message.slot)
        else:
            worker.jobs.pop(message.job)

    def _start(self) -> _Worker:
        here, there = self._context.Pipe()
        memory = SharedMemory(create=True, size=SLOTS * SLOT_BYTES)
        process = self._context.Process(target=_work, args=(there, memory.name, max_pixels()), daemon=True)
        process.start()
        there.close()
        here.send(self._workshop)
        return _Worker(process, here, memory)

    def _replace(self, worker: _Worker) -> list[Job]:
        """Replace a producer that died; return its jobs, which are made again."""
        jobs = list(worker.jobs.values())
        first = jobs[0].number if jobs else -1
        self._deaths[first] += 1
        if self._deaths[first] > MAX_DEATHS:
            raise SoritesError(
                f"a process that makes images ended {MAX_DEATHS + 1} times at the same images: it was killed,"
                " or it ran out of memory. Finished work is kept; repeat the command with fewer"
                f" {option('producers', None)}."
            )
        self._workers[self._workers.index(worker)] = self._start()
        worker.close()
        return jobs


def _restored(made: Made, memory: memoryview) -> Made:
    """Return an image with its arrays as views of shared memory."""
    inputs = (_view(array, memory) if isinstance(array, _Stored) else array for array in made.inputs)
    return replace(made, inputs=tuple(inputs))


# On threads of this process, for samples and plug-ins that exist only here.


class ThreadProducers:
    """Threads that make the images of jobs; use it in a ``with`` block.

    Args:
        workshop: What they need to make images.
        count: The number of threads.
    """

    def __init__(self, workshop: Workshop, count: int) -> None:
        self._workshop, self._count = workshop, count
        self._lock, self._stop = threading.Lock(), threading.Event()
        # Images, the failure of a thread, or None if a thread has ended.
        self._made: queue.Queue[Sequence[Made] | BaseException | None] = queue.Queue(2 * count)

    def __enter__(self) -> ThreadProducers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def __call__(self, jobs: Iterator[Job]) -> Iterator[Sequence[Made]]:
        """Yield the images of jobs as they are made; a bounded number of them waits."""
        for _ in range(self._count):
            threading.Thread(target=self._work, args=(jobs,), daemon=True).start()
        running = self._count
        while running:
            value = self._made.get()
            if isinstance(value, BaseException):
                raise value
            if value is None:
                running -= 1
            else:
                yield value

    def _work(self, jobs: Iterator[Job]) -> None:
        watch_stop(self._stop)
        try:
            while (job := self._next(jobs)) is not None:
                images = self._workshop.make(job)
                while chunk := list(islice(images, IMAGES_PER_MESSAGE)):
                    self._put(chunk)
            self._put(None)
        except BaseException as error:  # raised by the thread that waits for images
            self._put(error)

    def _next(self, jobs: Iterator[Job]) -> Job | None:
        with self._lock:
            return next(jobs, None)

    def _put(self, value: Sequence[Made] | BaseException | None) -> None:
        while not self._stop.is_set():
            try:
                return self._made.put(value, timeout=POLL_SECONDS)
            except queue.Full:
                continue
