"""The simulated cluster gives the numbers of closed forms where there are any."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from proof.cluster import HOUR, Cluster, Costs, Simulation

FREE = Costs(
    make=0.0,
    evaluate=0.01,
    pack_task=0.0,
    pack_sample=0.0,
    receive=0.0,
    load=0.0,
    replace=0.0,
    get_latency=0.0,
    get_rate=0.0,
    put=0.0,
    deaths_per_hour=0.0,
)
SMALL = Cluster(samples=10_000, per_task=10, groups=1, models=10, workers=8, producers=1)


def test_without_costs_every_worker_is_busy() -> None:
    outcome = Simulation(SMALL, FREE).run()
    assert outcome.seconds == pytest.approx(1000 / 8 * 10 * 10 * 0.01)
    assert outcome.utilisation == pytest.approx(1)
    assert outcome.tasks == 1000
    assert Simulation(replace(SMALL, samples=10_010), FREE).run().seconds == pytest.approx(126)


def test_a_driver_or_a_store_that_is_too_slow_sets_the_pace() -> None:
    driver = Simulation(SMALL, replace(FREE, pack_task=1.0)).run()
    assert driver.seconds == pytest.approx(1000 + 1.0)
    assert driver.bottlenecks()[0][0] == "the driver"
    store = Simulation(SMALL, replace(FREE, get_rate=5.0)).run()
    assert store.seconds == pytest.approx(10_000 / 5)
    assert store.bottlenecks()[0][0] == "the store's limit of requests"
    making = Simulation(SMALL, replace(FREE, make=0.5)).run()
    assert making.utilisation == pytest.approx(1 / 5)
    assert making.bottlenecks()[0][0] == "making images"


@pytest.mark.parametrize("service", [0.05, 0.125, 0.4])
def test_the_driver_is_the_machine_repair_model(service: float) -> None:
    """Workers that compute for exponential times and queue for one driver: M/M/1 with a finite source."""
    cluster = replace(SMALL, samples=400_000, exponential=True, seed=3)
    outcome = Simulation(cluster, replace(FREE, pack_task=service)).run()
    ratio, workers = service / 1.0, cluster.workers
    empty = 1 / sum(math.perm(workers, k) * ratio**k for k in range(workers + 1))
    throughput = (1 - empty) / service
    assert outcome.tasks / outcome.seconds == pytest.approx(throughput, rel=0.02)
    assert outcome.utilisation == pytest.approx(throughput / workers, rel=0.02)


@pytest.mark.parametrize("deaths", [20.0, 720.0])
def test_deaths_cost_what_renewal_theory_says(deaths: float) -> None:
    """In each life of exponential length a worker finishes 1 / (exp(rate t) - 1) tasks of length t."""
    cluster = replace(SMALL, samples=400_000, seed=5)
    costs = replace(FREE, deaths_per_hour=deaths, replace=20.0, load=5.0)
    outcome = Simulation(cluster, costs).run()
    rate, task = deaths / HOUR, 1.0
    useful = task / math.expm1(rate * task)
    assert outcome.utilisation == pytest.approx(useful / (1 / rate + 25.0), rel=0.05)
    assert outcome.deaths > 100
    lost = outcome.lost["deaths of workers"] + outcome.lost["loading models"]
    assert lost == pytest.approx(outcome.deaths * (25.0 + 1 / rate - useful), rel=0.1)


def test_all_time_is_accounted_for() -> None:
    costs = Costs(deaths_per_hour=20.0, load=20.0, replace=30.0)
    cluster = Cluster(samples=300_000, per_task=500, groups=3, models=4, workers=10, reads=4)
    outcome = Simulation(cluster, costs).run()
    total = outcome.seconds * outcome.workers
    assert outcome.useful + sum(outcome.lost.values()) == pytest.approx(total, rel=0.02)
    assert outcome.tasks == 3 * 600
