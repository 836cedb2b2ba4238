"""Progress bars on stderr: for people, and out of the way of what is piped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tick = Callable[[int], None]
Bar = Callable[[str, int], Tick]
"""Opens a bar of so many steps and gives the function that advances it."""


def noted(bar: Bar, opened: list[str]) -> Bar:
    """The same bars; what each was opened for is kept in ``opened``, which stays empty where there was nothing to do."""

    def open_(what: str, steps: int) -> Tick:
        opened.append(what)
        return bar(what, steps)

    return open_


@contextmanager
def bars() -> Iterator[Bar]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<11}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:

        def bar(what: str, steps: int) -> Tick:
            task = progress.add_task(what, total=steps)
            return lambda n: progress.advance(task, n)

        yield bar
