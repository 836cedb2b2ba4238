"""The run that a task belongs to: its plan, in this process or opened in a worker process.

A task is done by a top-level function of a ``Running`` and a small value. An engine of this process gets the
live run, whose plan may contain objects passed from Python. Other engines get one of two:

- The stages of a run send a ``Site`` once, and ``Parcel``s: tasks with the samples of their slice. A worker
  loads the models of its group, and neither lists the source nor reads the manifest.
- Verbs that recompute images of a finished run, or write those of a dataset, send the same without models
  (``Running.each``).
- Others send an ``Opener``, which is pickled as the path of the folder; each worker process recreates the
  plan from the folder when its first task needs it. So does a worker that cannot use a parcel: it has another
  working directory, or the samples of a source cannot be pickled.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from sorites.core.compute.torch_tools import ComputeOptions, use_compute_options
from sorites.core.errors import SoritesError
from sorites.evaluation.engines import ENGINES, Engine, GroupedTasks
from sorites.evaluation.engines.local import worker_number
from sorites.evaluation.outline import Held, Outline, SampleSlices
from sorites.evaluation.plan import Plan, Unit
from sorites.evaluation.reopen import recreate_plan
from sorites.evaluation.resume import guard
from sorites.evaluation.storage.folder import read_manifest
from sorites.evaluation.storage.record import DATASET, describe, place_now, read_dataset, read_record
from sorites.evaluation.storage.schema import RunRecord, difference, same_run
from sorites.suites.suite import Suite

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """A slice and the models that have not evaluated it; what engines pass around."""

    unit: Unit
    models: tuple[str, ...]
    without_rows: tuple[str, ...] | None = None
    """The models whose rows are missing, if some lack only their features; default: all."""
    hashes: bool = False
    """True if the task also hashes the data of its images."""
    group: tuple[str, ...] = ()
    """The group of models that its worker holds; it contains ``models``. Default: all models."""


@dataclass(frozen=True)
class Parcel:
    """A task as it is sent to another process.

    Attributes:
        task: The task.
        samples: Its samples; None if the worker must open the source itself.
        rows: The files with the rows that a probe refines.
    """

    task: Any
    samples: Held | None
    rows: tuple[Path, ...] = ()


class Parcels(GroupedTasks[Parcel]):
    """Tasks of a run as parcels; each is packed when it is sent.

    Args:
        tasks: The tasks.
        slices: Packs the samples of a slice.
        training: Whether the tasks are about training images.
        rows_of: Returns the files with the rows that a task refines.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        slices: SampleSlices,
        training: bool = False,
        rows_of: Callable[[Task], tuple[Path, ...]] = lambda task: (),
    ) -> None:
        self._tasks, self._slices, self._training, self._rows_of = tasks, slices, training, rows_of

    def __len__(self) -> int:
        return len(self._tasks)

    def at(self, index: int) -> Parcel:
        task = self._tasks[index]
        unit = task.unit
        samples = self._slices.pack(unit.shift, unit.start, unit.stop, self._training)
        return Parcel(task, samples, self._rows_of(task))

    def group(self, index: int) -> tuple[str, ...]:
        return self._tasks[index].group


class SliceParcels(GroupedTasks[Parcel]):
    """Tasks that need the images of a slice and no models, as parcels.

    Args:
        tasks: Slices, or values with the attribute ``unit``.
        slices: Packs the samples of a slice; None if each worker must open the source itself.
    """

    def __init__(self, tasks: Sequence[Any], slices: SampleSlices | None) -> None:
        self._tasks, self._slices = tasks, slices

    def __len__(self) -> int:
        return len(self._tasks)

    def at(self, index: int) -> Parcel:
        task = self._tasks[index]
        if self._slices is None:
            return Parcel(task, None)
        unit: Unit = task if isinstance(task, Unit) else task.unit
        return Parcel(task, self._slices.pack(unit.shift, unit.start, unit.stop, references=True))

    def group(self, index: int) -> None:
        return None


@dataclass(eq=False)
class Running:
    """A run in progress in this process.

    Attributes:
        folder: The run folder, or the folder of a dataset that is built.
        plan: The plan.
        run_id: The run id.
        tick: Advances the progress bar by a number of images.
        first: The number of samples before those that the plan has, if it has only those of one slice.
        rows: The files with the rows that a task refines, if they are known.
    """

    folder: Path
    plan: Plan
    run_id: str
    tick: Callable[[int], None] = lambda n: None
    first: int = 0
    rows: tuple[Path, ...] = ()
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _cache: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[Plan], T]) -> T:
        """Return ``make(plan)``, computed once for this run and cached under ``name``."""
        with self._lock:
            if name not in self._cache:
                self._cache[name] = make(self.plan)
            value: T = self._cache[name]
            return value

    def open(self) -> Running:
        """Return this run."""
        return self

    def here(self, unit: Unit) -> Unit:
        """Return where the samples of a slice are in the plan of this process."""
        return replace(unit, start=unit.start - self.first, stop=unit.stop - self.first)

    def computing(self) -> AbstractContextManager[None]:
        """Load encoders and compute measures of a block on the device of the run."""
        return use_compute_options(ComputeOptions(self.plan.suite.device))

    def work(self, engine: Engine, do: Callable[..., T], **options: Any) -> Callable[[Any], T]:
        """Return a task function in the form that an engine can run.

        Args:
            engine: The engine.
            do: A top-level function of a run and a task.
            options: Further arguments of ``do``.

        Returns:
            A function of a task. It has this run, or opens its folder once in each process if the engine uses
            several.
        """
        run = self if engine.one_process else Opener(self.folder)
        return _Work(run, functools.partial(do, **options))

    def each(
        self, engine: Engine, tasks: Sequence[Any], do: Callable[..., T], workers: int, **options: Any
    ) -> Iterator[tuple[Any, T]]:
        """Do tasks that need the images of a slice and no models; yield each with its result.

        Other processes get the samples of a slice with its task, and neither list the source nor load models.

        Args:
            engine: The engine.
            tasks: Slices, or values with the attribute ``unit``.
            do: A top-level function of a run and a task; ``run.here(unit)`` is where its samples are.
            workers: The number of tasks to run in parallel.
            options: Further arguments of ``do``.
        """
        if engine.one_process:
            yield from engine(tasks, self.work(engine, do, **options), workers)
            return
        record = _stored(self.folder)
        site = Site(self.folder, Outline.of(self.plan, record), images_only=True)
        slices = SampleSlices(self.plan) if _is_where_it_was(self.folder, record) else None
        for parcel, result in engine(SliceParcels(tasks, slices), site.work(do, **options), workers):
            yield parcel.task, result


