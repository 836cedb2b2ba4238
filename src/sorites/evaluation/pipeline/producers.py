"""Producers: processes that make images, and hand them over in shared memory.

Threads of one interpreter make about 2,000 images per second on any number of cores, because a quarter of the
work holds the interpreter lock; a GPU evaluates more. Each producer has a pipe and some slots of shared
memory. It fills a slot, sends a description, and continues with the next slot; the parent returns a slot when
it has copied the images. A producer that runs out of slots waits, which bounds the memory.

A producer that dies is replaced, and its jobs are made again. The images of a job that had arrived are then
dropped; they are equal, because randomness belongs to the sample.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait

from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.evaluation.engines.interrupts import watch_stop
from sorites.evaluation.pipeline.jobs import Job, Made, Workshop
from sorites.evaluation.pipeline.producer import PROGRAM, Start
from sorites.evaluation.pipeline.slots import IMAGES_PER_MESSAGE, Message, Slots
from sorites.io.decode import max_pixels

# Jobs that are sent to a producer in advance, so that it never waits for the next.
JOBS_AHEAD = 2
# How often a job may end its producer before that is an error.
MAX_DEATHS = 3
# Seconds between two looks at the producers if nothing arrives.
POLL_SECONDS = 0.1


@dataclass(eq=False)
class _Worker:
    """A producer as the parent sees it."""

    process: subprocess.Popen[bytes]
    pipe: Connection
    slots: Slots
    jobs: dict[int, Job] = field(default_factory=dict)
    sent: Counter[int] = field(default_factory=Counter)
    """The number of images of each job that arrived from this process."""
    ready: bool = False

    def close(self) -> None:
        self.pipe.close()
        self.process.kill()  # it has no state
        self.process.wait()
        self.slots.close()


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
        if os.name == "nt":
            raise NoProducers("Windows cannot pass memory to another process in the way that is used here")
        try:
            self._start_message = pickle.dumps(Start(workshop, max_pixels(), first))
        except Exception as error:  # pickle raises many kinds of errors
            raise NoProducers(f"{type(error).__name__}: {error}") from error
        self._deaths: Counter[int] = Counter()
        self._arrived: Counter[int] = Counter()
        self.repeated = 0
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
        """Yield the images of jobs as they are made, each once.

        The arrays are views of shared memory: they are overwritten when the next images are requested.
        """
        waiting: deque[Job] = deque()
        self._deaths.clear()
        self._arrived.clear()
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
                worker.jobs[job.number], worker.sent[job.number] = job, 0
                self._send(worker, job)
        return True

    def _send(self, worker: _Worker, message: Job | int) -> None:
        try:
            worker.pipe.send(message)
        except OSError:  # it has died, which the next look at its pipe shows
            return
        except Exception as error:  # a sample that cannot be pickled
            raise NoProducers(_without(f"{type(error).__name__}: {error}")) from error

    def _handle(self, worker: _Worker, message: str | Message) -> Iterator[Sequence[Made]]:
        if isinstance(message, str):
            if message:
                raise NoProducers(_without(message) if worker.ready else message)
            worker.ready = True
        elif message.images:
            if images := self._new(worker, message):
                yield images
            if message.slot is not None:
                self._send(worker, message.slot)
        else:
            worker.jobs.pop(message.job)
            self._arrived.pop(message.job, None)

    def _new(self, worker: _Worker, message: Message) -> Sequence[Made]:
        """Return the images of a message that have not arrived before; those of a job have a fixed order."""
        images, job = message.restored(worker.slots), message.job
        known = max(0, min(len(images), self._arrived[job] - worker.sent[job]))
        worker.sent[job] += len(images)
        self._arrived[job] = max(self._arrived[job], worker.sent[job])
        self.repeated += known
        return images[known:]

    def _start(self) -> _Worker:
        here, there = Pipe()
        slots = Slots()
        files = (there.fileno(), slots.file)
        command = [sys.executable, "-c", PROGRAM, json.dumps(sys.path), *map(str, files)]
        # In a session of its own, Ctrl-C in the terminal does not reach it.
        process = subprocess.Popen(command, pass_fds=files, stdin=subprocess.DEVNULL, start_new_session=True)
        there.close()
        worker = _Worker(process, here, slots)
        with contextlib.suppress(OSError):  # it has died, which the next look at its pipe shows
            here.send_bytes(self._start_message)
        return worker

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


def _without(why: str) -> str:
    return f"{why}. Finished work is kept; repeat the command with {option('producers', 0)}."


# On threads of this process, for samples and plug-ins that exist only here.


class ThreadProducers:
    """Threads that make the images of jobs; use it in a ``with`` block.

    Args:
        workshop: What they need to make images.
        count: The number of threads.
    """

    def __init__(self, workshop: Workshop, count: int) -> None:
        self._workshop, self._count = workshop, count
        self.repeated = 0
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
