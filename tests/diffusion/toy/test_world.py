"""The toy world as it is shipped: the gate, and what its sliders must do, judged by a classifier of
real images.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from tools.toy_world import caption

from sorites.core.errors import SoritesError
from sorites.diffusion.pipeline import Pipe, load, toy_folder
from sorites.diffusion.sampler import TOY_DRAWING, Request, along, sample
from sorites.diffusion.shelves import Shelf, shelf
from sorites.diffusion.toy.world import SHAPES, STYLES, draw
from tools import toy_world as world

SEVERITIES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
SEEDS = range(1, 3)


@pytest.fixture(scope="module")
def pipe() -> Pipe:
    return load("toy")


@pytest.fixture(scope="module")
def sliders() -> Shelf:
    return shelf("toy")


def test_what_is_shipped_is_small_and_holds_no_pickle() -> None:
    files = [
        path for path in toy_folder().parent.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    assert sum(path.stat().st_size for path in files) < 5_000_000
    assert {path.suffix for path in files} <= {".py", ".json", ".safetensors"}


def test_real_images_are_told_apart_by_the_judge_and_not_by_one_that_saw_plain_ones_only() -> None:
    for style in STYLES:
        images, shape = world.draw_samples(100, style)
        found, styles = world.opinions(images)
        assert (found.argmax(1) == shape).mean() >= 0.99
        assert (styles.argmax(1) == STYLES.index(style)).mean() >= 0.99
        plain = (world.opinions(images, "plain")[0].argmax(1) == shape).mean()
        assert plain >= 0.99 if style == "plain" else plain < 0.85


def test_images_are_drawn_by_their_generator_alone() -> None:
    one, again = (draw("disc", "snow", np.random.default_rng(3)) for _ in range(2))
    assert np.array_equal(one, again)
    assert one.shape == (16, 16, 3)
    with pytest.raises(SoritesError, match="'ring'"):
        draw("ring", "snow", np.random.default_rng(3))


@pytest.mark.slow
def test_the_gate_shapes_and_styles_are_drawn_as_the_words_ask(pipe: Pipe) -> None:
    cells = [(i, j) for i in range(len(SHAPES)) for j in range(len(STYLES)) for _ in range(5)]
    asked = [Request(caption(SHAPES[i], STYLES[j]), 100 + n) for n, (i, j) in enumerate(cells)]
    shape, style = world.opinions([row[0] for row in sample(pipe, asked, TOY_DRAWING)])
    want = np.array(cells)
    assert (shape.argmax(1) == want[:, 0]).mean() >= 0.95
    assert (style.argmax(1) == want[:, 1]).mean() >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("shift", ["snow", "night"])
def test_a_slider_turns_its_shift_up_and_keeps_the_class(pipe: Pipe, sliders: Shelf, shift: str) -> None:
    asked = [
        along(caption(one.name), seed, sliders.slider(pipe, shift, one), SEVERITIES)
        for one in sliders.concepts
        for seed in SEEDS
    ]
    shape, style = world.opinions([image for row in sample(pipe, asked, TOY_DRAWING) for image in row])
    moved = style[:, STYLES.index(shift)].reshape(len(asked), -1).mean(0)
    ground_truth = np.repeat([one.number for one in sliders.concepts], len(SEEDS))
    kept = (shape.argmax(1).reshape(len(asked), -1) == ground_truth[:, None]).mean(0)
    assert moved[0] <= 0.05
    assert moved[-1] >= 0.95
    assert spearmanr(SEVERITIES, moved).statistic >= 0.9
    assert kept[: int(np.argmax(moved > 0.9)) + 1].min() >= 0.9


@pytest.mark.slow
def test_two_sliders_together_move_both_shifts(pipe: Pipe, sliders: Shelf) -> None:
    """Each moves the probability of its own shift while the other is on; an image has one style
    only for the judge.
    """
    places = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.5, 0.0), (0.5, 1.5))
    asked = [
        Request(
            caption(one.name),
            1,
            tuple(sliders.slider(pipe, shift, one) for shift in ("snow", "night")),
            places,
        )
        for one in sliders.concepts
    ]
    style = world.opinions([image for row in sample(pipe, asked, TOY_DRAWING) for image in row])[1]
    plain, snow, night = style.reshape(len(asked), len(places), 3).mean(0).T
    assert plain[0] >= 0.95
    assert snow[1] >= 0.95
    assert night[2] >= 0.95
    assert snow[3] - snow[2] >= 0.9
    assert night[5] - night[4] >= 0.9
    assert max(plain[3], plain[5]) <= 0.1


def test_the_shipped_sliders_name_the_pipeline_that_is_shipped(pipe: Pipe, sliders: Shelf) -> None:
    import json

    assert sliders.shifts == ("night", "snow")
    assert [one.name for one in sliders.concepts] == list(SHAPES)
    for path in sliders.places.values():
        facts = json.loads(Path(path, "slider.json").read_text())
        assert facts["pipeline"] == "toy"
        assert facts["pipeline_version"] == pipe.version
        assert facts["recipe"]["name"] == "toy"
