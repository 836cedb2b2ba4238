"""Engine on a Ray cluster, or on Ray started on this machine: workers are actors that load what they need
once.

If a worker or node dies, another worker repeats its task; only the head node of the cluster must survive. Ray
is initialised once per process and stopped when the process ends.
"""

from __future__ import annotations

import copy
import functools
import logging
import os
import socket
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sorites.core.compute.machine import cores
from sorites.core.errors import MissingExtra, Notice, SoritesError, exit_message
from sorites.core.messages import option
from sorites.evaluation.engines import Engine, GroupedTasks
from sorites.evaluation.engines.interrupts import arm_second_interrupt
from sorites.evaluation.engines.local import POLL_SECONDS
from sorites.io.decode import allow_pixels, max_pixels

Unit = TypeVar("Unit")
Result = TypeVar("Result")

# Stands for the start of a worker where deaths are counted by task.
_STARTING = -1
# How often a task may kill its worker before that is an error: a lost node kills several, a task that is too
# large kills all.
MAX_DEATHS = 5
# Seconds without any worker, at the start or after the cluster lost its nodes, before the run stops.
START_TIMEOUT_SECONDS = 180.0
# Seconds without any worker before a notice says so.
WAIT_NOTICE_SECONDS = 15.0
# Seconds to wait for the head of a cluster to answer.
CONNECT_TIMEOUT_SECONDS = 10.0
# Size in bytes of Ray's object store if Ray is started here; results of tasks are small, since data is
# written to files.
OBJECT_STORE_BYTES = 128 << 20
# Prefixes of the environment variables that are passed to workers when they start, as Ray's ``runtime_env``:
# our own settings, and how libraries use threads, caches and the network. Ray shows them to everybody who may
# look at the cluster.
PASSED_VARIABLES = (
    "SORITES_",
    "PYTHONHASHSEED",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "HF_HOME",
    "HF_HUB_",
    "TORCH_HOME",
    "XDG_CACHE_HOME",
)
# Prefixes of variables with credentials and addresses of stores; they are passed as an argument, which Ray
# does not show.
PASSED_CREDENTIALS = (
    "AWS_",
    "AZURE_",
    "FSSPEC_",
    "GCSFS_",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "HF_TOKEN",
)


@dataclass(frozen=True)
class Resources:
    """Resources of each worker.

    Attributes:
        cpus: CPUs; all but one make images.
        gpus: GPUs, or a fraction of one.
    """

    cpus: int = 1
    gpus: float = 0.0

    def workers(self, total: Mapping[str, float]) -> int:
        """Return how many workers fit on a cluster with these resources."""
        by_cpus = int(total.get("CPU", 1)) // self.cpus
        return max(1, min(by_cpus, int(total.get("GPU", 0) / self.gpus)) if self.gpus else by_cpus)


def ray_engine(address: str | None = None, gpus: float = 0.0, cpus: int = 1) -> Engine:
    """Return the engine of a Ray cluster: at ``address``, at ``RAY_ADDRESS``, or started on this machine.

    Args:
        address: Host and port of the head.
        gpus: GPUs for each worker, or a fraction of one.
        cpus: CPUs for each worker; all but one make images.
    """
    each = Resources(cpus, gpus)
    start = functools.partial(ray_units, address=address, each=each)
    count = functools.partial(_cores, address, each)
    return Engine(start, one_process=False, cores=count, name="ray", producers=cpus - 1)


def ray_units(
    units: Sequence[Unit],
    work: Callable[[Unit], Result],
    workers: int,
    *,
    address: str | None = None,
    each: Resources | None = None,
) -> Iterator[tuple[Unit, Result]]:
    """Run ``workers`` tasks at a time on the nodes of a cluster.

    Each worker gets tasks of one group (``GroupedTasks``) only. A failure or an interrupt ends the workers
    immediately; files are written atomically, so nothing is left half-written.
    """
    each = each or Resources()
    ray = _connect(address, workers * each.cpus)
    crew = _WorkerPool(ray, work, units, min(workers, max(1, len(units))), each)
    try:
        for _ in range(len(units)):
            yield crew.next_done()
    finally:
        crew.end()


