"""The simulated camera on one core: images a second over the published grid, and its cost against
the model pass.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from bench import _realism
from bench.shifts import scene
from sorites import core
from sorites.core import camera_grid, to_uint8
from sorites.core.rng import rng_for

ROUNDS = 5


def seconds(settings: Sequence[Mapping[str, Any]], **options: Any) -> float:
    """CPU seconds an image: the quickest of some sweeps."""
    shift, image = core.shift("camera", **options), scene()
    times = []
    for turn in range(ROUNDS):
        start = time.process_time()
        for made in shift.sweep(image, settings, rng_for(0, str(turn), "camera")):
            to_uint8(made)
        times.append((time.process_time() - start) / len(settings))
    return min(times)


def model_pass() -> float:
    """CPU seconds an image of lite0, batches of 8."""
    lite, batch = core.model("lite0"), [to_uint8(scene())] * 8
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        lite(batch, framed=True)
        times.append((time.process_time() - start) / len(batch))
    return min(times)


def run() -> list[tuple[str, float, str]]:
    manual = [params for light in camera_grid.LIGHTS for params in camera_grid.manual("test", light)]
    whole, one = seconds(manual), seconds(manual[:1])
    kinds = {"bright (19)": 19, "dark (25)": 25, "dim at high ISO (27)": 27}
    alone = {name: seconds([manual[number - 1]] * 20) for name, number in kinds.items()}
    photos = os.environ.get("SORITES_PHOTOS")
    return [
        ("images a second on one core, sweep of 54 settings", 1 / whole, "aim 150"),
        *((f"images a second, {name}", 1 / spent, "") for name, spent in alone.items()),
        ("images a second, Bayer mosaic", 1 / seconds(manual, mosaic=True), ""),
        ("single shots against the sweep", one / whole, "x the time"),
        ("an image of the sweep against lite0's pass", whole / model_pass(), "aim under 0.33"),
        *(_realism.rows(photos) if photos else []),
    ]
