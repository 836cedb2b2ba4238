"""Estimate the cost of a run before it starts: images, passes and bytes, and the time from a calibration.

Counts are exact, except for the probes of a refinement, for which the maximum is given. Times are sums of the
times measured on one machine; if a number of workers was not measured, the speed-up is extrapolated.
"""

from __future__ import annotations

import itertools
import json
import math
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sorites.core import CLEAN, ImageU8, Model
from sorites.core.compute.machine import cores
from sorites.core.errors import SoritesError
from sorites.core.messages import command
from sorites.core.table import write
from sorites.evaluation import plan as plans
from sorites.evaluation.images import shots
from sorites.evaluation.pipeline.measure import PipelineRates, measure
from sorites.evaluation.plan import Plan, Unit
from sorites.evaluation.predict import predict
from sorites.evaluation.runner import choose_batch, device_used, works_alone
from sorites.evaluation.samples import framed_image
from sorites.io.files import read_json, write_bytes
from sorites.suites.suite import Suite

# Number of samples used by a calibration.
SAMPLES = 16
# Repetitions of each measurement; the median counts.
ROUNDS = 3
# Seconds for which the pipeline of producers and devices is measured at most.
PIPELINE_SECONDS = 10.0
# Samples that are used for that on a GPU at most.
PIPELINE_SAMPLES = 1024
# Bytes per row in large shards: a million rows of labels take about 9 MB.
BYTES_PER_ROW = 9.0


class Calibration(BaseModel):
    """Seconds of one worker on one machine: to decode a sample, and to shift and evaluate one image."""

    model_config = ConfigDict(extra="forbid")

    machine: str
    date: str
    samples: int = Field(gt=0)
    decode: float = Field(ge=0)
    shifts: dict[str, float]
    models: dict[str, float]
    write: float = Field(ge=0)
    """Seconds per written row."""
    speedup: dict[int, float]
    """Speed-up by number of workers."""
    pipeline: PipelineRates | None = None
    """Rates that producers and devices reach together; a run on a GPU uses them."""


@dataclass(frozen=True)
class Costs:
    """Estimated costs of a run."""

    samples: int
    images: Mapping[str, int]
    """Images by shift."""
    models: tuple[str, ...]
    probes: int
    """Maximum number of images per model for a refinement."""
    rows: int
    units: int
    slice: int

    @property
    def passes(self) -> int:
        """Forward passes of all models, without probes."""
        return sum(self.images.values()) * len(self.models)

    def bytes(self) -> int:
        """Return the approximate size of the table in bytes."""
        return round(self.rows * BYTES_PER_ROW)

    def seconds(self, calibration: Calibration, workers: int) -> tuple[float, bool]:
        """Return the estimated time, and whether this number of workers was measured.

        Raises:
            SoritesError: The calibration lacks a shift or model.
        """
        for kind, names, measured in (
            ("shift", self.images, calibration.shifts),
            ("model", self.models, calibration.models),
        ):
            missing = [name for name in names if name not in measured]
            if missing:
                raise SoritesError(
                    f"the calibration has no {kind} {missing[0]}. Measure it:"
                    f" {command('plan calibrate', 'SUITE')}"
                )
        rates = calibration.pipeline
        if rates is not None and rates.devices != ("cpu",) and rates.images_per_second:
            return sum(self.images.values()) / rates.images_per_second, True
        shift_seconds = sum(count * (calibration.shifts[name]) for name, count in self.images.items())
        model_seconds = sum(sum(self.images.values()) * calibration.models[name] for name in self.models)
        single_worker_seconds = (
            self.samples * calibration.decode + shift_seconds + model_seconds + self.rows * calibration.write
        )
        if workers in calibration.speedup:
            return single_worker_seconds / calibration.speedup[workers], True
        max_workers = max(calibration.speedup)
        return single_worker_seconds / (calibration.speedup[max_workers] / max_workers * workers), False


