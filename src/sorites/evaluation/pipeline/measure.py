"""Measure how fast a pipeline evaluates a plan on this machine, and how busy it keeps the device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from sorites.core import CLEAN, Model
from sorites.core.compute.machine import gpu_facts
from sorites.core.compute.transfers import Transfers, counted_transfers
from sorites.evaluation.pipeline.consume import Counts
from sorites.evaluation.pipeline.devices import models_by_device
from sorites.evaluation.pipeline.jobs import Workshop, cut, distinct_inputs
from sorites.evaluation.pipeline.producers import NoProducers, Producers, ThreadProducers
from sorites.evaluation.pipeline.run import Pipeline
from sorites.evaluation.pipeline.stages import Grid
from sorites.evaluation.plan import Plan
from sorites.evaluation.predict import GREY
from sorites.evaluation.worker import Task


class PipelineRates(BaseModel):
    """Rates that a pipeline reached on one machine.

    Attributes:
        devices: The devices that evaluated.
        hardware: Of a GPU: its name, and the versions of its driver, CUDA and cuDNN.
        producers: Processes that made images.
        batch: Images per pass.
        images: Images that were made and evaluated by all models.
        made_per_second: Images per second that the producers make if nobody evaluates them.
        images_per_second: Images per second of the whole pipeline.
        utilisation: The share of the time during which the devices had work.
        decodes_per_image: How often each image of the source was decoded.
        passes: Forward passes.
        least_passes: The smallest number of passes for these images and this batch.
        copies_to_device: Copies to the device in each pass; 0 on a CPU.
        bytes_per_image: Bytes of an image that are copied to a model.
        waits: How often the host waits for the device in each pass; 0 on a CPU.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    devices: tuple[str, ...]
    hardware: dict[str, str]
    producers: int
    batch: int
    images: int
    made_per_second: float
    images_per_second: float
    utilisation: float
    decodes_per_image: float
    passes: int
    least_passes: int
    copies_to_device: float
    bytes_per_image: float
    waits: float

    def lines(self) -> list[str]:
        """Return a description for people."""
        name = self.hardware.get("name", "")
        facts = [f"{key} {value}" for key, value in self.hardware.items() if key != "name"]
        where = ", ".join(filter(None, [name, *facts]))
        return [
            f"device       {', '.join(self.devices)}{f' ({where})' if where else ''}",
            f"rate         {self.images_per_second:,.0f} images/s in batches of {self.batch};"
            f" {self.producers} producer{'s' * (self.producers != 1)} make {self.made_per_second:,.0f}/s",
            f"utilisation  {self.utilisation:.2f} (share of the time in which the device had work)",
            f"decodes      {self.decodes_per_image:.2f} per image of the source",
            f"passes       {self.passes} (at least {self.least_passes} for {self.images} images)",
            f"copies       {self.copies_to_device:g} to the device per pass, {self.bytes_per_image:,.0f}"
            " bytes per image and model",
            f"waits        {self.waits:g} per pass for the device",
        ]


def measure(plan: Plan, producers: int, batch: int, seconds: float) -> PipelineRates:
    """Run a plan as a pipeline for about some seconds, write nothing, and return what it reached.

    Args:
        plan: The plan, whose models were tried.
        producers: The number of processes that make images.
        batch: Images per pass.
        seconds: Use as many samples of the plan as this time is enough for.
    """
    plan = plan.with_batch(batch)
    devices = models_by_device(plan)
    every = [Task(unit, tuple(plan.models)) for unit in plan.units()]
    made = producer_rate(plan, every, producers, seconds / 4)
    tasks = _first_tasks(plan, every, seconds * min(made, _model_rate(plan, batch) * len(devices)))
    counts = Counts()
    for _ in Pipeline(producers, batch, devices, counts=counts).run(
        plan, tasks, lambda task, predicted: None
    ):
        pass
    moved = [_transfers(model, batch) for model in plan.models.values() if _is_on_device(model)]
    names = tuple(dict.fromkeys(model.backend.device for models in devices for model in models.values()))
    return PipelineRates(
        devices=names,
        hardware=gpu_facts(names[0]),
        producers=producers,
        batch=batch,
        images=counts.images,
        made_per_second=made,
        images_per_second=counts.images * len(devices) / counts.seconds if counts.seconds else 0.0,
        utilisation=counts.utilisation,
        decodes_per_image=counts.decoded / _source_images(plan, tasks),
        passes=counts.passes,
        least_passes=-(-counts.images // batch) * len(plan.models),
        copies_to_device=sum(each.to_device for each in moved) / max(1, len(moved)),
        bytes_per_image=counts.bytes / max(1, counts.images) / len(plan.models),
        waits=sum(each.from_device for each in moved) / max(1, len(moved)),
    )


def _first_tasks(plan: Plan, tasks: Sequence[Task], images: float) -> list[Task]:
    """Return the tasks of the first ranges of samples that have at least this many images."""
    chosen: list[Task] = []
    count = 0
    for _, group in groupby(tasks, key=lambda task: task.unit.start):
        if chosen and count >= images:
            break
        rows = list(group)
        chosen += rows
        count += sum(plan.images_of(task.unit) for task in rows)
    return chosen


def _model_rate(plan: Plan, batch: int) -> float:
    """Return the images per second that all models of a plan evaluate in passes of a batch."""
    seconds = 0.0
    for model in plan.models.values():
        inputs = _inputs(model, batch)
        model.forward(inputs)
        start = time.perf_counter()
        model.forward(inputs)
        seconds += time.perf_counter() - start
    return batch / max(seconds, 1e-9)


def producer_rate(plan: Plan, tasks: Sequence[Task], producers: int, seconds: float) -> float:
    """Return the images per second that producers make, whose images are only counted."""
    inputs, _ = distinct_inputs(plan)
    stage = Grid(plan, lambda task, predicted: None)
    numbers = tuple(range(len(inputs)))
    jobs = list(cut((task.unit.start, stage.part(i, task, numbers)) for i, task in enumerate(tasks)))
    workshop = Workshop.of(plan, inputs)
    making: Producers | ThreadProducers
    try:
        making = Producers(workshop, producers, jobs[0])
    except NoProducers:
        making = ThreadProducers(workshop, producers)
    with making as make:
        count, start, now = 0, 0.0, 0.0
        for images in make(iter(jobs)):
            now = time.perf_counter()
            # The first images arrive after a start that a run has once.
            start, count = (start, count + len(images)) if start else (now, 0)
            if now - start > seconds:
                break
        return count / (now - start) if now > start else 0.0


def _source_images(plan: Plan, tasks: Sequence[Task]) -> int:
    """Return the number of images of the source that tasks are made of."""
    slices = {
        (CLEAN if task.unit.shift in plan.shifts else task.unit.shift, task.unit.start): len(task.unit)
        for task in tasks
    }
    return sum(slices.values())


def _transfers(model: Model, batch: int) -> Transfers:
    """Return the copies of one pass."""
    inputs = _inputs(model, batch)
    return counted_transfers(lambda: model.forward(inputs))


def _is_on_device(model: Model) -> bool:
    return model.backend.library == "torch" and model.backend.kind != "cpu"


def _inputs(model: Model, batch: int) -> list[NDArray[Any]]:
    return [model.prepare(GREY, True)] * batch
