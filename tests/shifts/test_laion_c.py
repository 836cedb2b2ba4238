"""The distortions of LAION-C: what their published definitions say about single pixels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sorites.core import SHIFTS, Box, ImageF32
from sorites.core.rng import rng_for
from sorites.suites.suite import load

NAMES = load("laion_c").dials


def made(name: str, image: ImageF32, severity: float, sample: str = "a") -> ImageF32:
    return SHIFTS.get(name)(image, severity, rng_for(0, sample, name))


def grey(value: float, size: int = 224) -> ImageF32:
    return np.full((size, size, 3), value, np.float32)


def test_the_suite_has_the_six_distortions_at_five_intensities() -> None:
    assert len(NAMES) == 6
    assert all(len(SHIFTS.get(dial.name).levels) == 5 for dial in NAMES)
    assert {SHIFTS.get(dial.name).family for dial in NAMES} == {"laion_c"}


@pytest.mark.parametrize(
    ("severity", "low", "high"), [(50, 0, 50), (100, 50, 100), (125, 100, 125), (150, 125, 150)]
)
def test_checks_alternate_within_the_published_range(severity: float, low: float, high: float) -> None:
    change = 255 * (made("laion_luminance_checkerboard", grey(0.5), severity) - 0.5)[..., 0]
    tiles = change.reshape(16, 14, 16, 14)
    assert np.ptp(tiles, axis=(1, 3)).max() < 1e-3
    signs = np.where(np.indices((16, 16)).sum(0) % 2, -1, 1)
    size = tiles[:, 0, :, 0] * signs
    assert size.min() >= low - 1e-3
    assert size.max() <= min(high, 127.5) + 1e-3
    assert size.std() > 0.1 * (min(high, 127.5) - low)


def test_mosaic_keeps_the_mean_colour_of_each_tile() -> None:
    rng = np.random.default_rng(0)
    image = np.repeat(np.repeat(rng.uniform(0.45, 0.55, (28, 28, 3)), 8, axis=0), 8, axis=1).astype(
        np.float32
    )
    moved = made("laion_mosaic", image, 8)
    means = [each.reshape(28, 8, 28, 8, 3).mean(axis=(1, 3)) for each in (image, moved)]
    inside = (moved > 0) & (moved < 1)
    assert inside.mean() > 0.98
    assert np.abs(means[0] - means[1]).mean() < 0.002
    assert moved.reshape(28, 8, 28, 8, 3).std(axis=(1, 3)).mean() > 0.05


@pytest.mark.parametrize("name", ["laion_geometric_shapes", "laion_stickers"])
def test_pasted_things_stay_where_they_were_and_cover_boxes(name: str) -> None:
    shift, image = SHIFTS.get(name), grey(0.5)
    covered = [np.abs(made(name, image, level) - image).max(axis=2) > 1e-6 for level in shift.levels]
    for less, more in itertools.pairwise(covered):
        assert (less & ~more).mean() < 0.005  # a later colour may be that of the image
        assert more.mean() > less.mean()
    boxes = [Box((0, 0, 224, 224), 0), Box((100, 100, 110, 110), 0)]
    moved = shift.boxes_after(boxes, shift.levels[-1], lambda n: rng_for(0, "a", n), (224, 224))
    assert moved is not None
    assert moved[0].xyxy == boxes[0].xyxy
    assert moved[0].crowd == (covered[-1].mean() > 0.75)


def test_the_number_of_stickers_is_the_severity() -> None:
    one = np.abs(made("laion_stickers", grey(0.5), 1) - 0.5).max(axis=2) > 1e-6
    rows, columns = np.nonzero(one)
    assert [int(np.ptp(rows)), int(np.ptp(columns))] == [15, 15]


def test_bright_images_are_not_deflected_and_dark_ones_move_to_the_left() -> None:
    white = grey(1.0)
    assert np.array_equal(made("laion_vertical_lines", white, 1.0), white)
    image = grey(1.0)
    image[:, 100] = 0.5
    moved = made("laion_vertical_lines", image, 1.0)
    assert moved[50, 80, 0] == pytest.approx(0.5, abs=0.01)  # 40 px x (1 - 0.5)
    assert np.nonzero(moved[50, :, 0] == 0)[0].tolist() == [100]
    lines = made("laion_vertical_lines", white, SHIFTS.get("laion_vertical_lines").levels[-1])
    assert int((lines[0, :, 0] > 0).sum()) == 60


def test_a_glitch_blackens_every_other_line_and_moves_strips_with_wrap_around() -> None:
    rng = np.random.default_rng(1)
    image = rng.random((224, 224, 3)).astype(np.float32)
    moved = made("laion_glitch", image, 10.0)
    assert not moved[::2].any()
    still = [c for c in range(3) if np.allclose(np.sort(moved[1::2, :, c]), np.sort(image[1::2, :, c]))]
    assert len(still) >= 2  # one channel is also moved up or down
    assert made("laion_glitch", image, 1.0)[::2].max() == pytest.approx(image.max() / 2, abs=0.02)
