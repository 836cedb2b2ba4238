"""Estimate a run before it starts: images, passes and bytes; and from times measured on a
machine, how long it takes.

Counts are exact, probes of a refinement apart, of which the most are counted. Times follow from a
calibration by addition: they say what the same machine would take, and where a number of workers
was not measured, that is said.
"""

from __future__ import annotations

import itertools
import json
import math
import os
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
from sorites.core.errors import SoritesError
from sorites.core.table import write
from sorites.evaluation import plan as plans
from sorites.evaluation.images import shots
from sorites.evaluation.plan import Plan, Unit
from sorites.evaluation.predict import predict
from sorites.evaluation.runner import works_alone
from sorites.evaluation.samples import framed_image
from sorites.io.files import read_json, write_bytes
from sorites.suites.suite import Suite

# Samples that a calibration looks at.
SAMPLES = 16
# The times each measurement is taken; the median counts.
ROUNDS = 3
# Bytes of a row in large shards: a million rows of labels are about 9 MB.
BYTES_PER_ROW = 9.0


class Calibration(BaseModel):
    """Seconds of one worker, measured on one machine: for decoding a sample, for moving and for
    showing one image.
    """

    model_config = ConfigDict(extra="forbid")

    machine: str
    date: str
    samples: int = Field(gt=0)
    decode: float = Field(ge=0)
    shifts: dict[str, float]
    models: dict[str, float]
    write: float = Field(ge=0)
    """Seconds to write a row."""
    speedup: dict[int, float]
    """By number of workers, how many times as much they do as one."""


@dataclass(frozen=True)
class Costs:
    """The estimated costs of a run of a suite."""

    samples: int
    images: Mapping[str, int]
    """Images by shift."""
    models: tuple[str, ...]
    probes: int
    """The most images that a refinement asks each model about."""
    rows: int
    units: int
    slice: int

    @property
    def passes(self) -> int:
        """Images shown to models, all together, probes not counted."""
        return sum(self.images.values()) * len(self.models)

    def bytes(self) -> int:
        """Return about how many bytes the table will have."""
        return round(self.rows * BYTES_PER_ROW)

    def seconds(self, known: Calibration, workers: int) -> tuple[float, bool]:
        """Return how long it takes by a calibration, and whether that number of workers was measured."""
        for kind, names, there in (
            ("shift", self.images, known.shifts),
            ("model", self.models, known.models),
        ):
            lacks = [name for name in names if name not in there]
            if lacks:
                raise SoritesError(
                    f"the calibration knows no {kind} {lacks[0]}. Measure it: sorites plan calibrate SUITE"
                )
        moving = sum(count * (known.shifts[name]) for name, count in self.images.items())
        showing = sum(sum(self.images.values()) * known.models[name] for name in self.models)
        alone = self.samples * known.decode + moving + showing + self.rows * known.write
        if workers in known.speedup:
            return alone / known.speedup[workers], True
        most = max(known.speedup)
        return alone / (known.speedup[most] / most * workers), False


def costs(suite: Suite) -> Costs:
    """Count what a suite will take; its source is listed, and no model is loaded."""
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
    """Return how often the widest bracket between two settings of a dial is halved."""
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
    """Measure what a suite's images, shifts and models take on this machine, and keep it in a file."""
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
    most = workers or os.cpu_count() or 1
    # threads gain nothing, and processes are not measured
    alone = any(works_alone(model) for model in plan.models.values())
    speedup = {n: _speedup(plan, n) for n in sorted({1} if alone else {1, most})}
    found = Calibration(
        machine=f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}", date=time.strftime("%Y-%m-%d"),
        samples=len(group), decode=decode, shifts=shifts, models=models, write=write_seconds, speedup=speedup,
    )  # fmt: skip
    write_bytes(found.model_dump_json(indent=1).encode(), out)
    say(f"measured on {len(group)} samples")
    return found


def read_calibration(path: Path) -> Calibration:
    """Read a file that ``calibrate`` wrote."""
    try:
        return Calibration.model_validate_json(json.dumps(read_json(path)))
    except (SoritesError, ValidationError) as error:
        why = str(error).splitlines()[0]
        raise SoritesError(
            f"{path} is no calibration: {why}. Make one: sorites plan calibrate SUITE --out {path}"
        ) from error


