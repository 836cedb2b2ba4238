"""What a program is doing while it prints nothing else: loading a library, drawing a page.

A command line begins with ``telling_phases``; without it, as in a script, nothing is printed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

Say = Callable[[str], object]
# Seconds after which a phase is named, and after which it is named again.
FIRST_SECONDS = 3.0
AGAIN_SECONDS = 10.0


@dataclass
class _Phases:
    """Where to say what is done, and the innermost phase at the moment."""

    say: Say
    now: str = ""


_PHASES: ContextVar[_Phases | None] = ContextVar("phases", default=None)


@contextmanager
def telling_phases(say: Say) -> Iterator[None]:
    """Pass the names of long phases inside this context to ``say``."""
    token = _PHASES.set(_Phases(say))
    try:
        yield
    finally:
        _PHASES.reset(token)


@contextmanager
def phase(what: str) -> Iterator[None]:
    """Name what is being done if it takes long; inside another phase, in place of it.

    Args:
        what: What is being done: "loading timm:resnet18".
    """
    phases = _PHASES.get()
    if phases is None:
        yield
        return
    ended, outer = threading.Event(), phases.now
    phases.now = what
    watch = threading.Thread(target=_tell, args=(phases, what, ended), daemon=True)
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()
        phases.now = outer


def _tell(phases: _Phases, what: str, ended: threading.Event) -> None:
    started, patience = time.monotonic(), FIRST_SECONDS
    while not ended.wait(patience):
        if phases.now == what:
            phases.say(f"{what}: {time.monotonic() - started:.0f} s")
        patience = AGAIN_SECONDS
