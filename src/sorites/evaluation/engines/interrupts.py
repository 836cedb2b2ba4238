"""Ending work early: threads look between images whether they are asked to leave, and Ctrl-C asks them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

# The exit code of Ctrl-C.
CODE = 130
# Seconds that output has to reach its place when the process is ended where it stands.
FLUSH = 1.0

# This says where ``struct sigaction`` keeps its flags, and the value of SA_RESETHAND, by system and
# bytes of a pointer.
_FLAGS = {("linux", 8): (136, 0x80000000), ("darwin", 8): (12, 4)}

_here = threading.local()
_announcing = threading.Event()


class Left(BaseException):
    """Work was left unfinished on request. It is no ``Exception``, so that no error handler swallows it."""


def heed(asked: threading.Event) -> None:
    """Make this thread leave its work once ``asked`` is set; every thread of an engine begins with
    this call.
    """
    _here.asked = asked


def leave_if_asked() -> None:
    """End this thread's piece of work if its engine asked for that; called between two images."""
    asked = getattr(_here, "asked", None)
    if asked is not None and asked.is_set():
        raise Left


@contextlib.contextmanager
def announced() -> Iterator[None]:
    """Let the first Ctrl-C say at once that it was heard, and interrupt; let the second end the
    process where it stands.

    Files appear whole or not at all, so that nothing is half done then.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    first: list[bool] = []

    def heard(number: int, frame: FrameType | None) -> None:
        first.append(True)
        signal.signal(signal.SIGINT, _end_now)
        hear_once()
        _say("stopping; what is finished is kept. Ctrl-C again ends at once")
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, heard)
    _announcing.set()
    try:
        yield
    finally:
        _announcing.clear()
        if not first:
            signal.signal(signal.SIGINT, before)


def hear_once() -> None:
    """Let the system itself end this process at the second Ctrl-C from now, where the command line
    announced what Ctrl-C does.

    Python runs its handler only when the main thread comes back from foreign code and gets the
    interpreter's lock: while a model hangs, perhaps never. So the system is told to forget the
    handler as soon as it was called. To be called before models are, because libraries put handlers
    of their own in front when they are imported.
    """
    where = _FLAGS.get((sys.platform, ctypes.sizeof(ctypes.c_void_p)))
    if where is None or not _announcing.is_set():
        return
    place, forget = where
    action = ctypes.create_string_buffer(256)
    system = ctypes.CDLL(None)
    if system.sigaction(int(signal.SIGINT), None, action) == 0:
        flags = ctypes.c_uint.from_buffer(action, place)
        flags.value |= forget
        system.sigaction(int(signal.SIGINT), action, None)


def _end_now(number: int, frame: FrameType | None) -> NoReturn:
    """End this process and the worker processes it started, whatever their threads do."""
    processes = sys.modules.get("multiprocessing")
    for worker in processes.active_children() if processes else ():
        with contextlib.suppress(Exception):
            worker.kill()
    last = threading.Thread(target=_say, args=("stopped; type the same command to go on",), daemon=True)
    last.start()
    last.join(FLUSH)
    os._exit(CODE)


def _say(what: str) -> None:
    """Print a line on stderr and flush both streams; one that is closed or busy is skipped."""
    with contextlib.suppress(Exception):
        print(what, file=sys.stderr, flush=True)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