class _Pending:
    """The tasks that no worker has, by group."""

    def __init__(self, units: Sequence[Any]) -> None:
        self._units = units
        self._left: dict[Hashable, deque[int]] = {}
        for index in range(len(units)):
            self._left.setdefault(self.group(index), deque()).append(index)

    def group(self, index: int) -> Hashable:
        """Return the group of a task."""
        return self._units.group(index) if isinstance(self._units, GroupedTasks) else None

    def take(self, group: Hashable) -> int | None:
        """Return the next task of a group, or None if there is none."""
        return self._left[group].popleft() if self._left.get(group) else None

    def put_back(self, index: int) -> None:
        """Return a task whose worker died; it is the next one."""
        self._left[self.group(index)].appendleft(index)

    def neediest(self, workers: Counter[Hashable]) -> Hashable:
        """Return the group with the most tasks per worker; None if no task is left."""
        waiting = [group for group, left in self._left.items() if left]
        return max(waiting, key=lambda g: len(self._left[g]) / (1 + workers[g]), default=None)

    def __len__(self) -> int:
        return sum(map(len, self._left.values()))


@dataclass(frozen=True, eq=False)
class _Hired:
    """A worker and the group of its tasks."""

    actor: Any
    group: Hashable


@dataclass(frozen=True)
class _Doing:
    """Work under way in a worker: a task, or only its start."""

    worker: _Hired
    index: int | None = None
    unit: Any = None


class _WorkerPool:
    """The workers of one call; each has at most one task, so faster workers do more.

    A worker of a group without pending tasks makes room for one of another group.
    """

    def __init__(
        self, ray: Any, work: Callable[[Any], Any], units: Sequence[Any], size: int, each: Resources
    ) -> None:
        self._ray, self._units, self._each = ray, units, each
        self._work = ray.put(work)  # once per call; each worker keeps a copy
        self._pending, self._deaths = _Pending(units), Counter[int]()
        self._busy: dict[Any, _Doing] = {}
        self._idle: list[_Hired] = []
        self._groups = Counter[Hashable]()
        self._since: float | None = time.monotonic()
        self._waiting_reported = False
        for _ in range(size):
            self._hire()

    def next_done(self) -> tuple[Any, Any]:
        """Wait for the next completed task while giving pending tasks to idle workers; return it with its
        result.
        """
        while True:
            self._hand_out()
            ready, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=POLL_SECONDS)
            if not ready:
                self._check_capacity()
                continue
            doing = self._busy.pop(ready[0])
            try:
                answer = self._ray.get(ready[0])
            except self._ray.exceptions.RayError as error:
                if doing.index is not None:
                    self._pending.put_back(doing.index)
                self._replace(doing, error)
                continue
            self._since, self._waiting_reported = None, False
            self._idle.append(doing.worker)
            if doing.index is not None:
                self._deaths[_STARTING] = 0  # nodes may leave as often as they like while work goes on
                return doing.unit, _unwrap(answer)

    def _hand_out(self) -> None:
        """Give a task to every idle worker for which there is one."""
        idle, self._idle = self._idle, []
        for worker in idle:
            index = self._pending.take(worker.group)
            if index is not None:
                unit = self._units[index]
                self._busy[worker.actor.do.remote(unit)] = _Doing(worker, index, unit)
            elif len(self._pending):
                self._dismiss(worker)
                self._hire()
            else:
                self._idle.append(worker)

    def _hire(self) -> None:
        group = self._pending.neediest(self._groups)
        actor = self._ray.remote(Worker).options(
            num_cpus=self._each.cpus,
            num_gpus=self._each.gpus or None,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": _variables(PASSED_VARIABLES)},
        )
        worker = _Hired(
            actor.remote(os.getcwd(), _variables(PASSED_CREDENTIALS), self._work, max_pixels()), group
        )
        self._groups[group] += 1
        self._busy[worker.actor.here.remote()] = _Doing(worker)

    def _dismiss(self, worker: _Hired) -> None:
        self._groups[worker.group] -= 1
        self._ray.kill(worker.actor)

    def _replace(self, doing: _Doing, error: Exception) -> None:
        """Replace a worker that died, unless that happened too often."""
        index = _STARTING if doing.index is None else doing.index
        self._deaths[index] += 1
        if self._deaths[index] > MAX_DEATHS:
            what = "a Ray worker died" if doing.index is None else "a task killed its worker"
            why = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise SoritesError(
                f"{what} {self._deaths[index]} times ({why}). Is there memory for {len(self._busy) + 1}"
                " workers? Finished work is kept; repeat the command with a smaller"
                f" {option('workers', 'N')}."
            ) from error
        self._dismiss(doing.worker)
        self._hire()

    def _check_capacity(self) -> None:
        """Issue a notice, and later an error, while no worker runs: none has started, or all were lost."""
        if self._idle or any(doing.index is not None for doing in self._busy.values()):
            self._since = None
            return
        if self._since is None:
            self._since = time.monotonic()
        waited = time.monotonic() - self._since
        if waited > START_TIMEOUT_SECONDS:
            raise SoritesError(
                f"no Ray worker started within {START_TIMEOUT_SECONDS:.0f} s: the cluster has"
                f" {_resources_text(self._ray)}. Finished work is kept; repeat the command when"
                f" resources are free, or reduce {option('cpus_per_worker', None)} and"
                f" {option('gpus_per_worker', None)}."
            )
        if waited > WAIT_NOTICE_SECONDS and not self._waiting_reported:
            self._waiting_reported = True
            text = (
                f"no Ray worker runs: the cluster has {_resources_text(self._ray)}. The run stops if none"
                f" starts within {START_TIMEOUT_SECONDS:.0f} s; finished work is kept."
            )
            warnings.warn(Notice(text, code="no_workers"), stacklevel=2)

    def end(self) -> None:
        """End all workers."""
        for worker in [*self._idle, *(doing.worker for doing in self._busy.values())]:
            self._ray.kill(worker.actor)


