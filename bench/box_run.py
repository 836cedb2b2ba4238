"""A run of detectors (compose, shift, model, table) against the bare pass of PicoDet on as many
prepared images.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np

from bench.whole_run import WORKERS, cost
from sorites.core import model
from sorites.datasets.context import build_scattered
from sorites.evaluation import plan, runner
from sorites.suites.suite import Suite

IMAGES, ROUNDS = 24, 3


def run() -> list[tuple[str, float, str]]:
    """(what, ratio, note): the images are PNG files of 640 px with several objects, blurred at
    five levels of the disk.
    """
    picodet = model("picodet")
    with tempfile.TemporaryDirectory() as root:
        build_scattered(Path(root) / "set", limit=IMAGES, drawn=True)
        recipe = Suite.model_validate(
            {
                "name": "bench",
                "source": f"context:{root}/set",
                "labels": "coco",
                "models": ["picodet"],
                "shifts": ["defocus_disk"],
            }
        )
        images = plan.make(recipe, models={"picodet": picodet}).images()
        prepared = [picodet.prepare(np.full((640, 640, 3), i % 256, np.uint8), False) for i in range(images)]

        def whole() -> None:
            with tempfile.TemporaryDirectory() as out:
                ready = runner.prepare(plan.make(recipe, models={"picodet": picodet}))
                runner.execute(ready, Path(out) / "run", workers=WORKERS)

        def bare() -> None:
            with ThreadPoolExecutor(WORKERS) as pool:
                list(pool.map(lambda one: picodet.forward([one]), prepared))

        both = [(cost(whole), cost(bare)) for _ in range(ROUNDS)]
    clock, processor = (median(one[i] / floor[i] for one, floor in both) for i in (0, 1))
    return [
        (
            f"boxes: run of defocus_disk / bare picodet pass, {images}",
            processor,
            f"aim <= 1.35; on the clock {clock:.2f}",
        )
    ]
