"""Threads that pass values on through bounded queues; the first failure stops all of them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from sorites.evaluation.engines.interrupts import Stopped, watch_stop

T = TypeVar("T")

# Seconds between two checks for a failure while a queue is full or empty.
POLL_SECONDS = 0.1


class Halt:
    """A request to stop, with the first failure as its reason."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.failure: BaseException | None = None
        self._lock = threading.Lock()

    def fail(self, error: BaseException) -> None:
        """Stop all lanes because of an error; only the first one is kept."""
        with self._lock:
            if self.failure is None and not self.event.is_set():
                self.failure = error
        self.event.set()

    def check(self) -> None:
        """Raise the failure if there is one."""
        if self.event.is_set():
            raise self.failure or Stopped


class Lane(Generic[T]):
    """A thread that handles values one after another, in the order in which they were put.

    Args:
        handle: Called with each value, and with None after the last.
        halt: Shared by all lanes.
        capacity: The number of values that may wait.
    """

    def __init__(self, handle: Callable[[T | None], None], halt: Halt, capacity: int) -> None:
        self._handle, self._halt = handle, halt
        self._queue: queue.Queue[T | None] = queue.Queue(capacity)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, value: T | None) -> None:
        """Add a value, waiting for room; None ends the lane.

        Raises:
            BaseException: The failure of any lane.
        """
        while True:
            self._halt.check()
            try:
                return self._queue.put(value, timeout=POLL_SECONDS)
            except queue.Full:
                continue

    def join(self) -> None:
        """Wait until the lane has handled everything, or has stopped."""
        while self._thread.is_alive():
            self._thread.join(POLL_SECONDS)

    def _run(self) -> None:
        watch_stop(self._halt.event)
        try:
            while True:
                value = self._get()
                self._handle(value)
                if value is None:
                    return
        except BaseException as error:  # also interrupts; the thread that started the lane raises it
            self._halt.fail(error)

    def _get(self) -> T | None:
        while True:
            self._halt.check()
            try:
                return self._queue.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