def _variables(prefixes: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}


class Worker:
    """A Ray actor, in the working directory of the starting process if the node has it.

    It keeps the function of its tasks, so that this loads what it needs once.
    """

    def __init__(
        self, folder: str, environment: dict[str, str], work: Callable[[Any], Any], pixels: int
    ) -> None:
        self._work = work
        os.environ.update(environment)
        allow_pixels(pixels)
        if os.path.isdir(folder):
            os.chdir(folder)

    def here(self) -> None:
        """Return once the worker has started."""

    def do(self, unit: Any) -> tuple[bool, Any]:
        """Run a task; return whether it succeeded, and the result or a picklable error."""
        try:
            return True, self._work(unit)
        except SystemExit as error:
            return False, SoritesError(f"a task failed: {exit_message(error)}")
        except Exception as error:
            return False, _picklable_error(error)


def _picklable_error(error: Exception) -> Exception:
    try:
        return copy.copy(error.with_traceback(None))
    except Exception:  # errors with custom constructors may not be copyable
        return SoritesError(str(error)) if isinstance(error, SoritesError) else RuntimeError(repr(error))


def _unwrap(answer: tuple[bool, Any]) -> Any:
    went_well, result = answer
    if not went_well:
        raise result
    return result


def _cores(address: str | None, each: Resources) -> int:
    return each.workers(_connect(address, cores()).cluster_resources())


def _resources_text(ray: Any) -> str:
    total, free = ray.cluster_resources(), ray.available_resources()
    return ", ".join(f"{free.get(key, 0):g} of {total.get(key, 0):g} {key} free" for key in ("CPU", "GPU"))


def _check_listening(where: str) -> None:
    """Raise an error if nothing listens at HOST:PORT; Ray itself would retry for minutes."""
    host, colon, port = where.rpartition(":")
    if colon and "/" not in where and port.isdigit():
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_SECONDS).close()


def _connect(address: str | None, workers: int) -> Any:
    """Return the ray module, connected to a cluster; an existing connection is kept."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Same priority as other engines; with Ray's default of 15 workers starve on a busy machine.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Ray's own log lines on stderr would hide the messages of the run when a node is lost.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("the engine ray", "ray") from error
    if ray.is_initialized():
        return ray
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    own: dict[str, Any] = (
        {"num_cpus": max(workers, cores()), "object_store_memory": OBJECT_STORE_BYTES}
        if where == "local"
        else {}
    )
    try:
        _check_listening(where)
        ray.init(
            where,
            include_dashboard=False if own else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
            **own,
        )
    except Exception as error:  # a wrong address can raise nearly anything
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SoritesError(
            f"cannot reach a Ray cluster at {where}: {why} Give {option('address', 'HOST:PORT')} of its head"
            " (and"
            " RAY_AUTH_TOKEN if it needs one), or leave it out to start Ray here."
        ) from error
    arm_second_interrupt()
    return ray
