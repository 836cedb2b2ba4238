"""What a grid of two shifts costs: making its images, relative to the passes of three models.

Processor time of one thread. The images of a sample share decoding and the first shift; ``alone`` makes each
image by itself, for comparison.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sorites.core.compute.torch_tools import one_thread
from sorites.core.rng import rng_for
from sorites.core.samples import to_float, to_uint8
from sorites.evaluation import plan as plans
from sorites.evaluation.images import Shot, shots
from sorites.evaluation.plan import Plan, Unit
from sorites.evaluation.predict import predict
from sorites.suites.suite import load

GRID = "exposure_stops x defocus_disk"


def seconds(do: Callable[[], object]) -> float:
    start = time.process_time()
    do()
    return time.process_time() - start


def alone(plan: Plan, unit: Unit) -> None:
    """Make each image by itself."""
    shift = plan.shifts[GRID]
    for sample in plan.groups[GRID][unit.start : unit.stop]:
        for setting in plan.settings[GRID]:
            image = to_float(plan.framed(sample.id))
            ((made, _),) = shift.sweep_drawn(
                image, [setting], lambda name, id_=sample.id: rng_for(0, id_, name)
            )
            to_uint8(made)


def run(samples: int = 8) -> list[tuple[str, float, str]]:
    """(what, figure, unit)."""
    suite = load("demo").override(grid=[GRID], limit=samples)
    plan = plans.make(suite)
    unit = Unit(GRID, 0, samples)
    made: list[Shot] = list(shots(plan, unit))  # decodes the clean images, once
    with one_thread():
        predict(plan, made[:8], 8)
        images = seconds(lambda: list(shots(plan, unit)))
        single = seconds(lambda: alone(plan, unit))
        passes = seconds(
            lambda: [
                model([shot.image for shot in made[i : i + 8] if shot.image is not None], True)
                for model in plan.models.values()
                for i in range(0, len(made), 8)
            ]
        )
        whole = seconds(lambda: predict(plan, shots(plan, unit), 8))
    count = len(made)
    of_all = f"{count} images of {samples} samples, {len(plan.models)} models"
    return [
        ("grid: whole over the passes of the models", whole / passes, f"at most 1.15; {of_all}"),
        ("grid: making an image, ms", images / count * 1e3, f"{single / count * 1e3:.2f} ms if made alone"),
    ]
