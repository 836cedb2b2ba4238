"""Images, sliders and words made in other processes are those that one process makes, and a training that is
killed goes on to the same bytes.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

pytest.importorskip("diffusers", reason="needs: pip install 'sorites[generate]'")

from tests.apps.generation import work

from sorites.apps.generation.images import MANIFEST, units_of
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.shelves import Concept


def test_units_hold_every_seed_once() -> None:
    places = [("snow", Concept(0, "disc")), ("night", Concept(0, "disc"))]
    units = list(units_of(places, range(1, 6), 2))
    assert [seeds for _, _, seeds in units] == [(1, 2), (3, 4), (5,)] * 2
    assert [shift for shift, _, _ in units] == ["snow"] * 3 + ["night"] * 3


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files below a folder but for its lock, by relative path."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".sorites.lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def made(tiny: Pipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything made by one process (``one``), by two workers (``two``), at once (``whole``) and killed three
    times (``killed``). A single script makes all but the first, because loading the libraries takes most time.
    """
    root = tmp_path_factory.mktemp("spread")
    for number, name in enumerate(("disc", "cross")):
        (root / "real" / name).mkdir(parents=True)
        noise = np.random.default_rng(number).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
        for place, image in enumerate(noise):
            Image.fromarray(image).save(root / "real" / name / f"{place}.png")
    points = sorted(random.sample(range(1, work.STEPS), 3))
    work.make(str(tiny.path), root / "one", None)
    done = subprocess.run(
        [sys.executable, "-m", "tests.apps.generation.work", str(tiny.path), str(root), *map(str, points)],
        check=False, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "-9", "-9", "-9", "0"], (points, done.stderr)
    return root


@pytest.mark.slow
def test_two_workers_draw_the_same_images_as_one(tiny: Pipe, made: Path) -> None:
    alone, among = (pl.read_parquet(made / name / "images" / MANIFEST) for name in ("one", "two"))
    assert alone.height == 2 * 2 * (2 + 2)
    assert among.drop("hash").equals(alone.drop("hash"))
    # another batch may round a value of an image to the next of 256
    assert (among["hash"] == alone["hash"]).mean() > 0.9
    folder = made / "two" / "images"
    times = {path: (folder / path).stat().st_mtime_ns for path in among["path"]}
    (folder / among["path"][1]).unlink()
    again = work.draw(str(tiny.path), made / "two", None)
    assert again.drop("hash").equals(among.drop("hash"))
    new = {path for path, time in times.items() if (folder / path).stat().st_mtime_ns != time}
    assert new == set(among["path"][:2]), "only the trajectory with the lost image is drawn again"


@pytest.mark.slow
@pytest.mark.parametrize(("what", "files"), [("sliders", 6), ("words", 4)])
def test_two_workers_train_the_same_as_one(made: Path, what: str, files: int) -> None:
    one = contents(made / "one" / what)
    assert len(one) == files
    assert contents(made / "two" / what) == one


@pytest.mark.slow
def test_a_slider_killed_at_random_points_is_the_slider_trained_at_once(made: Path) -> None:
    """SIGKILL after a random number of steps, three times; then the bytes are those of one training."""
    whole = contents(made / "whole")
    assert len(whole) == 2
    assert contents(made / "killed") == whole
