"""A whole run (decode, frame, shift, model, table) against the bare model pass on the same number of pictures."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image as Pillow

from sorites.core import Model, model
from sorites.pipeline import plan, runner
from sorites.suite import Suite

SAMPLES, WORKERS, ROUNDS = 64, 2, 3
SHIFTS = ("defocus_disk", "gaussian_noise", "shot_noise", "brightness", "contrast", "jpeg")


def photographs(root: Path) -> None:
    """JPEGs of a usual photograph's size and entropy: 1/f noise with edges."""
    rng = np.random.default_rng(0)
    fall = 1 / np.maximum(np.hypot(np.fft.fftfreq(375)[:, None], np.fft.rfftfreq(500)[None]), 1 / 500)
    for i in range(SAMPLES):
        spectrum = np.fft.rfft2(rng.normal(size=(3, 375, 500))) * fall
        field = np.fft.irfft2(spectrum, (375, 500)).transpose(1, 2, 0)
        picture = np.clip(128 + 50 * field / field.std(), 0, 255).astype(np.uint8)
        picture[100:200, 50 + i : 150 + i] //= 3
        folder = root / f"{i % 10:03d}"
        folder.mkdir(exist_ok=True)
        Pillow.fromarray(picture).save(folder / f"{i}.jpg", quality=90)


def bare(lite: Model, pictures: list[np.ndarray], batch: int) -> None:
    """The model pass alone, on as many threads as a run has workers."""
    batches = [pictures[i : i + batch] for i in range(0, len(pictures), batch)]
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lite.forward, batches))


def whole(recipe: Suite, lite: Model) -> None:
    with tempfile.TemporaryDirectory() as out:
        runner.execute(runner.prepare(plan.make(recipe, models={"lite0": lite})), Path(out) / "run", workers=WORKERS)


def cost(work: Callable[[], None]) -> tuple[float, float]:
    """Seconds on the clock, and seconds of this process on all cores: the steadier of the two on a busy machine."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def run() -> list[tuple[str, float, str]]:
    lite = model("lite0")
    rows = []
    with tempfile.TemporaryDirectory() as root:
        photographs(Path(root))
        for shift in SHIFTS:
            recipe = Suite.model_validate(
                {
                    "name": "bench",
                    "source": f"folder:{root}",
                    "models": ["lite0"],
                    "shifts": [shift],
                    "frame": {"resize": 256, "crop": 224},
                }
            )
            images = plan.make(recipe, models={"lite0": lite}).images()
            pictures = [np.random.default_rng(i).integers(0, 256, (224, 224, 3), dtype=np.uint8) for i in range(images)]
            both = [
                (cost(functools.partial(whole, recipe, lite)), cost(functools.partial(bare, lite, pictures, runner.BATCH)))
                for _ in range(ROUNDS)
            ]
            clock, processor = (median(run[i] / floor[i] for run, floor in both) for i in (0, 1))
            aim = "aim <= 1.15; " if shift == "defocus_disk" else ""
            rows.append((f"run of {shift} / bare lite0 pass, {images} pictures", processor, f"{aim}on the clock {clock:.2f}"))
    return rows