def costs(suite: Suite) -> Costs:
    """Count the images, rows and tasks of a suite; its source is listed, but no model is loaded."""
    plan = plans.make(
        suite.model_copy(update={"models": (), "scorers": (), "scorers_if_fitted": (), "fit": None})
    )
    images: dict[str, int] = {}
    for name, group in plan.groups.items():
        images[name] = len(group) * len(plan.settings.get(name, (0,)))
    scorers = len(suite.scorers) + (len(suite.scorers_if_fitted) if suite.fit else 0)
    probes = sum(
        len(plan.groups[name]) * _halvings(plan, name) for name, shift in plan.shifts.items() if shift.levels
    )
    rows = sum(images.values()) * len(suite.models) * (1 + scorers)
    units = sum(-(-len(group) // plan.slice) for group in plan.groups.values())
    return Costs(
        len(plan.clean_ids) or sum(images.values()),
        images,
        suite.model_names,
        probes,
        rows,
        units,
        plan.slice,
    )


def _halvings(plan: Plan, shift: str) -> int:
    """Return how often the widest gap between two settings of a shift is halved."""
    if not plan.suite.refine:
        return 0
    settings = sorted(
        {0.0, *(setting for setting in plan.settings[shift] if isinstance(setting, int | float))}
    )
    widest = max((high - low for low, high in itertools.pairwise(settings)), default=0.0)
    step = plan.suite.refine * max(plan.shifts[shift].levels)
    return max(0, math.ceil(math.log2(widest / step) - 1e-9)) if widest > 0 else 0


def calibrate(
    suite: Suite, out: Path, workers: int | None = None, say: Callable[[str], None] = lambda text: None
) -> Calibration:
    """Measure the time of a suite's images, shifts and models on this machine, and write it to ``out``."""
    plan = plans.make(
        suite.model_copy(update={"limit": min(suite.limit or SAMPLES, SAMPLES), "fit": None, "refine": None})
    )
    group = plan.groups[CLEAN] or next(iter(plan.groups.values()))
    images = [framed_image(plan.suite, sample) for sample in group]
    decode = _seconds(lambda: [framed_image(plan.suite, sample) for sample in group]) / len(group)
    shifts = {name: _shift_seconds(plan, name, decode) for name in plan.groups}
    framed = plan.is_framed(group[0])
    models = {name: _model_seconds(model, images, framed) for name, model in plan.models.items()}
    write_seconds = _write_seconds(plan) if plan.models else 0.0
    max_workers = workers or cores()
    # threads bring no speed-up, and processes are not measured
    single_threaded = any(works_alone(model) for model in plan.models.values())
    speedup = {n: _speedup(plan, n) for n in sorted({1} if single_threaded else {1, max_workers})}
    rates = _pipeline_rates(suite, plan) if plan.models else None
    calibration = Calibration(
        machine=f"{platform.machine()}, {cores()} cores, {platform.system()}",
        date=time.strftime("%Y-%m-%d"),
        samples=len(group), decode=decode, shifts=shifts, models=models, write=write_seconds, speedup=speedup,
        pipeline=rates,
    )  # fmt: skip
    write_bytes(calibration.model_dump_json(indent=1).encode(), out)
    say(f"measured on {len(group)} samples")
    return calibration


def _pipeline_rates(suite: Suite, plan: Plan) -> PipelineRates:
    """Measure the pipeline on the images of a calibration; on a GPU, which is fast, on more of them."""
    from sorites.evaluation.options import DEFAULT_BATCH

    if device_used(plan) != "cpu":
        limit = min(suite.limit or PIPELINE_SAMPLES, PIPELINE_SAMPLES)
        plan = plans.make(suite.model_copy(update={"limit": limit, "fit": None, "refine": None}))
    batch, _ = choose_batch(plan, DEFAULT_BATCH)
    return measure(plan, max(1, cores() - 1), batch, PIPELINE_SECONDS)


def read_calibration(path: Path) -> Calibration:
    """Read a file written by ``calibrate``."""
    try:
        return Calibration.model_validate_json(json.dumps(read_json(path)))
    except (SoritesError, ValidationError) as error:
        why = str(error).splitlines()[0]
        raise SoritesError(
            f"{path} is not a calibration: {why}. Create one:"
            f" {command('plan calibrate', 'SUITE', out=str(path))}"
        ) from error


def as_json(costs_: Costs) -> dict[str, Any]:
    """Return the counts as plain values for JSON."""
    return {**asdict(costs_), "passes": costs_.passes, "bytes": costs_.bytes()}


def _seconds(do: Callable[[], object]) -> float:
    taken = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        do()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def _shift_seconds(plan: Plan, name: str, decode: float) -> float:
    """Return the seconds per image of a shift, without decoding; framed clean images stay in memory
    meanwhile.
    """
    unit = Unit(name, 0, len(plan.groups[name]))
    list(shots(plan, unit))
    again = 0.0 if plan.suite.frame and (name == CLEAN or name in plan.shifts) else len(unit) * decode
    count = plan.images_of(unit)
    return max(0.0, _seconds(lambda: list(shots(plan, unit))) - again) / count if count else 0.0


def _model_seconds(model: Model, images: list[ImageU8], framed: bool) -> float:
    from sorites.evaluation.options import DEFAULT_BATCH

    batch = [images[i % len(images)] for i in range(DEFAULT_BATCH)]
    model(batch, framed)
    return _seconds(lambda: model(batch, framed)) / len(batch)


def _write_seconds(plan: Plan) -> float:
    """Return the seconds to write one row of a shard."""
    name = next(iter(plan.groups))
    predictions = predict(plan, shots(plan, Unit(name, 0, len(plan.groups[name]))), 8)
    rows = next(iter(predictions.values())).rows
    repeated = pl.concat([rows] * max(1, 4096 // max(1, rows.height)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        return _seconds(lambda: write(repeated, path)) / repeated.height


def _speedup(plan: Plan, workers: int) -> float:
    """Return the speed-up of several threads over one, on tasks of the last shift.

    A model may already use several cores for one caller; then the speed-up is smaller.
    """
    from sorites.evaluation.options import DEFAULT_BATCH

    if workers == 1:
        return 1.0
    shift = list(plan.groups)[-1]
    unit = Unit(shift, 0, 1)

    def once(_: int = 0) -> object:
        return predict(plan, shots(plan, unit), DEFAULT_BATCH) if plan.models else list(shots(plan, unit))

    jobs = 2 * workers
    once()
    alone = _seconds(lambda: [once() for _ in range(jobs)])
    with ThreadPoolExecutor(workers) as pool:
        together = _seconds(lambda: list(pool.map(once, range(jobs))))
    return max(1.0, alone / together)


# Descriptions of a plan.


# Number of images among which a labelled one is searched.
MAX_IMAGES_SEARCHED = 100_000


def input_lines(plan: Plan) -> list[str]:
    """Return a line per model that says how it scales, crops and normalises an image."""
    framed = plan.suite.frame is not None
    return [
        f"{name} sees {input_words(model.input, framed)}"
        for name, model in plan.models.items()
        if "words" not in model.input  # a detector describes itself when it is loaded
    ]


def note_unlabelled(plan: Plan) -> str:
    """Return a notice if none of the first images has a label or ground-truth boxes, else an empty text."""
    samples = itertools.islice(
        (sample for group in plan.groups.values() for sample in group), MAX_IMAGES_SEARCHED
    )
    if any(
        sample.label is not None or sample.accept or sample.ground_truth is not None for sample in samples
    ):
        return ""
    return (
        f"no image of {plan.suite.source} has a label, so predictions cannot be judged as correct or"
        " misclassified"
    )


def input_words(preprocessing: Mapping[str, Any], framed: bool = False) -> str:
    """Describe a model's preprocessing in one line; a framed image is only scaled, never cropped."""
    outputs = "; its probabilities become logits by their logarithm" if "outputs" in preprocessing else ""
    if "words" in preprocessing:
        return f"{preprocessing['words']}{_assumed(preprocessing)}"
    if "size" not in preprocessing:
        return f"images as they are; its preprocessing is unknown{outputs}"
    height, width = preprocessing["size"]
    if "processor" in preprocessing:
        scaled = "the frame scaled, then " if framed else ""
        return f"{width} x {height} px: {scaled}its own {preprocessing['processor']}{outputs}"
    scaled = "the frame scaled" if framed else _cropped(preprocessing)
    return (
        f"{width} x {height} px: {scaled} ({preprocessing['filter']}); mean"
        f" {_numbers(preprocessing['mean'])}, std"
        f" {_numbers(preprocessing['std'])}{_assumed(preprocessing)}{outputs}"
    )


def _assumed(preprocessing: Mapping[str, Any]) -> str:
    """Name the settings that the model does not declare."""
    names = preprocessing.get("assumed", ())
    return f" (assumed, because the model does not declare them: {', '.join(names)})" if names else ""


def _cropped(preprocessing: Mapping[str, Any]) -> str:
    sides = sorted({math.floor(side / preprocessing["crop_pct"]) for side in preprocessing["size"]})
    to = " and ".join(map(str, sides))
    if preprocessing["mode"] == "squash":
        return f"both sides scaled to {to} and the centre cropped"
    return f"the shorter side scaled to {to} and the centre cropped"


def _numbers(values: Any) -> str:
    return " ".join(f"{value:.3g}" for value in values)