@dataclass(frozen=True)
class Site:
    """The part of a run that workers of other processes need before they get a parcel.

    Attributes:
        folder: The run folder.
        outline: The plan without samples and models.
        directory: The working directory of the process that started the run; paths of samples may be relative
            to it.
        images_only: Whether tasks need no models.
    """

    folder: Path
    outline: Outline
    directory: str = field(default_factory=os.getcwd)
    images_only: bool = False

    def work(self, do: Callable[..., T], **options: Any) -> Callable[[Parcel], T]:
        """Return a task function that can be sent to another process.

        Args:
            do: A top-level function of a run and a task.
            options: Further arguments of ``do``.
        """
        return _ParcelWork(self, functools.partial(do, **options))


class _ParcelWork:
    """A task function for parcels; it keeps the models of each group that it has met."""

    def __init__(self, site: Site, do: Callable[..., Any]) -> None:
        self._site, self._do = site, do
        self._lock = threading.Lock()
        self._runs: dict[tuple[str, ...], Running] = {}
        self._opener = Opener(site.folder)

    def __reduce__(self) -> tuple[type[_ParcelWork], tuple[Site, Callable[..., Any]]]:
        return _ParcelWork, (self._site, self._do)

    def __call__(self, parcel: Parcel) -> Any:
        return self._do(self._running(parcel), parcel.task)

    def _running(self, parcel: Parcel) -> Running:
        held = parcel.samples
        # Elsewhere, relative paths of samples mean nothing.
        if held is None or os.getcwd() != self._site.directory:
            return replace(self._opener.open(), rows=parcel.rows)
        run, outline = self._base(parcel.task), self._site.outline
        return replace(run, plan=outline.with_samples(run.plan, held), first=held.start, rows=parcel.rows)

    def _base(self, task: Any) -> Running:
        with self._lock:
            every = tuple(self._site.outline.record.models)
            names: tuple[str, ...] = () if self._site.images_only else task.group or every
            if names not in self._runs:
                plan = self._site.outline.with_models(names)
                self._runs[names] = Running(self._site.folder, plan, self._site.outline.record.run_id)
            return self._runs[names]


class Opener:
    """Opens the run of a folder at its first use; pickled as the path of the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._run: Running | None = None

    def __reduce__(self) -> tuple[type[Opener], tuple[Path]]:
        return Opener, (self.folder,)

    def open(self) -> Running:
        """Return the run, with the plan that the folder describes.

        Raises:
            SoritesError: Its source, models or libraries have changed.
        """
        with self._lock:
            if self._run is None:
                self._run = _open(self.folder)
            return self._run


@dataclass(frozen=True)
class _Work:
    """A task function with its run."""

    run: Running | Opener = field(repr=False)
    do: Callable[..., Any]

    def __call__(self, task: Any) -> Any:
        return self.do(self.run.open(), task)


def _stored(folder: Path) -> RunRecord:
    """Return the record of a run, or of a dataset as one."""
    return read_dataset(folder).as_run() if (folder / DATASET).exists() else read_record(folder)


def _is_where_it_was(folder: Path, record: RunRecord) -> bool:
    """Return whether files that the suite names are where it names them: other processes look there."""
    return all(place_now(folder, record.places, path) == path for path in record.places)


def _open(folder: Path) -> Running:
    is_dataset, before = (folder / DATASET).exists(), _stored(folder)
    plan = recreate_plan(folder, before, own_gpu(before, worker_number()))
    now = describe(plan)
    if not same_run(before, now):
        raise SoritesError(
            f"{folder} cannot be reopened, because its source, models or libraries have changed:"
            f" {difference(before, now)}"
        )
    return Running(folder, plan if is_dataset else guard(plan, read_manifest(folder)), before.run_id)


def own_gpu(record: RunRecord, number: int | None) -> Suite:
    """Return the suite of a run for one of several worker processes, which take turns with the GPUs.

    Args:
        record: The run, which a GPU computes or not.
        number: The number of the worker; None if this is no worker.
    """
    on_gpu = any(how.device == "cuda" for how in record.computing.values())
    if number is None or not on_gpu or record.suite.device not in (None, "cuda"):
        return record.suite
    import torch

    return record.suite.model_copy(update={"device": f"cuda:{number % max(1, torch.cuda.device_count())}"})


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
