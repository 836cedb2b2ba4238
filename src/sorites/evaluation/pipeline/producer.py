"""A producer: a process that makes the images of jobs.

It is started as a program of its own. It does not import the script that the user started, which may start a
run itself.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from multiprocessing.connection import Connection

from sorites.evaluation.pipeline.jobs import Job, Workshop
from sorites.evaluation.pipeline.slots import SLOTS, Filling, Message, Slots
from sorites.io.decode import allow_pixels

# Run by the interpreter in a new process, with the module search path and two file descriptors as arguments.
PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    " from sorites.evaluation.pipeline.producer import main; main()"
)
# Seconds between two looks at whether the parent is still there.
PARENT_SECONDS = 1.0


@dataclass(frozen=True)
class Start:
    """The first message to a producer.

    Attributes:
        workshop: What it needs to make images.
        pixels: The largest number of pixels of an image.
        first: A job, to find out whether jobs can be read in this process.
    """

    workshop: Workshop
    pixels: int
    first: Job


def main() -> None:
    """Receive jobs and free slots from the parent, and send it images."""
    pipe, file = Connection(int(sys.argv[2])), int(sys.argv[3])
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    try:
        start: Start = pipe.recv()
        allow_pixels(start.pixels)
        start.workshop.shifts()  # fails now if a plug-in does not exist in this process
    except Exception as error:  # what was pickled may not exist here, or fail while it is imported
        pipe.send(f"{type(error).__name__}: {error}")
        return
    pipe.send("")
    _Producer(pipe, Slots(file), start.workshop).run()


def _end_with_parent(parent: int) -> None:
    """End this process when its parent has ended, even if it is busy with an image."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


class _Producer:
    def __init__(self, pipe: Connection, slots: Slots, workshop: Workshop) -> None:
        self._pipe, self._workshop, self._slots = pipe, workshop, slots
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

    def _receive(self) -> None:
        try:
            message = self._pipe.recv()
        except (EOFError, OSError):
            raise
        except Exception as error:  # a sample that cannot be read here
            self._pipe.send(f"{type(error).__name__}: {error}")
            raise EOFError from error
        if isinstance(message, Job):
            self._jobs.append(message)
        else:
            self._free.append(message)

    def _make(self, job: Job) -> None:
        filling = Filling(job.number)
        for made in self._workshop.make(job):
            if filling.is_full(made):
                self._pipe.send(filling.message())
                filling = Filling(job.number)
            if filling.slot is None and made.inputs:
                filling.slot = self._free_slot()
            filling.add(made, self._slots.memory)
        if filling.images:
            self._pipe.send(filling.message())
        self._pipe.send(Message(job.number))

    def _free_slot(self) -> int:
        while not self._free:
            self._receive()
        return self._free.popleft()
