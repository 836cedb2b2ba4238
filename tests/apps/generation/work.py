"""Sliders, words and images by one process or by two; as a script also trainings that are killed.

The script loads the libraries once and then forks: two workers, and one child per training.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from sorites import core
from sorites.apps.generation import sliders
from sorites.apps.generation.concepts import label_space, labels_of
from sorites.apps.generation.images import make_images
from sorites.apps.generation.recipes import TOY, TOY_WORDS
from sorites.apps.generation.spread import Spread, open_pipe
from sorites.apps.generation.words import learn_words
from sorites.diffusion.sampler import SamplerOptions
from sorites.diffusion.shelves import Concept, shelf
from sorites.evaluation.engines import Engine
from sorites.reports.figures.strips import sheet

STEPS = 9
BRIEF = replace(TOY, name="brief", steps=2, batch=1, noise_steps=3, refresh=2)
FEW = SamplerOptions(steps=3, guidance=2.0, negative="")
CONCEPTS = [Concept(0, "disc"), Concept(3, "cross")]


def make(pipeline: str, out: Path, spread: Spread | None) -> None:
    """Train sliders, learn words from the images beside the folder, and draw images."""
    pipe, space = open_pipe(pipeline), label_space(CONCEPTS)
    sliders.train_sliders(pipe, CONCEPTS, ["snow"], BRIEF, out / "sliders", FEW, sheet, spread=spread)
    samples = core.source(f"folder:{out.parent / 'real'}", space).samples
    brief = replace(TOY_WORDS, steps=2, batch=1)
    learn_words(pipe, CONCEPTS, samples, labels_of(CONCEPTS, space), brief, out / "words", spread=spread)
    draw(pipeline, out, spread)


def draw(pipeline: str, out: Path, spread: Spread | None) -> pl.DataFrame:
    pipe, some = open_pipe(pipeline), shelf(out / "sliders")
    return make_images(
        pipe, some, (0, 1), (1, 2), out / "images", FEW, "png", by_text=True, batch=2, spread=spread
    )


def forked_workers() -> Engine:
    """Return an engine of two worker processes that have the libraries loaded."""

    def start(units: Sequence[Any], work: Callable[[Any], Any], workers: int) -> Iterator[tuple[Any, Any]]:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
            yield from zip(units, pool.map(work, units), strict=True)

    return Engine(start, one_process=False, name="forked")


def train(pipeline: str, out: Path, last: int) -> None:
    """Train one slider; end by SIGKILL once more steps are done than ``last``, unless that is negative."""
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        if done > last >= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sliders.STEPS_PER_CHECKPOINT = 2
    brief = replace(BRIEF, steps=STEPS)
    sliders.train_sliders(
        open_pipe(pipeline), CONCEPTS[:1], ["snow"], brief, out, FEW, bar=lambda what, total: tick
    )


def in_child(task: Callable[[], None]) -> int:
    """Do a task in a child process, and return its exit code."""
    child = os.fork()
    if child == 0:
        try:
            task()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(pipeline: str, root: Path, points: Sequence[int]) -> None:
    import torch

    torch.set_num_threads(1)
    open_pipe(pipeline)
    for name, last in (("whole", -1), *(("killed", point) for point in (*points, -1))):
        print(in_child(functools.partial(train, pipeline, root / name, last)), flush=True)
    make(pipeline, root / "two", Spread(forked_workers(), 2, functools.partial(open_pipe, pipeline)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), [int(point) for point in sys.argv[3:]])
