"""Stop work early: threads check between images whether to stop, and Ctrl-C asks them to."""

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

# Exit code after Ctrl-C.
CODE = 130
# Seconds to wait for output to be written when the process is ended immediately.
FLUSH_SECONDS = 1.0

# Offset of the flags in ``struct sigaction`` and the value of SA_RESETHAND, by platform and pointer size.
_FLAGS = {("linux", 8): (136, 0x80000000), ("darwin", 8): (12, 4)}

_local = threading.local()
_announcing = threading.Event()


class Stopped(BaseException):
    """Work was stopped on request. Not an ``Exception``, so that no error handler swallows it."""


def watch_stop(stop_requested: threading.Event) -> None:
    """Make this thread stop its work once ``stop_requested`` is set.

    Every thread of an engine starts with this call.
    """
    _local.stop_requested = stop_requested


def stop_if_requested() -> None:
    """Stop this thread's task if its engine requested it; called between two images."""
    stop_requested = getattr(_local, "stop_requested", None)
    if stop_requested is not None and stop_requested.is_set():
        raise Stopped


@contextlib.contextmanager
def handle_interrupts() -> Iterator[None]:
    """Make the first Ctrl-C print a message and interrupt, and the second end the process immediately.

    Files are written atomically, so nothing is left half-written.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    first: list[bool] = []

    def handle(number: int, frame: FrameType | None) -> None:
        first.append(True)
        signal.signal(signal.SIGINT, _end_now)
        arm_second_interrupt()
        _say("stopping; finished work is kept. Press Ctrl-C again to end immediately")
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    _announcing.set()
    try:
        yield
    finally:
        _announcing.clear()
        if not first:
            signal.signal(signal.SIGINT, before)


def arm_second_interrupt() -> None:
    """Make the operating system end this process at the second Ctrl-C, inside
    ``handle_interrupts``.

    Python runs its handler only when the main thread returns from foreign code and gets the interpreter lock,
    which may never happen while a model hangs. Therefore the system is told to reset the handler after its
    first call. Call this before models run, because libraries install their own handlers when they are
    imported.
    """
    # The standard library has no way to set SA_RESETHAND: everything it offers (a handler, a thread behind
    # ``signal.set_wakeup_fd``, ``signal.sigwait``) needs the interpreter lock to act, and a model that hangs
    # with the lock would never be ended. The case "lock" of
    # test_the_second_interrupt_ends_a_hanging_model_and_its_workers fails without this call.
    layout = _FLAGS.get((sys.platform, ctypes.sizeof(ctypes.c_void_p)))
    if layout is None or not _announcing.is_set():
        return
    offset, reset_flag = layout
    action = ctypes.create_string_buffer(256)
    system = ctypes.CDLL(None)
    if system.sigaction(int(signal.SIGINT), None, action) == 0:
        flags = ctypes.c_uint.from_buffer(action, offset)
        flags.value |= reset_flag
        system.sigaction(int(signal.SIGINT), action, None)


def _end_now(number: int, frame: FrameType | None) -> NoReturn:
    """End this process and its worker processes, whatever their threads do."""
    processes = sys.modules.get("multiprocessing")
    for worker in processes.active_children() if processes else ():
        with contextlib.suppress(Exception):
            worker.kill()
    last = threading.Thread(target=_say, args=("stopped; repeat the command to resume",), daemon=True)
    last.start()
    last.join(FLUSH_SECONDS)
    os._exit(CODE)


def _say(what: str) -> None:
    """Print a line to stderr and flush both streams; a closed or busy stream is skipped."""
    with contextlib.suppress(Exception):
        print(what, file=sys.stderr, flush=True)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
