"""How busy producers keep a device: a device of fixed latency and rate, fed by one producer.

The device sleeps, so that it takes no processor time, as a GPU does, and works on a pass while the next one is
started. Its rate is a share of the rate at which one producer makes images, measured just before; a pipeline
that wastes nothing keeps it busy all the time. The time during which it is busy is counted by the device itself.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sorites.core import Model, Outputs
from sorites.core.compute.passes import Inputs, Staged, Wait
from sorites.evaluation import plan as plans
from sorites.evaluation.pipeline.consume import Counts
from sorites.evaluation.pipeline.measure import producer_rate, write_photographs
from sorites.evaluation.pipeline.run import Pipeline
from sorites.evaluation.plan import Plan
from sorites.evaluation.worker import Task
from sorites.models.preprocess import Input
from sorites.suites.suite import load

SAMPLES, BATCH, SHARE, LATENCY_SECONDS, ROUNDS = 96, 64, 0.8, 0.002, 3


@dataclass
class Device:
    """A device whose passes take a fixed time, plus a time per image; it has a queue, as a GPU has."""

    rate: float
    latency: float = LATENCY_SECONDS
    free_at: float = 0.0
    first: float = 0.0
    busy: float = 0.0
    passes: int = 0
    waits: int = 0
    bytes: int = 0

    def start(self, images: Inputs) -> Wait:
        now, count = time.perf_counter(), len(images)
        self.first = self.first or now
        took = self.latency + count / self.rate
        self.free_at = done = max(now, self.free_at) + took
        self.busy += took
        self.passes += 1
        self.bytes += sum(image.nbytes for image in images)

        def wait() -> Outputs:
            self.waits += 1
            time.sleep(max(0.0, done - time.perf_counter()))
            return Outputs(np.zeros((count, 1000), np.float32))

        return wait

    @property
    def utilisation(self) -> float:
        """The share of the time from its first to its last work during which it was busy."""
        return self.busy / (self.free_at - self.first)


def model_on(device: Device) -> Model:
    return Model("device", Staged(device.start), Input().prepare, version="1")


def measured(plan: Plan, tasks: list[Task], device: Device, producers: int) -> Counts:
    """Run all tasks on a device."""
    counts = Counts()
    plan = replace(plan, models={"device": model_on(device)})
    written = sum(1 for _ in Pipeline(producers, BATCH, counts=counts).run(plan, tasks, lambda *_: None))
    assert written == len(tasks)
    return counts


def run() -> Iterator[tuple[str, float, str]]:
    with tempfile.TemporaryDirectory() as root:
        write_photographs(Path(root), SAMPLES)
        recipe = load("demo").override(source=f"folder:{root}", models=["device"])
        plan = plans.make(recipe, models={"device": model_on(Device(1.0))})
        tasks = [Task(unit, ("device",)) for unit in plan.units()]
        found, rates = [], []
        for _ in range(ROUNDS):
            rates.append(producer_rate(plan, tasks, 1, 60.0))
            device = Device(SHARE * rates[-1])
            counts = measured(plan, tasks, device, 1)
            found.append(device.utilisation)
        busy = " ".join(f"{value:.3f}" for value in found)
        made = " ".join(f"{rate:.0f}" for rate in rates)
        yield (
            f"pipeline: share of the time a device is busy, at {SHARE:g} of the rate of its producer",
            statistics.median(found),
            f"aim >= 0.90; rounds {busy}; images/s made {made}; by the pipeline's own count"
            f" {counts.utilisation:.3f}; decodes per image {counts.decoded / SAMPLES:.2f}, passes {device.passes}"
            f" (least {-(-counts.images // BATCH)}), waits per pass {device.waits / device.passes:.2f}, bytes copied"
            f" over the images' {device.bytes / counts.images / 224**2 / 3:.2f}",
        )
        start = time.process_time()
        counts = measured(plan, tasks, Device(1e9, 0.0), 1)
        yield (
            "pipeline: processor time of the process that evaluates, in ms per image without its models",
            (time.process_time() - start) / counts.images * 1e3,
            "copies, batches and rows; this bounds the images per second of one process",
        )
