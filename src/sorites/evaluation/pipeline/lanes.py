"""Threads that pass values on through bounded queues; the first failure stops all of them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from sorites.evaluation.engines.interrupts import Stopped, watch_stop

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

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


class Handler(Protocol[T_contra]):
    """Handles the values of a lane."""

    def __call__(self, value: T_contra | None, /) -> None:
        """Handle a value; None follows after the last."""

    def wait(self) -> None:
        """Finish what was begun; called if no value is waiting."""


class Lane(Generic[T]):
    """One or several threads that handle values, in the order in which they were put.

    Args:
        handlers: Each is called by a thread of its own; whichever is free takes the next value.
        halt: Shared by all lanes.
        capacity: The number of values that may wait.
    """

    def __init__(self, handlers: Sequence[Handler[T]], halt: Halt, capacity: int) -> None:
        self._halt = halt
        self._queue: queue.Queue[T | None] = queue.Queue(capacity)
        self._threads = [
            threading.Thread(target=self._run, args=(handler,), daemon=True) for handler in handlers
        ]
        for thread in self._threads:
            thread.start()

    def put(self, value: T | None) -> None:
        """Add a value, waiting for room.

        Raises:
            BaseException: The failure of any lane.
        """
        while True:
            self._halt.check()
            try:
                return self._queue.put(value, timeout=POLL_SECONDS)
            except queue.Full:
                continue

    def close(self) -> None:
        """End the lane after what was put, and wait until it has handled everything or has stopped."""
        for _ in self._threads:
            self.put(None)
        for thread in self._threads:
            while thread.is_alive():
                thread.join(POLL_SECONDS)

    def _run(self, handler: Handler[T]) -> None:
        watch_stop(self._halt.event)
        try:
            while True:
                value = self._get(handler)
                handler(value)
                if value is None:
                    return
        except BaseException as error:  # also interrupts; the thread that started the lane raises it
            self._halt.fail(error)

    def _get(self, handler: Handler[T]) -> T | None:
        try:
            self._halt.check()
            return self._queue.get_nowait()
        except queue.Empty:
            handler.wait()
        while True:
            self._halt.check()
            try:
                return self._queue.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
