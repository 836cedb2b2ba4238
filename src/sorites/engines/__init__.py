"""Where units of work run. An engine takes units and a function of one unit, and yields each unit once it is done, in any order.

Engines know nothing of plans, run folders or models: a unit is any value, and for engines of several processes one that pickles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from sorites.registry import Registry

Unit = TypeVar("Unit")


class Engine(Protocol):
    """Do ``work`` on every unit, ``workers`` of them at a time."""

    def __call__(self, units: Sequence[Unit], work: Callable[[Unit], None], workers: int) -> Iterator[Unit]: ...


ENGINES: Registry[Engine] = Registry("engine", "sorites.engines.local")
