"""How busy producers keep a device: a device of fixed latency and rate, fed by one producer.

The device sleeps, so that it takes no processor time, as a GPU does. Its rate is a share of the rate at which
one producer makes images, measured in the same run; a pipeline that wastes nothing keeps it busy all the time.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.whole_run import photographs
from sorites.core import Model, Outputs
from sorites.evaluation import plan as plans
from sorites.evaluation.pipeline.consume import Counts
from sorites.evaluation.pipeline.jobs import Workshop, cut, distinct_inputs
from sorites.evaluation.pipeline.producers import Producers
from sorites.evaluation.pipeline.run import Pipeline
from sorites.evaluation.plan import Plan
from sorites.evaluation.worker import Task
from sorites.models.preprocess import Input
from sorites.suites.suite import load

SAMPLES, BATCH, SHARE, LATENCY_SECONDS = 96, 64, 0.8, 0.002


def device(rate: float) -> Model:
    """A model whose passes take a fixed time, plus a time per image."""
    labels = np.zeros(1000, np.float32)

    def forward(images: list[np.ndarray]) -> Outputs:
        time.sleep(LATENCY_SECONDS + len(images) / rate)
        return Outputs(np.tile(labels, (len(images), 1)))

    return Model("device", forward, Input().prepare, version="1")


def producer_rate(plan: Plan, tasks: list[Task]) -> float:
    """Images per second of one producer, whose images are only counted."""
    inputs, places = distinct_inputs(plan)
    jobs = list(cut(plan, tasks, places))
    with Producers(Workshop.of(plan, inputs), 1, jobs[0]) as producers:
        count, start = 0, time.perf_counter()
        for images in producers(iter(jobs)):
            count += len(images)
        return count / (time.perf_counter() - start)


def run() -> Iterator[tuple[str, float, str]]:
    with tempfile.TemporaryDirectory() as root:
        photographs(Path(root), SAMPLES)
        recipe = load("demo").override(source=f"folder:{root}", models=["device"])
        plan = plans.make(recipe, models={"device": device(1.0)})
        tasks = [Task(unit, ("device",)) for unit in plan.units()]
        rate = producer_rate(plan, tasks)
        plan = replace(plan, models={"device": device(SHARE * rate)})
        counts = Counts()
        pipeline = Pipeline(1, BATCH, counts=counts)
        written = sum(1 for _ in pipeline.run(plan, tasks, lambda task, predicted: None))
        assert written == len(tasks)
        passes = counts.passes / -(-counts.images // BATCH)
        copied = counts.bytes / counts.images / 224**2 / 3
        yield (
            f"pipeline: share of the time a device is busy, at {SHARE:g} of the rate of its producer",
            counts.utilisation,
            f"aim >= 0.90; {rate:.0f} images/s made, {counts.images / counts.seconds:.0f} evaluated; passes over"
            f" the least possible {passes:.2f}, bytes copied over the images' {copied:.2f}",
        )
