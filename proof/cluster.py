"""A run of 10 million images and 40 models on 64 GPUs, simulated event by event from measured unit costs.

What is simulated: one process that packs tasks and receives results; workers with one GPU each, whose
producers make images while the models evaluate; an object store with a latency and a limit of requests; models
that are loaded when a worker starts; workers that die at random, lose their task and are replaced. What is not:
the network between nodes, and stragglers.

The simulation is checked against closed forms in ``tests/proofs/test_cluster.py``.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from proof._lines import Line

HOUR = 3600.0


@dataclass(frozen=True)
class Costs:
    """Unit costs in seconds; the comments say where each comes from.

    Attributes:
        make: Decode, frame and shift one image, on one core.
        evaluate: One image through one model on a GPU.
        pack_task: Pack and send one task, without its samples.
        pack_sample: Pack one sample of a task.
        receive: Receive the result of one task.
        load: Load the models of a group.
        replace: Replace a worker that died.
        get_latency: Wait for one object of the store.
        get_rate: Objects per second that the store delivers to all workers together.
        put: Write one shard.
        deaths_per_hour: Share of the workers that die in an hour.
    """

    make: float = 0.0017  # 1.4 to 2.0 ms, measured on one core
    evaluate: float = 1 / 2500  # published rates of ResNet-50 in float32 on a GPU of 2022
    pack_task: float = 0.0015  # assumed: an actor call of Ray
    pack_sample: float = 100e-6  # 101 CPU seconds for a million packed samples (bench driver, 250,000 x 4)
    receive: float = 0.0005  # assumed
    load: float = 40.0  # assumed: ten models of 100 MB from a store, and the first pass of each
    replace: float = 180.0  # assumed: a new node
    get_latency: float = 0.03  # assumed
    get_rate: float = 5500.0  # published limit of S3 for one prefix
    put: float = 0.1  # assumed
    deaths_per_hour: float = 0.01


@dataclass(frozen=True)
class Cluster:
    """What runs, and on what.

    Attributes:
        samples: Images to make for each group of models.
        per_task: Images of one task.
        groups: Groups of models; each makes its own images.
        models: Models of one group.
        workers: Workers with one GPU each.
        producers: Processes of a worker that make images.
        reads: Objects that a producer reads at a time.
        seed: Of the deaths.
        exponential: Draw all times from exponential distributions with these means, for a check.
    """

    samples: int = 10_000_000
    per_task: int = 1024
    groups: int = 4
    models: int = 10
    workers: int = 64
    producers: int = 15
    reads: int = 1
    seed: int = 0
    exponential: bool = False


@dataclass
class Outcome:
    """What a simulated run took.

    Attributes:
        seconds: From the start to the last result.
        useful: Seconds that GPUs computed for results that arrived.
        lost: Seconds that GPUs did not, by reason.
        tasks: Tasks that were finished.
        deaths: Workers that died.
    """

    seconds: float = 0.0
    useful: float = 0.0
    lost: Counter[str] = field(default_factory=Counter)
    tasks: int = 0
    deaths: int = 0
    workers: int = 1

    @property
    def utilisation(self) -> float:
        """The share of the GPU time that was useful."""
        return self.useful / (self.workers * self.seconds) if self.seconds else 0.0

    def bottlenecks(self) -> list[tuple[str, float]]:
        """Return the reasons for lost GPU time, as shares of the GPU time, largest first."""
        total = self.workers * self.seconds
        return [(reason, seconds / total) for reason, seconds in self.lost.most_common()]


@dataclass
class _Task:
    """The times of a task under way."""

    asked: float
    sent: float = 0.0
    gpu: float = 0.0
    made: float = 0.0
    computed: float = 0.0
    written: float = 0.0


@dataclass
class _Worker:
    """A worker; ``life`` counts its replacements, so that events of a dead one are ignored."""

    group: int = -1
    life: int = 0
    since: float = 0.0
    is_loading: bool = False
    task: _Task | None = None


class Simulation:
    """Simulates one run.

    Args:
        cluster: What runs.
        costs: What it costs.
    """

    def __init__(self, cluster: Cluster, costs: Costs) -> None:
        self._cluster, self._costs = cluster, costs
        self._rng = np.random.default_rng(cluster.seed)
        self._events: list[tuple[float, int, Callable[[float, int], None], int, int]] = []
        self._numbers = itertools.count()
        tasks = -(-cluster.samples // cluster.per_task)
        self._left = [tasks] * cluster.groups
        self._open = tasks * cluster.groups
        self._workers = [_Worker() for _ in range(cluster.workers)]
        self._driver_free = self._store_free = 0.0
        self.outcome = Outcome(workers=cluster.workers)

    def run(self) -> Outcome:
        """Simulate until every task is done."""
        now = 0.0
        for number in range(len(self._workers)):
            self._start(now, number, self._costs.load)
        while self._open:
            now, _, handle, number, life = heapq.heappop(self._events)
            if life == self._workers[number].life:
                handle(now, number)
        for worker in self._workers:
            self._lose("loading models" if worker.is_loading else "no task left", now - worker.since)
        self.outcome.seconds = now
        return self.outcome

    def _draw(self, mean: float) -> float:
        return float(self._rng.exponential(mean)) if self._cluster.exponential and mean else mean

    def _at(self, time: float, handle: Callable[[float, int], None], number: int) -> None:
        life = self._workers[number].life
        heapq.heappush(self._events, (time, next(self._numbers), handle, number, life))

    def _lose(self, reason: str, seconds: float) -> None:
        self.outcome.lost[reason] += seconds

    def _serve(self, now: float, seconds: float) -> float:
        """Queue for the driver; return when it is done."""
        self._driver_free = max(now, self._driver_free) + seconds
        return self._driver_free

    def _start(self, now: float, number: int, delay: float) -> None:
        """Start a worker for the group with the most tasks per worker."""
        worker = self._workers[number]
        worker.since, worker.is_loading, worker.task = now, True, None
        busy = Counter(other.group for other in self._workers if other is not worker)
        worker.group = max(range(len(self._left)), key=lambda g: self._left[g] / (1 + busy[g]))
        self._at(now + self._draw(delay), self._ask, number)
        if self._costs.deaths_per_hour:
            rate = self._costs.deaths_per_hour / HOUR
            self._at(now + delay + float(self._rng.exponential(1 / rate)), self._die, number)

    def _ask(self, now: float, number: int) -> None:
        """Ask for the next task, which the driver packs; without one, change the group or wait."""
        worker, costs = self._workers[number], self._costs
        self._lose("loading models" if worker.is_loading else "no task left", now - worker.since)
        worker.since, worker.is_loading = now, False
        if not self._left[worker.group]:
            if any(self._left):
                worker.life += 1
                self._start(now, number, costs.load)
            return
        self._left[worker.group] -= 1
        worker.task = _Task(now)
        packing = self._draw(costs.pack_task + costs.pack_sample * self._cluster.per_task)
        self._at(self._serve(now, packing), self._work, number)

    def _work(self, now: float, number: int) -> None:
        """Read, make and evaluate the images of a task, all at the same time."""
        costs, cluster, task = self._costs, self._cluster, self._workers[number].task
        assert task is not None
        count = cluster.per_task
        task.sent, task.gpu = now, self._draw(count * cluster.models * costs.evaluate)
        waiting = costs.get_latency / cluster.reads
        task.made = now + count * (costs.make + waiting) / cluster.producers
        delivered = now
        if costs.get_rate:
            delivered = self._store_free = max(now, self._store_free) + count / costs.get_rate
        task.computed = max(now + task.gpu, task.made, delivered)
        self._at(task.computed + costs.put, self._written, number)

    def _written(self, now: float, number: int) -> None:
        task = self._workers[number].task
        assert task is not None
        task.written = now
        self._at(self._serve(now, self._costs.receive), self._done, number)

    def _done(self, now: float, number: int) -> None:
        worker = self._workers[number]
        task = worker.task
        assert task is not None
        on_time = task.sent + task.gpu
        self._lose("the driver", task.sent - task.asked + now - task.written)
        self._lose("making images", max(0.0, task.made - on_time))
        self._lose("the store's limit of requests", max(0.0, task.computed - max(task.made, on_time)))
        self._lose("writing rows", task.written - task.computed)
        self.outcome.useful += task.gpu
        self.outcome.tasks += 1
        self._open -= 1
        worker.since, worker.task = now, None
        self._ask(now, number)

    def _die(self, now: float, number: int) -> None:
        """Lose a worker and its task, which another one repeats; replace the worker."""
        worker, costs = self._workers[number], self._costs
        self.outcome.deaths += 1
        if worker.task is not None:
            self._lose("deaths of workers", now - worker.task.asked)
            self._left[worker.group] += 1
        else:
            self._lose("loading models" if worker.is_loading else "no task left", now - worker.since)
        for other, idle in enumerate(self._workers):
            if other != number and idle.task is None and not idle.is_loading:
                self._at(now, self._ask, other)
        worker.life += 1
        self._lose("deaths of workers", costs.replace)
        self._start(now + costs.replace, number, costs.load)


CASES = (
    ("as measured and published", Cluster(), Costs()),
    ("producers read 16 objects at a time", Cluster(reads=16), Costs()),
    ("and from eight prefixes", Cluster(reads=16), Costs(get_rate=8 * 5500.0)),
    ("and 31 producers for each GPU", Cluster(reads=16, producers=31), Costs(get_rate=8 * 5500.0)),
    (
        "one group of 40 models, one prefix",
        Cluster(reads=16, groups=1, models=40, per_task=256),
        Costs(load=160.0),
    ),
    ("eight prefixes and no deaths", Cluster(reads=16), Costs(get_rate=8 * 5500.0, deaths_per_hour=0.0)),
)


def run() -> Iterator[Line]:
    for name, cluster, costs in CASES:
        outcome = Simulation(cluster, costs).run()
        first = ", ".join(f"{reason} {100 * share:.1f} %" for reason, share in outcome.bottlenecks()[:3])
        note = f"{outcome.seconds / HOUR:.2f} h, {outcome.tasks:,} tasks, {outcome.deaths} deaths; lost to {first}"
        yield Line(f"utilisation, {name} (%)", 100 * outcome.utilisation, note)
