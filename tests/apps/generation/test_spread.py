"""Images drawn by an engine in other processes are those that one process draws, and what is
there is not drawn again.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("diffusers", reason="needs: pip install 'sorites[generate]'")

from sorites.apps.generation.images import MANIFEST, make_images, units_of
from sorites.apps.generation.spread import Spread, open_pipe
from sorites.diffusion.sampler import TOY_DRAWING
from sorites.diffusion.shelves import Concept, shelf
from sorites.evaluation.engines import ENGINES


def test_units_hold_every_seed_once() -> None:
    places = [("snow", Concept(0, "disc")), ("night", Concept(0, "disc"))]
    units = list(units_of(places, range(1, 6), 2))
    assert [seeds for _, _, seeds in units] == [(1, 2), (3, 4), (5,)] * 2
    assert [shift for shift, _, _ in units] == ["snow"] * 3 + ["night"] * 3


@pytest.mark.slow
def test_an_engine_of_processes_draws_the_same_images(tmp_path: Path) -> None:
    some = shelf("toy").kept(["snow"], ["disc", "square"])
    drawing = TOY_DRAWING
    pipe = open_pipe("toy")
    spread = Spread(ENGINES.get("processes"), 2, functools.partial(open_pipe, "toy"))
    alone = make_images(pipe, some, (0, 1), (1, 2, 3), tmp_path / "alone", drawing, "png", by_text=True)
    among = make_images(
        pipe,
        some,
        (0, 1),
        (1, 2, 3),
        tmp_path / "among",
        drawing,
        "png",
        by_text=True,
        batch=2,
        spread=spread,
    )
    assert alone.height == 2 * 3 * (2 + 2)
    assert among.drop("hash").equals(alone.drop("hash"))
    assert (tmp_path / "among" / MANIFEST).is_file()
    # another batch may round a value of an image to the next of 256
    assert (among["hash"] == alone["hash"]).mean() > 0.9
    times = {path: (tmp_path / "among" / path).stat().st_mtime_ns for path in among["path"]}
    (tmp_path / "among" / among["path"][1]).unlink()
    again = make_images(
        pipe,
        some,
        (0, 1),
        (1, 2, 3),
        tmp_path / "among",
        drawing,
        "png",
        by_text=True,
        batch=2,
        spread=spread,
    )
    assert again.equals(among)
    drawn = {path for path, time in times.items() if (tmp_path / "among" / path).stat().st_mtime_ns != time}
    assert drawn == set(among["path"][:2]), "only the trajectory with the lost image is drawn again"


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files below a folder but for its lock, by relative path."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".sorites.lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.slow
def test_two_workers_train_the_same_sliders_as_one(tmp_path: Path) -> None:
    from sorites.apps.generation.concepts import concepts
    from sorites.apps.generation.recipes import TOY
    from sorites.apps.generation.sliders import train_sliders
    from sorites.reports.figures.strips import sheet

    brief, some = replace(TOY, steps=3, batch=2, noise_steps=4), concepts("toy", ["disc", "cross"])
    few = replace(TOY_DRAWING, steps=2)
    spread = Spread(ENGINES.get("processes"), 2, functools.partial(open_pipe, "toy"))
    for name, workers in (("one", None), ("two", spread)):
        made = train_sliders(
            open_pipe("toy"), some, ["snow"], brief, tmp_path / name, few, sheet, spread=workers
        )
        assert [path.name for path in made] == ["000_disc", "003_cross"]
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


@pytest.mark.slow
def test_two_workers_learn_the_same_words_as_one(tmp_path: Path) -> None:
    from sorites import core
    from sorites.apps.generation.concepts import concepts, label_space, labels_of
    from sorites.apps.generation.recipes import TOY_WORDS
    from sorites.apps.generation.words import learn_words

    brief, some = replace(TOY_WORDS, steps=3, batch=2), concepts("toy", ["disc", "cross"])
    _write_shapes(tmp_path / "real")
    space = label_space(some)
    samples = core.source(f"folder:{tmp_path / 'real'}", space).samples
    spread = Spread(ENGINES.get("processes"), 2, functools.partial(open_pipe, "toy"))
    for name, workers in (("one", None), ("two", spread)):
        learn_words(
            open_pipe("toy"), some, samples, labels_of(some, space), brief, tmp_path / name, spread=workers
        )
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    assert len(contents(tmp_path / "one")) == 4


def _write_shapes(folder: Path) -> None:
    import numpy as np
    from PIL import Image

    for number, name in enumerate(("disc", "cross")):
        (folder / name).mkdir(parents=True)
        noise = np.random.default_rng(number).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
        for place, image in enumerate(noise):
            Image.fromarray(image).save(folder / name / f"{place}.png")


KILLED = """
import os, random, signal, sys
from dataclasses import replace
from pathlib import Path
from sorites.apps.generation import sliders
from sorites.apps.generation.concepts import concepts
from sorites.apps.generation.recipes import TOY
from sorites.apps.generation.spread import open_pipe
from sorites.diffusion.sampler import TOY_DRAWING

sliders.STEPS_PER_CHECKPOINT = 4
out, last = Path(sys.argv[1]), int(sys.argv[2])
brief = replace(TOY, steps=40, batch=2, noise_steps=4, refresh=2)
done = 0

def tick(count):
    global done
    done += count
    if done > last >= 0:
        os.kill(os.getpid(), signal.SIGKILL)

sliders.train_sliders(
    open_pipe("toy"), concepts("toy", ["disc"]), ["snow"], brief, out, TOY_DRAWING, bar=lambda what, total: tick
)
"""


@pytest.mark.slow
def test_a_slider_killed_at_random_points_is_the_slider_trained_at_once(tmp_path: Path) -> None:
    """SIGKILL after a random number of steps, three times; then the bytes are those of one training."""
    import random
    import subprocess
    import sys

    def train(name: str, last: int) -> int:
        return subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path / name), str(last)], check=False
        ).returncode

    assert train("whole", -1) == 0
    points = sorted(random.sample(range(1, 40), 3))
    for point in points:
        assert train("killed", point) == -9, point
    assert train("killed", -1) == 0
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole"), points
