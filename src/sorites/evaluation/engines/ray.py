"""Units on a Ray cluster, or on Ray started here: workers are actors that load what they need once,
on whatever node they are.

A worker or a node may die at any time: its unit is done again by another worker. Only the node that
holds the cluster's head may not. Ray is reached once per process and left when the process ends.
"""

from __future__ import annotations

import copy
import functools
import logging
import os
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from sorites.core.errors import MissingExtra, SoritesError, left_by_exit
from sorites.evaluation.engines import Engine
from sorites.evaluation.engines.interrupts import hear_once
from sorites.evaluation.engines.local import PULSE

Unit = TypeVar("Unit")
Result = TypeVar("Result")

# The times a unit may end its worker before that is an error: a lost node ends several, a unit too
# large ends them all.
DEATHS = 5
# Seconds in which the first worker must have started.
PATIENCE = 180.0
# Seconds that the head of a cluster has to answer.
KNOCK = 10.0
# Bytes of Ray's own memory for objects, where Ray is started here: results of units are small,
# since files hold the rest.
STORE = 128 << 20
# The prefixes of the environment variables that workers get from this process.
TOLD = ("SORITES_", "PYTHONHASHSEED")


def on(address: str | None = None, gpus: float = 0.0) -> Engine:
    """Return the engine of a cluster: the one at an address, that of ``RAY_ADDRESS``, or one
    started on this machine.
    """
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
    """Run ``workers`` units at a time on the nodes of a cluster.

    A failure or an interrupt ends the workers at once: what a unit writes appears whole or not at
    all, so that nothing is half done.
    """
    ray = _reached(address, workers)
    crew = _Crew(ray, work, min(workers, max(1, len(units))), gpus)
    left, deaths = deque(range(len(units))), Counter[int]()
    try:
        for _ in range(len(units)):
            place, result = crew.next_done(units, left, deaths)
            yield units[place], result
    finally:
        crew.end()


class _Crew:
    """The workers of one stage: each has at most one unit, so that those that are faster or start
    earlier do more.
    """

    def __init__(self, ray: Any, work: Callable[[Any], Any], size: int, gpus: float) -> None:
        self._ray, self._gpus = ray, gpus
        self._work = ray.put(work)
        self._busy: dict[Any, tuple[Any, int | None]] = {}
        self._idle: list[Any] = []
        self._since: float | None = time.monotonic()
        for _ in range(size):
            self._hire()

    def next_done(self, units: Sequence[Any], left: deque[int], deaths: Counter[int]) -> tuple[int, Any]:
        """Wait for the next unit that is done, and give idle workers the units that are left meanwhile."""
        while True:
            while self._idle and left:
                worker, place = self._idle.pop(), left.popleft()
                self._busy[worker.do.remote(self._work, units[place])] = (worker, place)
            ready, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=PULSE)
            if not ready:
                self._check_started()
                continue
            worker, done = self._busy.pop(ready[0])
            try:
                answer = self._ray.get(ready[0])
            except self._ray.exceptions.RayError as error:
                self._lost(worker, -1 if done is None else done, error, deaths)
                left.extendleft([] if done is None else [done])
                continue
            self._since = None
            self._idle.append(worker)
            if done is not None:
                return done, _opened(answer)

    def _hire(self) -> None:
        told = {name: value for name, value in os.environ.items() if name.startswith(TOLD)}
        actor = self._ray.remote(Worker).options(
            num_cpus=1, num_gpus=self._gpus or None, scheduling_strategy="SPREAD"
        )
        worker = actor.remote(os.getcwd(), told)
        self._busy[worker.here.remote()] = (worker, None)

    def _lost(self, worker: Any, place: int, error: Exception, deaths: Counter[int]) -> None:
        """Replace a worker that is gone, unless that happened too often."""
        deaths[place] += 1
        if deaths[place] > DEATHS:
            what = "a worker of Ray ended" if place < 0 else "a unit of work ended its worker"
            why = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise SoritesError(
                f"{what} {deaths[place]} times ({why}). Is there memory for {len(self._busy) + 1} workers? "
                "What is finished is kept; type the same command with a smaller --workers N."
            ) from error
        self._ray.kill(worker)
        self._hire()

    def _check_started(self) -> None:
        if self._since is not None and time.monotonic() - self._since > PATIENCE:
            raise SoritesError(
                f"no worker of Ray started in {PATIENCE:.0f} s: the cluster has {_told(self._ray)}. Wait"
                " until some is free, or give a smaller --gpus-per-worker."
            )

    def end(self) -> None:
        """End all workers, whatever they do."""
        for worker in [*self._idle, *(worker for worker, _ in self._busy.values())]:
            self._ray.kill(worker)


class Worker:
    """A worker on some node, in the working directory of the process that started the run, where
    the node has it.
    """

    def __init__(self, folder: str, told: dict[str, str]) -> None:
        os.environ.update(told)
        if os.path.isdir(folder):
            os.chdir(folder)

    def here(self) -> None:
        """Answer once the worker has started."""

    def do(self, work: Callable[[Any], Any], unit: Any) -> tuple[bool, Any]:
        """Do a unit. Return whether that went well, and the result or the error, as one that can be
        sent to another process.
        """
        try:
            return True, work(unit)
        except SystemExit as error:
            return False, SoritesError(f"{work}: {left_by_exit(error)}")
        except Exception as error:
            return False, _told_error(error)


def _told_error(error: Exception) -> Exception:
    try:
        return copy.copy(error.with_traceback(None))
    except Exception:  # an error with a constructor of its own cannot be made again elsewhere
        return SoritesError(str(error)) if isinstance(error, SoritesError) else RuntimeError(repr(error))


def _opened(answer: tuple[bool, Any]) -> Any:
    went_well, result = answer
    if not went_well:
        raise result
    return result


def _cores(address: str | None) -> int:
    ray = _reached(address, os.cpu_count() or 1)
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def _told(ray: Any) -> str:
    total, free = ray.cluster_resources(), ray.available_resources()
    return ", ".join(f"{free.get(key, 0):g} of {total.get(key, 0):g} {key} free" for key in ("CPU", "GPU"))


def _knock(where: str) -> None:
    """Raise an error where nothing listens at HOST:PORT: Ray itself would try for minutes."""
    host, colon, port = where.rpartition(":")
    if colon and "/" not in where and port.isdigit():
        socket.create_connection((host, int(port)), timeout=KNOCK).close()


def _reached(address: str | None, workers: int) -> Any:
    """Return the library, connected to a cluster; one that this process is connected to already is kept."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # as other engines have: at Ray's own 15 workers starve on a busy machine
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("the engine ray", "ray") from error
    if ray.is_initialized():
        return ray
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    own: dict[str, Any] = (
        {"num_cpus": max(workers, os.cpu_count() or 1), "object_store_memory": STORE}
        if where == "local"
        else {}
    )
    try:
        _knock(where)
        ray.init(
            where,
            include_dashboard=False if own else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
            **own,
        )
    except Exception as error:  # what is wrong with an address shows as nearly anything
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SoritesError(
            f"there is no Ray cluster to reach at {where}: {why} Give --address HOST:PORT of its head (and"
            " RAY_AUTH_TOKEN, where it asks for one), or leave it out to start Ray here."
        ) from error
    hear_once()
    return ray
