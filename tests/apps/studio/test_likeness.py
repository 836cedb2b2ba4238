"""A photograph of its image is told from one of another image, of a covered screen and of a wrong crop."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conftest import scene

from sorites.apps.studio.likeness import MIN_CORRELATION, likeness


@pytest.mark.parametrize("gain", [0.1, 0.5, 1.0, 2.5])
def test_exposure_and_noise_do_not_matter(gain: float) -> None:
    image = scene(1, 120, 160)
    rng = np.random.default_rng(0)
    taken = np.clip(image * gain + rng.normal(0, 8, image.shape), 0, 255).astype(np.uint8)
    match = likeness(taken, image)
    assert match.correlation is not None
    assert match.correlation > MIN_CORRELATION
    assert match.problem is None


@pytest.mark.slow
def test_another_image_does_not_match() -> None:
    problems = [
        likeness(scene(a, 120, 160), scene(b, 120, 160)).problem for a in range(4) for b in range(4) if a != b
    ]
    assert sum(problem is not None for problem in problems) >= 10


def test_a_displaced_crop_is_named() -> None:
    image = scene(3, 200, 260)
    match = likeness(image[10:, 16:][:180, :234], image[:180, :234])
    assert match.moved is not None
    assert match.problem is not None


def test_a_uniformly_grey_photograph_does_not_match() -> None:
    image = scene(1, 120, 160)
    assert likeness(np.full_like(image, 90), image).problem is not None
    assert likeness(np.full_like(image, 90), np.full_like(image, 200)).problem is None


@pytest.mark.parametrize("value", [0, 3, 255])
def test_a_black_or_white_photograph_says_nothing(value: int) -> None:
    image = scene(1, 120, 160)
    match = likeness(np.full_like(image, value), image)
    assert match.correlation is None
    assert match.problem is None
    metered = likeness(np.full_like(image, value), image, metered=True)
    assert (metered.level, metered.correlation) == (value, 0)
    assert metered.problem is not None
