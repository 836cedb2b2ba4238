"""Progress on stderr, so that stdout can be piped: bars, and the names of long phases.

Phases are loading a library or drawing a page, for which nothing else is printed. A command line begins with
``telling_phases``; without it, as in a script, phases are not printed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from rich.console import Console

Tick = Callable[[int], None]
# Opens a bar by name and number of steps; returns the function that advances it.
Bar = Callable[[str, int], Tick]
# Opens a bar by name, number of steps and steps already done; returns the function that advances it and sets
# the text after it.
TextBar = Callable[[str, int, int], Callable[[int, str], None]]


def recording(bar: Bar, opened: list[str]) -> Bar:
    """Wrap ``bar`` so that it also appends the name of each opened bar to ``opened``."""

    def open_(what: str, steps: int) -> Tick:
        opened.append(what)
        return bar(what, steps)

    return open_


def calling_first(bar: Bar, tell: Callable[[], object]) -> Bar:
    """Wrap ``bar`` so that ``tell`` is called once, before the first bar is opened."""
    called: list[bool] = []

    def open_(what: str, steps: int) -> Tick:
        if not called:
            called.append(True)
            tell()
        return bar(what, steps)

    return open_


class _Tolerant:
    """A stream that drops what cannot be written: a full disk behind stderr must not stop the work."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def console() -> Console:
    """Return a console on stderr that prints text verbatim, without markup, emoji or highlighting."""
    from rich.console import Console

    stream = cast("TextIO", _Tolerant(sys.stderr))
    return Console(file=stream, markup=False, emoji=False, highlight=False)


# Seconds between two lines of progress where bars cannot be drawn: a file, a pipe, the log of a job.
LINE_SECONDS = 10.0


class _Lines:
    """Lines of progress for one bar, every ``LINE_SECONDS``; none on a terminal or in a notebook."""

    def __init__(self, screen: Console, what: str, steps: int, done: int = 0) -> None:
        self._screen, self._what, self._steps, self._done = screen, what, steps, done
        self._started = self._last = time.monotonic()
        self._lock = threading.Lock()
        self._drawn = screen.is_terminal or screen.is_jupyter

    def advance(self, n: int, words: str = "") -> None:
        """Count ``n`` steps, and print a line if the last one is old enough."""
        with self._lock:
            self._done += n
            now = time.monotonic()
            if self._drawn or now - self._last < LINE_SECONDS or self._done >= self._steps:
                return
            self._last = now
            seconds = f"{now - self._started:.0f} s"
            text = f"{self._what}: {self._done} of {self._steps} after {seconds}{words and f', {words}'}"
        self._screen.print(text, soft_wrap=True)


@contextmanager
def bars() -> Iterator[Bar]:
    """Yield a function that opens progress bars; they are drawn until the context ends."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:<11}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    screen = console()
    with Progress(*columns, console=screen) as progress:

        def bar(what: str, steps: int) -> Tick:
            task, lines = progress.add_task(what, total=steps), _Lines(screen, what, steps)

            def tick(n: int) -> None:
                progress.advance(task, n)
                lines.advance(n)

            return tick

        yield bar


@contextmanager
def bars_if_watched() -> Iterator[Bar | None]:
    """Yield the function of ``bars`` in a terminal or notebook, and None elsewhere."""
    screen = console()
    if not (screen.is_terminal or screen.is_jupyter):
        yield None
        return
    with bars() as bar:
        yield bar


@contextmanager
def text_bars() -> Iterator[TextBar]:
    """Yield a function that opens progress bars with text after them; they are drawn until the context
    ends.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    words = TextColumn("{task.fields[words]}", table_column=Column(ratio=1, no_wrap=True))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(10),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        words,
    )
    screen = console()
    with Progress(*columns, console=screen, expand=True) as progress:

        def bar(what: str, steps: int, done: int) -> Callable[[int, str], None]:
            task = progress.add_task(what, total=steps, completed=done, words="")
            lines = _Lines(screen, what, steps, done)

            def tick(n: int, words: str) -> None:
                progress.update(task, advance=n, words=words)
                lines.advance(n, words)

            return tick

        yield bar


Say = Callable[[str], object]
# Seconds after which a phase is named, and after which it is named again.
FIRST_SECONDS = 3.0
AGAIN_SECONDS = 10.0


@dataclass
class _Phases:
    """The listener to long phases, and the innermost phase at the moment."""

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