def told(found: Costs) -> dict[str, Any]:
    """Return the counts as plain values, for JSON."""
    return {**asdict(found), "passes": found.passes, "bytes": found.bytes()}


def _seconds(do: Callable[[], object]) -> float:
    taken = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        do()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def _shift_seconds(plan: Plan, name: str, decode: float) -> float:
    """Return the seconds that one image of a shift takes, decoding apart; framed clean images
    stay in memory meanwhile.
    """
    unit = Unit(name, 0, len(plan.groups[name]))
    list(shots(plan, unit))
    again = 0.0 if plan.suite.frame and (name == CLEAN or name in plan.shifts) else len(unit) * decode
    count = plan.images_of(unit)
    return max(0.0, _seconds(lambda: list(shots(plan, unit))) - again) / count if count else 0.0


def _model_seconds(model: Model, images: list[ImageU8], framed: bool) -> float:
    from sorites.evaluation.runner import BATCH

    some = [images[i % len(images)] for i in range(BATCH)]
    model(some, framed)
    return _seconds(lambda: model(some, framed)) / len(some)


def _write_seconds(plan: Plan) -> float:
    """Return the seconds to write a row of a shard."""
    name = next(iter(plan.groups))
    found = predict(plan, shots(plan, Unit(name, 0, len(plan.groups[name]))), 8)
    rows = next(iter(found.values())).rows
    many = pl.concat([rows] * max(1, 4096 // max(1, rows.height)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        return _seconds(lambda: write(many, path)) / many.height


def _speedup(plan: Plan, workers: int) -> float:
    """Return how much more threads do together than one alone, on units of the last shift as a run does them.

    A model may use several cores for one caller already: then threads gain less than their number.
    """
    from sorites.evaluation.runner import BATCH

    if workers == 1:
        return 1.0
    shift = list(plan.groups)[-1]
    unit = Unit(shift, 0, 1)

    def once(_: int = 0) -> object:
        return predict(plan, shots(plan, unit), BATCH) if plan.models else list(shots(plan, unit))

    jobs = 2 * workers
    once()
    alone = _seconds(lambda: [once() for _ in range(jobs)])
    with ThreadPoolExecutor(workers) as pool:
        together = _seconds(lambda: list(pool.map(once, range(jobs))))
    return max(1.0, alone / together)


# Say in words what every model of a run does to an image before it looks at it, and whether images
# have labels.


# The most images among which one with a label is looked for.
LOOKED = 100_000


def input_lines(plan: Plan) -> list[str]:
    """Return a line for each model: how it scales, crops and normalises an image."""
    framed = plan.suite.frame is not None
    return [f"{name} sees {input_words(model.input, framed)}" for name, model in plan.models.items()]


def note_unlabelled(plan: Plan) -> str:
    """Say that no image has a label or ground-truth boxes; no words where one has, which is looked for
    among the first.
    """
    samples = itertools.islice((sample for group in plan.groups.values() for sample in group), LOOKED)
    if any(
        sample.label is not None or sample.accept or sample.ground_truth is not None for sample in samples
    ):
        return ""
    return (
        f"no image of {plan.suite.source} has a label that the run knows, so that no answer can be right or"
        " wrong"
    )


def input_words(told: Mapping[str, Any], framed: bool = False) -> str:
    """Say in one line what a model's input is; a framed image is only scaled, never cropped."""
    if not told:
        return "images as they are; what it does with them is its own"
    tall, wide = told["size"]
    scaled = "the frame scaled" if framed else _cropped(told)
    return (
        f"{wide} x {tall} px: {scaled} ({told['filter']}); mean {_numbers(told['mean'])}, std"
        f" {_numbers(told['std'])}"
    )


def _cropped(told: Mapping[str, Any]) -> str:
    sides = sorted({math.floor(side / told["crop_pct"]) for side in told["size"]})
    to = " and ".join(map(str, sides))
    if told["mode"] == "squash":
        return f"both sides scaled to {to} and the middle cut out"
    return f"the shorter side scaled to {to} and the middle cut out"


def _numbers(values: Any) -> str:
    return " ".join(f"{value:.3g}" for value in values)
