"""Engines run units of work.

An engine does a function of one unit on many units and yields each with its result, in any order.

Engines know nothing of plans, run folders or models: a unit is any value, and for an engine of
several processes one that pickles, as must the function and its results.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sorites.core.registry import Registry
from sorites.evaluation.engines.interrupts import hear_once

# (units, work, workers) to pairs of a unit and what ``work`` returned for it.
Start = Callable[[Sequence[Any], Callable[[Any], Any], int], Iterator[tuple[Any, Any]]]


@dataclass(frozen=True)
class Engine:
    """A way to run units. ``one_process`` engines can use objects that live in the process that
    started them.
    """

    start: Start
    one_process: bool
    name: str = ""
    cores: Callable[[], int] = lambda: os.cpu_count() or 1
    """Returns the number of units that run at a time unless one is given."""

    def __call__(
        self, units: Sequence[Any], work: Callable[[Any], Any], workers: int
    ) -> Iterator[tuple[Any, Any]]:
        hear_once()
        return self.start(units, work, workers)


ENGINES: Registry[Engine] = Registry("engine", "sorites.evaluation.engines.builtin")
