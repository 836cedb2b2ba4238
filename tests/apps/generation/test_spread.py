"""Images drawn by an engine in other processes are those that one process draws, and what is
there is not drawn again.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

pytest.importorskip("diffusers", reason="needs: pip install 'sorites[generate]'")

from tests.apps.generation.conftest import CONCEPTS, FEW, QUICK

from sorites import core
from sorites.apps.generation.concepts import label_space, labels_of
from sorites.apps.generation.images import MANIFEST, make_images, units_of
from sorites.apps.generation.recipes import TOY_WORDS
from sorites.apps.generation.sliders import train_sliders
from sorites.apps.generation.spread import Spread, open_pipe
from sorites.apps.generation.words import learn_words
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.shelves import Concept, Shelf
from sorites.evaluation.engines import Engine
from sorites.reports.figures.strips import sheet


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Engine]:
    """An engine of two processes that all tests share, because starting them takes most of the time."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:

        def start(
            units: Sequence[Any], work: Callable[[Any], Any], workers: int
        ) -> Iterator[tuple[Any, Any]]:
            assert workers == 2
            yield from zip(units, pool.map(work, units), strict=True)

        yield Engine(start, one_process=False, name="two")


def spread_over(engine: Engine, pipe: Pipe) -> Spread:
    return Spread(engine, 2, functools.partial(open_pipe, str(pipe.path)))


def test_units_hold_every_seed_once() -> None:
    places = [("snow", Concept(0, "disc")), ("night", Concept(0, "disc"))]
    units = list(units_of(places, range(1, 6), 2))
    assert [seeds for _, _, seeds in units] == [(1, 2), (3, 4), (5,)] * 2
    assert [shift for shift, _, _ in units] == ["snow"] * 3 + ["night"] * 3


@pytest.mark.slow
def test_an_engine_of_processes_draws_the_same_images(
    tiny: Pipe, sliders: Shelf, two_workers: Engine, tmp_path: Path
) -> None:
    def drawn(name: str, spread: Spread | None = None) -> pl.DataFrame:
        some = sliders.kept(["snow"], ["disc", "cross"])
        return make_images(
            tiny, some, (0, 1), (1, 2), tmp_path / name, FEW, "png", by_text=True, batch=2, spread=spread
        )

    alone, among = drawn("alone"), drawn("among", spread_over(two_workers, tiny))
    assert alone.height == 2 * 2 * (2 + 2)
    assert among.drop("hash").equals(alone.drop("hash"))
    assert (tmp_path / "among" / MANIFEST).is_file()
    # another batch may round a value of an image to the next of 256
    assert (among["hash"] == alone["hash"]).mean() > 0.9
    times = {path: (tmp_path / "among" / path).stat().st_mtime_ns for path in among["path"]}
    (tmp_path / "among" / among["path"][1]).unlink()
    again = drawn("among")
    assert again.drop("hash").equals(among.drop("hash"))
    new = {path for path, time in times.items() if (tmp_path / "among" / path).stat().st_mtime_ns != time}
    assert new == set(among["path"][:2]), "only the trajectory with the lost image is drawn again"


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files below a folder but for its lock, by relative path."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".sorites.lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.slow
def test_two_workers_train_the_same_sliders_as_one(tiny: Pipe, two_workers: Engine, tmp_path: Path) -> None:
    for name, workers in (("one", None), ("two", spread_over(two_workers, tiny))):
        made = train_sliders(tiny, CONCEPTS, ["snow"], QUICK, tmp_path / name, FEW, sheet, spread=workers)
        assert [path.name for path in made] == ["000_disc", "003_cross"]
    assert len(contents(tmp_path / "one")) == 6
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


@pytest.mark.slow
def test_two_workers_learn_the_same_words_as_one(tiny: Pipe, two_workers: Engine, tmp_path: Path) -> None:
    brief = replace(TOY_WORDS, steps=3, batch=2)
    _write_shapes(tmp_path / "real")
    space = label_space(CONCEPTS)
    samples, numbered = core.source(f"folder:{tmp_path / 'real'}", space).samples, labels_of(CONCEPTS, space)
    for name, workers in (("one", None), ("two", spread_over(two_workers, tiny))):
        learn_words(tiny, CONCEPTS, samples, numbered, brief, tmp_path / name, spread=workers)
    assert len(contents(tmp_path / "one")) == 4
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def _write_shapes(folder: Path) -> None:
    for number, name in enumerate(("disc", "cross")):
        (folder / name).mkdir(parents=True)
        noise = np.random.default_rng(number).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
        for place, image in enumerate(noise):
            Image.fromarray(image).save(folder / name / f"{place}.png")


# One process imports the libraries; each training is a child of it, which SIGKILL ends at once.
KILLED = """
import os, signal, sys, traceback
from dataclasses import replace
from pathlib import Path
from sorites.apps.generation import sliders
from sorites.apps.generation.recipes import TOY
from sorites.apps.generation.spread import open_pipe
from sorites.diffusion.sampler import TOY_DRAWING
from sorites.diffusion.shelves import Concept
import torch, diffusers

torch.set_num_threads(1)
sliders.STEPS_PER_CHECKPOINT = 4
brief = replace(TOY, steps=STEPS, batch=2, noise_steps=4, refresh=2)
pipe = open_pipe(sys.argv[1])

def train(out, last):
    done = 0

    def tick(count):
        nonlocal done
        done += count
        if done > last >= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sliders.train_sliders(pipe, [Concept(0, "disc")], ["snow"], brief, Path(out), TOY_DRAWING, bar=lambda *_: tick)

for task in sys.argv[2:]:
    out, _, last = task.rpartition("=")
    child = os.fork()
    if child == 0:
        try:
            train(out, int(last))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
STEPS = 14


@pytest.mark.slow
def test_a_slider_killed_at_random_points_is_the_slider_trained_at_once(tiny: Pipe, tmp_path: Path) -> None:
    """SIGKILL after a random number of steps, three times; then the bytes are those of one training."""
    points = sorted(random.sample(range(1, STEPS), 3))
    tasks = [f"{tmp_path / 'whole'}=-1", *(f"{tmp_path / 'killed'}={p}" for p in (*points, -1))]
    script = KILLED.replace("STEPS,", f"{STEPS},")
    command = [sys.executable, "-c", script, str(tiny.path), *tasks]
    ended = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert ended.stdout.split() == ["0", "-9", "-9", "-9", "0"], ended.stderr
    whole = contents(tmp_path / "whole")
    assert len(whole) == 2
    assert contents(tmp_path / "killed") == whole, points
