"""Occlusions cover the stated share, grow without moving, and hide boxes by what they cover."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as pil

from sorites.core import Box, ImageF32, shift
from sorites.core.errors import SoritesError
from sorites.core.rng import rng_for
from sorites.shifts import occlusion

SIZE = (90, 120)
DRAWS = {
    "occlusion_patches": occlusion.occlusion_patches,
    "occlusion_objects": occlusion.occlusion_objects,
    "lens_dirt": occlusion.lens_dirt,
    "lens_drops": occlusion.lens_drops,
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("sample", ["a", "b", "c"])
def test_the_severity_is_the_share_that_is_covered(name: str, sample: str) -> None:
    cover = DRAWS[name](rng_for(0, sample, name), SIZE)
    for severity in (0.01, 0.05, 0.3, 0.77, 1.0):
        hidden = cover.hidden(severity)
        assert hidden.mean(dtype=np.float64) == pytest.approx(severity, abs=2e-5)
        assert hidden.min() >= 0
        assert hidden.max() <= 1


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_covered_stays_covered(name: str) -> None:
    cover = DRAWS[name](rng_for(0, "a", name), SIZE)
    steps = [cover.hidden(severity) for severity in np.linspace(0.02, 0.9, 12)]
    for low, high in itertools.pairwise(steps):
        assert (high - low).min() > -1e-6


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_not_covered_is_unchanged(name: str, photo: ImageF32) -> None:
    rng = rng_for(0, "a", name)
    hidden = DRAWS[name](rng_for(0, "a", name), (photo.shape[0], photo.shape[1])).hidden(0.3)
    made = shift(name)(photo, 0.3, rng)
    np.testing.assert_array_equal(made[hidden == 0], photo[hidden == 0])
    assert (made[hidden > 0.9] != photo[hidden > 0.9]).mean() > 0.9


@pytest.mark.parametrize("name", DRAWS)
def test_boxes_are_hidden_by_what_covers_the_image(name: str) -> None:
    hidden = DRAWS[name](rng_for(0, "a", name), SIZE).hidden(0.5)
    boxes = [Box((x, y, x + 30, y + 30), 0, area=600.0) for x in (0, 30, 60, 90) for y in (0, 30, 60)]
    after = shift(name).boxes_after(boxes, 0.5, lambda of: rng_for(0, "a", of), SIZE)
    crowds = 0
    for before, box in zip(boxes, after, strict=True):
        x, y = map(int, before.xyxy[:2])
        visible = 1 - hidden[y : y + 30, x : x + 30].mean(dtype=np.float64)
        assert box.xyxy == before.xyxy
        assert box.area == pytest.approx(600 * visible, abs=1e-3)
        assert box.crowd is bool(visible < 0.25)
        crowds += box.crowd
    assert name == "occlusion_patches" or crowds


def cutouts(folder: Path) -> Path:
    """A red disc and a green bar, each in a larger transparent image."""
    folder.mkdir()
    y, x = np.mgrid[:60, :80]
    for name, mask, colour in (
        ("disc", np.hypot(y - 30, x - 40) < 20, (255, 0, 0)),
        ("bar", (np.abs(x - 40) < 6) & (np.abs(y - 30) < 25), (0, 255, 0)),
    ):
        rgba = np.zeros((60, 80, 4), np.uint8)
        rgba[mask] = (*colour, 255)
        pil.fromarray(rgba).save(folder / f"{name}.png")
    return folder


def test_cutouts_of_a_folder_cover_the_stated_share(tmp_path: Path) -> None:
    given = shift("occlusion_objects", cutouts=str(cutouts(tmp_path / "cut")))
    image = np.full((*SIZE, 3), 0.2, np.float32)
    seen = set()
    for sample in "abcdef":
        for severity in (0.05, 0.2):
            made = given(image, severity, rng_for(0, sample, given.name))
            covered = made[..., :2].max(axis=2) > 0.6
            assert covered.mean() == pytest.approx(severity, abs=0.02)
            assert made.min() >= 0
            seen.add(int(made[covered].mean(axis=0).argmax()))
    assert seen == {0, 1}


def test_a_folder_without_cutouts_is_refused(tmp_path: Path) -> None:
    pil.new("RGB", (4, 4)).save(tmp_path / "opaque.png")
    with pytest.raises(SoritesError, match="PNG files with transparency"):
        shift("occlusion_objects", cutouts=str(tmp_path))


def test_other_cutouts_are_another_version(tmp_path: Path) -> None:
    folder = cutouts(tmp_path / "cut")
    first = shift("occlusion_objects", cutouts=str(folder)).version
    (folder / "bar.png").unlink()
    assert shift("occlusion_objects", cutouts=str(folder)).version != first
