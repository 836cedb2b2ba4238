"""RISE and occlusion against closed forms of linear models, and D-RISE on a detector whose evidence is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sorites.core import Box, ImageU8, Model, Outputs
from sorites.training.explain import masking
from sorites.training.explain.masking import (
    FILL,
    Masks,
    area,
    class_score,
    deletion,
    insertion,
    interpolation,
    object_score,
    occlusion,
    rise,
)

SIZE = (28, 35)


def linear(weights: NDArray[np.float64]) -> masking.Score:
    """Return a score that is a weighted sum of pixels, as contrast to the fill."""

    def score(images: Sequence[ImageU8]) -> NDArray[np.float64]:
        return np.array([((image - FILL).mean(2) * weights).sum() for image in images])

    return score


def expected_rise(contrast: NDArray[np.float64], cells: int) -> NDArray[np.float64]:
    """The expectation of RISE for a linear score: p = 1/2 of it everywhere, and (1 - p) times the
    covariance of the masks, averaged over many offsets, applied to the contrast of each pixel.
    """
    kernels = []
    for side in contrast.shape:
        spread = [interpolation(side, cells, offset) for offset in (np.arange(200) + 0.5) / 200]
        kernels.append(np.mean([rows @ rows.T for rows in spread], axis=0))
    found: NDArray[np.float64] = 0.5 * contrast.sum() + 0.5 * kernels[0] @ contrast @ kernels[1]
    return found


def test_rise_of_a_linear_score_is_its_closed_form() -> None:
    rng = np.random.default_rng(0)
    weights = np.zeros(SIZE)
    weights[5:12, 20:30] = rng.uniform(0.5, 1, (7, 10))
    image = rng.integers(0, 256, (*SIZE, 3), np.uint8)
    contrast = (image - FILL).mean(2) * weights
    wanted = expected_rise(contrast, 5)
    parts = [rise(linear(weights), image, np.random.default_rng(k), masks=300, cells=5)[0] for k in range(8)]
    error = np.std(parts, axis=0, ddof=1) / np.sqrt(len(parts))
    # 8-bit rounding of hidden images adds up to half a step per pixel.
    rounding = 0.02 * np.abs(weights).sum()
    assert np.abs(np.mean(parts, axis=0) - wanted).max() < 4.5 * error.max() + rounding
    assert np.corrcoef(np.mean(parts, axis=0).ravel(), wanted.ravel())[0, 1] > 0.98


def test_masks_cover_every_pixel_in_half_of_them_and_vary_smoothly() -> None:
    masks = list(Masks.drawn(SIZE, 10, 7, np.random.default_rng(1)))
    assert len(masks) == 10
    assert np.allclose(np.mean(masks, axis=0), 0.5)
    assert min(mask.min() for mask in masks) >= 0
    assert max(mask.max() for mask in masks) <= 1
    assert max(np.abs(np.diff(mask, axis=0)).max() for mask in masks) <= 7 / SIZE[0] + 1e-9


def test_occlusion_of_a_linear_score_is_the_mean_over_its_squares() -> None:
    rng = np.random.default_rng(2)
    weights = rng.normal(size=SIZE)
    image = rng.integers(0, 256, (*SIZE, 3), np.uint8)
    found, _ = occlusion(linear(weights), image)
    contrast = ((image - FILL).mean(2)) * weights
    lost, seen = np.zeros(SIZE), np.zeros(SIZE)
    for top in np.arange(-2, 28, 2):  # 28 px: squares of 4 px in steps of 2
        for left in np.arange(-2.5, 35, 2.5):
            rows = slice(max(int(top), 0), int(top) + 4)
            columns = slice(max(round(left), 0), min(round(left + 5), 35))
            lost[rows, columns] += contrast[rows, columns].sum()
            seen[rows, columns] += 1
    assert seen.min() == seen.max() == 4
    assert found == pytest.approx(lost / seen, abs=1e-3)


def test_maps_follow_from_the_generator_and_not_from_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    image = np.random.default_rng(3).integers(0, 256, (*SIZE, 3), np.uint8)
    score = linear(np.ones(SIZE))
    first = rise(score, image, np.random.default_rng(5), masks=30)[0]
    monkeypatch.setattr(masking, "BATCH", 3)
    assert np.array_equal(rise(score, image, np.random.default_rng(5), masks=30)[0], first)
    assert not np.array_equal(rise(score, image, np.random.default_rng(6), masks=30)[0], first)


def test_a_map_without_evidence_is_called_noise() -> None:
    image = np.full((*SIZE, 3), 255, np.uint8)
    rng = np.random.default_rng(7)

    def random(images: Sequence[ImageU8]) -> NDArray[np.float64]:
        return rng.random(len(images))

    clear = [rise(random, image, np.random.default_rng(k), masks=200)[1] for k in range(8)]
    assert sum(clear) == 0
    flat = rise(lambda images: np.ones(len(images)), image, np.random.default_rng(0), masks=20)
    assert not flat[1]
    weights = np.zeros(SIZE)
    weights[:8, :8] = 1
    assert rise(linear(weights), image, np.random.default_rng(0), masks=200)[1]


def bright(images: list[Any]) -> Outputs:
    """Class 1 of an image is as likely as its top-left corner is bright; a box is there if it is."""
    corners = [float(np.asarray(image)[:10, :10].mean()) / 255 for image in images]
    return Outputs(logits=np.log([[1 - 0.9 * c, 0.9 * c + 1e-9] for c in corners]).astype(np.float32))


def test_the_maps_of_a_model_point_at_its_evidence_and_deleting_it_lowers_the_score() -> None:
    model = Model("corner", bright)
    image = np.full((40, 40, 3), 250, np.uint8)
    score = class_score(model, 1)
    found, clear = rise(score, image, np.random.default_rng(0), masks=300)
    assert clear
    assert found[:10, :10].mean() > found[20:, 20:].mean()
    by_square, _ = occlusion(score, image)
    assert by_square[:8, :8].min() > by_square[20:, 20:].max()
    lost, opposite = deletion(score, image, found), deletion(score, image, -found)
    assert area(lost) < area(opposite)
    assert lost[0] == opposite[0] == pytest.approx(0.9 * 250 / 255, abs=0.01)
    gained = insertion(score, np.where(np.indices((40, 40)).sum(0)[..., None] < 20, image, 0), found)
    assert gained[-1] > gained[0]
    assert class_score(model, 1, [0, 1])([image]) == pytest.approx(score([image]))
    assert class_score(model, 1, [1])([image]) == pytest.approx([1.0])


def test_the_score_of_an_object_is_that_of_d_rise() -> None:
    def find(images: list[Any]) -> Outputs:
        boxes = [
            [
                Box((0, 0, 10, 10), 1, 0.5),
                Box((0, 0, 10, 5), 1, 0.9),
                Box((0, 0, 10, 10), 0, 1.0),
            ]
            for _ in images
        ]
        return Outputs(boxes=boxes)

    model = Model("finder", find, output="boxes")
    image = np.zeros((20, 20, 3), np.uint8)
    # The best of IoU 1 x 0.5 and IoU 0.5 x 0.9; the other class does not count.
    assert object_score(model, Box((0, 0, 10, 10), 1))([image, image]) == pytest.approx([0.5, 0.5])
    assert object_score(model, Box((0, 0, 10, 5), 1))([image]) == pytest.approx([0.9])
    assert object_score(model, Box((0, 0, 10, 10), 2))([image]) == pytest.approx([0.0])
