"""Progress bars on stderr, so that stdout can be piped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
    with Progress(*columns, console=console()) as progress:

        def bar(what: str, steps: int) -> Tick:
            task = progress.add_task(what, total=steps)
            return lambda n: progress.advance(task, n)

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
    with Progress(*columns, console=console(), expand=True) as progress:

        def bar(what: str, steps: int, done: int) -> Callable[[int, str], None]:
            task = progress.add_task(what, total=steps, completed=done, words="")
            return lambda n, words: progress.update(task, advance=n, words=words)

        yield bar
