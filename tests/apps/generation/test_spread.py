"""Images drawn by an engine in other processes are those that one process draws, and what is
there is not drawn again.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

pytest.importorskip("diffusers", reason="needs: pip install 'sorites[generate]'")

from sorites.apps.generation.images import MANIFEST, Spread, make_images, open_pipe, units_of
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
