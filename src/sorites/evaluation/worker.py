"""Per-process run context: the loaded plan and the progress callback.

The process that starts a run shares its plan, which may contain objects passed from Python. A worker process
recreates the plan from the run folder and the registries when its first task needs it.
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
from sorites.evaluation.reopen import recreate_plan, suite_of
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
    """A slice and the models that have not evaluated it; what engines pass around."""

    unit: Unit
    models: tuple[str, ...]


@dataclass
class Running:
    """A run in progress in this process."""

    plan: Plan
    run_id: str
    tick: Callable[[int], None] = lambda n: None
    lock: threading.RLock = field(default_factory=threading.RLock)
    _cache: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[Plan], T]) -> T:
        """Return ``make(plan)``, computed once per process and cached under ``name``."""
        with self.lock:
            if name not in self._cache:
                self._cache[name] = make(self.plan)
            value: T = self._cache[name]
            return value


_runs: dict[Path, Running] = {}
_opening_lock = threading.Lock()


@contextmanager
def share_plan(folder: Path, plan: Plan, run_id: str) -> Iterator[Running]:
    """Share a plan with the tasks of a run folder while this process works on it."""
    running = _runs[folder.resolve()] = Running(plan, run_id)
    try:
        yield running
    finally:
        del _runs[folder.resolve()]


def running_in(folder: Path) -> Running:
    """Return the run of a folder; open it if this process has not done so."""
    key = folder.resolve()
    with _opening_lock:
        if key not in _runs:
            _runs[key] = _open(key)
        return _runs[key]


def _open(folder: Path) -> Running:
    is_dataset = (folder / DATASET_INFO).exists()
    info = read_dataset_info(folder) if is_dataset else read_info(folder)
    plan = recreate_plan(folder, info, suite_of(info))
    if not same_run(info, describe(plan), plan, wherever=not is_dataset):
        raise SoritesError(f"{folder} cannot be reopened: its source, models or libraries have changed")
    return Running(plan if is_dataset else guard(plan, read_manifest(folder)), info["run_id"])


def chosen_engine(requested: str | Engine, plan: Plan) -> Engine:
    """Return an engine by name.

    Raises:
        SoritesError: It uses several processes, and objects were passed from Python.
    """
    engine = ENGINES.get(requested) if isinstance(requested, str) else requested
    if plan.objects and not engine.one_process:
        raise SoritesError(
            f"the engine {engine.name} recreates sources and models in other processes, which is impossible"
            " for"
            f" objects passed from Python: {', '.join(plan.objects)}. Use specs such as folder:PATH or"
            " python:module:name, or the engine local."
        )
    return engine
