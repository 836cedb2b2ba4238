"""Boxes drawn on images: positions, and colours that contrast with the background."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow
from typer.testing import CliRunner

from sorites import core
from sorites.cli import app
from sorites.core import Box
from sorites.core.errors import SoritesError
from sorites.reports.figures.strips import BOXED_SIDE, COLOURS, strip, with_boxes

GREY = np.full((100, 120, 3), 128, np.uint8)


def test_outlines_follow_boxes_and_the_image_is_not_modified() -> None:
    drawn = with_boxes(GREY, [Box((30, 40, 90, 80), 0)], ["cat"])
    assert (GREY == 128).all()
    assert tuple(drawn[60, 30]) == COLOURS[0]
    assert tuple(drawn[60, 89]) == COLOURS[0]
    assert tuple(drawn[40, 100]) == (128, 128, 128)
    assert tuple(drawn[60, 60]) == (128, 128, 128), "the inside stays free"
    assert (drawn[25:39, 30:60] != 128).any(), "the tag above it"


@pytest.mark.parametrize(
    "box", [(0, 0, 120, 100), (-1, -1, 121, 101), (50, 50, 50.5, 50.5), (110, 95, 120, 100)]
)
def test_boxes_at_edges_and_tiny_ones_are_drawn(box: tuple[float, float, float, float]) -> None:
    drawn = with_boxes(GREY, [Box(box, 3, crowd=True), Box(box, 99, 0.5)], ["a"] * 4)
    assert drawn.shape == GREY.shape
    assert (drawn != GREY).any()


def test_without_boxes_nothing_is_drawn() -> None:
    assert with_boxes(GREY, [], []) is GREY


def test_colours_are_light_and_differ() -> None:
    assert len(set(COLOURS)) == len(COLOURS)
    assert min(np.array(COLOURS) @ (0.2126, 0.7152, 0.0722)) > 110


def test_boxes_move_with_a_geometric_shift() -> None:
    boxes = [Box((30, 40, 60, 80), 0)]
    turned, plain = (
        np.asarray(strip(GREY, core.shift(name), [20], ground_truth=boxes, names=["a"]))
        for name in ("rotation", "gaussian_blur")
    )
    side = turned.shape[1] // 2
    np.testing.assert_array_equal(turned[60:, :side], plain[60:, :side])
    assert (turned[60:, side:] != plain[60:, side:]).any()


@pytest.fixture
def annotated(tmp_path: Path) -> Path:
    for name in ("x/a.png", "y/a.png"):
        (tmp_path / name).parent.mkdir()
        Pillow.fromarray(GREY).save(tmp_path / name)
    images = [
        {"id": i, "file_name": name, "width": 120, "height": 100}
        for i, name in enumerate(("x/a.png", "y/a.png"))
    ]
    rows = [{"id": 1, "image_id": 0, "category_id": 1, "bbox": [30, 40, 60, 40]}]
    data = {"images": images, "annotations": rows, "categories": [{"id": 1, "name": "cat"}]}
    (tmp_path / "a.json").write_text(json.dumps(data))
    return tmp_path / "a.json"


def test_the_verb_draws_the_boxes_of_a_source(annotated: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.png"
    words = [
        "show",
        "defocus_disk",
        "x/a.png",
        "--source",
        f"coco:{annotated}",
        "--severity",
        "4",
        "--out",
        str(out),
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    page = np.asarray(Pillow.open(out))
    assert page.shape[0] > BOXED_SIDE
    assert (page == COLOURS[15 % len(COLOURS)]).all(axis=-1).sum() > 2 * BOXED_SIDE, "on both images"


@pytest.mark.parametrize(
    ("name", "message"),
    [("a.png", "2 images of coco are called a.png"), ("b.png", "no image named 'b.png'")],
)
def test_a_image_that_is_not_there_or_not_the_only_one(annotated: Path, name: str, message: str) -> None:
    done = CliRunner().invoke(app, ["show", "defocus_disk", name, "--source", f"coco:{annotated}"])
    assert done.exit_code != 0
    assert isinstance(done.exception, SoritesError | SystemExit)
    assert message in (done.output + str(done.exception)).replace("\n", " ")
