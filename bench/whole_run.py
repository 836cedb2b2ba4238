"""A whole run (decode, frame, shift, models, table) against the bare pass of its models on the same
number of images.

Each dial of the suite ``demo`` is run as the suite has it, with its three models, on 16 images. One of them is
also run on 96 images, with the three models and with the first model alone, which leaves the work on an image
nothing to share with, and on 1,000 images, where the start of a run counts least.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image as Pillow

from sorites.core import Model, model
from sorites.evaluation import plan, runner
from sorites.suites.suite import Suite, load

Models = dict[str, Model]

SAMPLES, WORKERS, ROUNDS = 16, 2, 5
# Images, models, rounds and the aim of the larger runs.
LARGER = ((96, 3, 3, 1.10), (96, 1, 3, 1.25), (1000, 3, 1, 1.08))
# The bare passes of larger runs are made on this many images before and after the run, and scaled: they cost the
# same for every image.
BARE_IMAGES = 640


def photographs(root: Path, count: int = SAMPLES) -> None:
    """JPEGs of a usual photograph's size and entropy: 1/f noise with edges."""
    rng = np.random.default_rng(0)
    fall = 1 / np.maximum(np.hypot(np.fft.fftfreq(375)[:, None], np.fft.rfftfreq(500)[None]), 1 / 500)
    for i in range(count):
        spectrum = np.fft.rfft2(rng.normal(size=(3, 375, 500))) * fall
        field = np.fft.irfft2(spectrum, (375, 500)).transpose(1, 2, 0)
        image = np.clip(128 + 50 * field / field.std(), 0, 255).astype(np.uint8)
        image[100:200, 50 + i : 150 + i] //= 3
        folder = root / f"{i % 10:03d}"
        folder.mkdir(exist_ok=True)
        Pillow.fromarray(image).save(folder / f"{i}.jpg", quality=90)


def bare(models: Models, images: dict[str, list[np.ndarray]]) -> None:
    """The passes of the models alone on images of their size, on as many threads as a run has workers."""
    with ThreadPoolExecutor(WORKERS) as pool:
        for name, held in images.items():
            list(
                pool.map(
                    models[name].forward,
                    [held[i : i + runner.DEFAULT_BATCH] for i in range(0, len(held), runner.DEFAULT_BATCH)],
                )
            )


def whole(recipe: Suite, models: Models) -> None:
    with tempfile.TemporaryDirectory() as out:
        runner.execute(runner.prepare(plan.make(recipe, models=models)), Path(out) / "run", workers=WORKERS)


def cost(work: Callable[[], None]) -> tuple[float, float]:
    """Seconds on the clock, and seconds of this process on all cores: the steadier of the two on a
    busy machine.
    """
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def compared(root: str, shift: str, models: Models, rounds: int = ROUNDS) -> tuple[str, float, str]:
    """One shift of the demo on the images in a folder: the least of the runs over the least of
    the bare passes.

    Both take turns. The same code takes up to a fifth more processor time while a neighbour uses
    the memory, never less.
    """
    recipe = load("demo").override(source=f"folder:{root}", models=[*models], shifts=[shift])
    images = plan.make(recipe, models=models).images()
    count = min(images, BARE_IMAGES)
    drawn = [np.random.default_rng(i).integers(0, 256, (224, 224, 3), dtype=np.uint8) for i in range(count)]
    images_u8 = {name: [one.prepare(image, True) for image in drawn] for name, one in models.items()}
    floor_work = functools.partial(bare, models, images_u8)
    both = []
    for _ in range(rounds):
        before, run = cost(floor_work), cost(functools.partial(whole, recipe, models))
        # Of passes before and after the run, the mean: the machine may have become slower in between.
        floor = [(a + b) / 2 for a, b in zip(before, cost(floor_work), strict=True)]
        both.append((run, [seconds * images / count for seconds in floor]))
    clock, processor = (min(run[i] for run, _ in both) / min(floor[i] for _, floor in both) for i in (0, 1))
    each = " ".join(f"{run[1] / floor[1]:.3f}" for run, floor in both)
    return (
        f"{shift}, {' '.join(models)}: run / bare passes",
        processor,
        f"each round {each}; on the clock {clock:.2f}",
    )


def run() -> Iterator[tuple[str, float, str]]:
    demo = load("demo")
    models = {name: model(name) for name in demo.models}
    with tempfile.TemporaryDirectory() as root:
        photographs(Path(root))
        for shift in demo.shifts:
            name, ratio, note = compared(root, shift.name, models)
            yield name, ratio, f"aim <= 1.10; {note}"
    for samples, used, rounds, aim in LARGER:
        with tempfile.TemporaryDirectory() as root:
            photographs(Path(root), samples)
            some = dict(list(models.items())[:used])
            name, ratio, note = compared(root, demo.shifts[0].name, some, rounds)
            yield f"{name}, {samples} images", ratio, f"aim <= {aim:.2f}; {note}"
