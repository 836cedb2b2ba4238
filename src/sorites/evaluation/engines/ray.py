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
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from sorites.core.errors import MissingExtra, Notice, SoritesError, exit_message
from sorites.core.machine import cores
from sorites.core.messages import option
from sorites.evaluation.engines import Engine
from sorites.evaluation.engines.interrupts import arm_second_interrupt
from sorites.evaluation.engines.local import POLL_SECONDS
from sorites.io.decode import allow_pixels, max_pixels

Unit = TypeVar("Unit")
Result = TypeVar("Result")

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
# Prefixes of the environment variables that are passed to workers: our own settings, and what the libraries
# of object stores read their credentials and addresses from.
PASSED_VARIABLES = (
    "SORITES_",
    "PYTHONHASHSEED",
    "AWS_",
    "AZURE_",
    "FSSPEC_",
    "GCSFS_",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "HF_TOKEN",
)


def ray_engine(address: str | None = None, gpus: float = 0.0) -> Engine:
    """Return the engine of a Ray cluster: at ``address``, at ``RAY_ADDRESS``, or started on this machine."""
    start = functools.partial(ray_units, address=address, gpus=gpus)
    return Engine(start, one_process=False, cores=functools.partial(_cores, address), name="ray")


def ray_units(
    units: Sequence[Unit],
    work: Callable[[Unit], Result],
    workers: int,
    *,
    address: str | None = None,
    gpus: float = 0.0,
) -> Iterator[tuple[Unit, Result]]:
    """Run ``workers`` tasks at a time on the nodes of a cluster.

    A failure or an interrupt ends the workers immediately; files are written atomically, so nothing is left
    half-written.
    """
    ray = _connect(address, workers)
    crew = _WorkerPool(ray, work, min(workers, max(1, len(units))), gpus)
    pending, deaths = deque(range(len(units))), Counter[int]()
    try:
        for _ in range(len(units)):
            index, result = crew.next_done(units, pending, deaths)
            yield units[index], result
    finally:
        crew.end()


class _WorkerPool:
    """The workers of one call; each has at most one task, so faster workers do more."""

    def __init__(self, ray: Any, work: Callable[[Any], Any], size: int, gpus: float) -> None:
        self._ray, self._gpus = ray, gpus
        self._work = ray.put(work)  # once per call; each worker keeps a copy
        self._busy: dict[Any, tuple[Any, int | None]] = {}
        self._idle: list[Any] = []
        self._since: float | None = time.monotonic()
        self._waiting_reported = False
        for _ in range(size):
            self._hire()

    def next_done(self, units: Sequence[Any], pending: deque[int], deaths: Counter[int]) -> tuple[int, Any]:
        """Wait for the next completed task while giving pending tasks to idle workers."""
        while True:
            while self._idle and pending:
                worker, index = self._idle.pop(), pending.popleft()
                self._busy[worker.do.remote(units[index])] = (worker, index)
            ready, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=POLL_SECONDS)
            if not ready:
                self._check_capacity()
                continue
            worker, done = self._busy.pop(ready[0])
            try:
                answer = self._ray.get(ready[0])
            except self._ray.exceptions.RayError as error:
                self._replace(worker, -1 if done is None else done, error, deaths)
                pending.extendleft([] if done is None else [done])
                continue
            self._since, self._waiting_reported = None, False
            self._idle.append(worker)
            if done is not None:
                return done, _unwrap(answer)

    def _hire(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name.startswith(PASSED_VARIABLES)}
        actor = self._ray.remote(Worker).options(
            num_cpus=1, num_gpus=self._gpus or None, scheduling_strategy="SPREAD"
        )
        worker = actor.remote(os.getcwd(), environment, self._work, max_pixels())
        self._busy[worker.here.remote()] = (worker, None)

    def _replace(self, worker: Any, index: int, error: Exception, deaths: Counter[int]) -> None:
        """Replace a worker that died, unless that happened too often."""
        deaths[index] += 1
        if deaths[index] > MAX_DEATHS:
            what = "a Ray worker died" if index < 0 else "a task killed its worker"
            why = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise SoritesError(
                f"{what} {deaths[index]} times ({why}). Is there memory for {len(self._busy) + 1} workers?"
                f" Finished work is kept; repeat the command with a smaller {option('workers', 'N')}."
            ) from error
        self._ray.kill(worker)
        self._hire()

    def _check_capacity(self) -> None:
        """Issue a notice, and later an error, while no worker runs: none has started, or all were lost."""
        if self._idle or any(index is not None for _, index in self._busy.values()):
            self._since = None
            return
        if self._since is None:
            self._since = time.monotonic()
        waited = time.monotonic() - self._since
        if waited > START_TIMEOUT_SECONDS:
            raise SoritesError(
                f"no Ray worker started within {START_TIMEOUT_SECONDS:.0f} s: the cluster has"
                f" {_resources_text(self._ray)}. Finished work is kept; repeat the command when"
                f" resources are free, or reduce {option('gpus_per_worker', None)}."
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
        for worker in [*self._idle, *(worker for worker, _ in self._busy.values())]:
            self._ray.kill(worker)


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


def _cores(address: str | None) -> int:
    ray = _connect(address, cores())
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


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
