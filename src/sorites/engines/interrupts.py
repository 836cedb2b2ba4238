"""Ending work early: threads look between pictures whether they are asked to leave, and Ctrl-C asks them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

CODE = 130
"""The exit code of Ctrl-C."""
GRACE = 3.0
"""Seconds that work has to leave in order; a further Ctrl-C after that ends the process where it stands."""

_here = threading.local()


class Left(BaseException):
    """Work was left unfinished because that was asked; no handler of errors keeps it."""


def heed(asked: threading.Event) -> None:
    """From now on this thread leaves its work when ``asked`` is set: what an engine's thread begins with."""
    _here.asked = asked


def leave_if_asked() -> None:
    """Between two pictures: end this thread's piece of work if its engine asked for that."""
    asked = getattr(_here, "asked", None)
    if asked is not None and asked.is_set():
        raise Left


@contextlib.contextmanager
def announced() -> Iterator[None]:
    """The first Ctrl-C says at once that it was heard, and interrupts; files appear whole, so that a late one may end all.
    Once interrupted, the process only has to exit: no further one disturbs that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    first: list[float] = []

    def heard(number: int, frame: FrameType | None) -> None:
        if not first:
            first.append(time.monotonic())
            with contextlib.suppress(OSError, RuntimeError, ValueError):
                print("stopping; what is finished is kept", file=sys.stderr, flush=True)
            raise KeyboardInterrupt
        if time.monotonic() - first[0] > GRACE:
            os._exit(CODE)

    before = signal.signal(signal.SIGINT, heard)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN if first else before)
