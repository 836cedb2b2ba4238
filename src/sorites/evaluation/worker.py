"""The surroundings of a unit of work in its process: the plan of its run folder, loaded once, and
whom to tell about progress.

The process that starts a run shares its own plan, which may hold objects passed from Python. A
worker process makes the plan again from the run folder and the registries the first time one of its
units asks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sorites.core.errors import SoritesError
from sorites.evaluation.engines import ENGINES, Engine
from sorites.evaluation.plan import Plan, Unit
from sorites.evaluation.reopen import made_again, suite_of
from sorites.evaluation.resume import guard
from sorites.evaluation.storage.folder import (
    DATASET_INFO,
    read_dataset_info,
    read_info,
    read_manifest,
    same_run,
)
from sorites.evaluation.storage.record import describe

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """A unit of work with the models that have not done it: what engines pass around."""

    unit: Unit
    models: tuple[str, ...]


@dataclass
class Running:
    """A run under way in this process."""

    plan: Plan
    run_id: str
    tick: Callable[[int], None] = lambda n: None
    lock: threading.RLock = field(default_factory=threading.RLock)
    _kept: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[Plan], T]) -> T:
        """Return what ``make`` gives for the plan, made once per process and kept under ``name``."""
        with self.lock:
            if name not in self._kept:
                self._kept[name] = make(self.plan)
            kept: T = self._kept[name]
            return kept


_here: dict[Path, Running] = {}
_opening = threading.Lock()


@contextmanager
def lent(folder: Path, plan: Plan, run_id: str) -> Iterator[Running]:
    """Make a plan known to the units of a run folder while this process works on it."""
    running = _here[folder.resolve()] = Running(plan, run_id)
    try:
        yield running
    finally:
        del _here[folder.resolve()]


def running_in(folder: Path) -> Running:
    """Return the run that a unit belongs to, opened now if this process does not have it yet."""
    key = folder.resolve()
    with _opening:
        if key not in _here:
            _here[key] = _opened(key)
        return _here[key]


def _opened(folder: Path) -> Running:
    is_dataset = (folder / DATASET_INFO).exists()
    info = read_dataset_info(folder) if is_dataset else read_info(folder)
    plan = made_again(folder, info, suite_of(info))
    if not same_run(info, describe(plan), plan, wherever=not is_dataset):
        raise SoritesError(
            f"{folder} cannot be opened again as it was: its source, models or libraries changed meanwhile"
        )
    return Running(plan if is_dataset else guard(plan, read_manifest(folder)), info["run_id"])


def chosen_engine(asked: str | Engine, plan: Plan) -> Engine:
    """Look an engine up; one of several processes refuses what was passed from Python as an object,
    by name.
    """
    engine = ENGINES.get(asked) if isinstance(asked, str) else asked
    if plan.objects and not engine.one_process:
        raise SoritesError(
            f"the engine {engine.name} makes sources and models again in other processes, and cannot do that"
            f" with objects passed from Python: {', '.join(plan.objects)}. Name them by a spec, such as"
            " folder:PATH or python:module:name, or use the engine local."
        )
    return engine
