from __future__ import annotations

import numpy as np
import pytest

from sorites.core import Image, shift
from sorites.rng import rng_for

NAMES = ["snow", "fog", "frost", "spatter"]


def turn(name: str, image: Image, severity: float, sample: str = "a") -> Image:
    return shift(name)(image, severity, rng_for(0, sample, name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(1, 1), (1, 9), (8, 8), (37, 5)])
def test_weather_comes_over_pictures_of_any_size_and_brightness(name: str, size: tuple[int, int]) -> None:
    for value in (0.0, 0.5, 1.0):
        for severity in (0.01, 1, 3.5, 5):
            made = turn(name, np.full((*size, 3), value, np.float32), severity)
            assert made.shape == (*size, 3)
            assert np.isfinite(made).all()


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_has_weather_of_its_own(photo: Image, name: str) -> None:
    assert np.abs(turn(name, photo, 3, "a") - turn(name, photo, 3, "b")).mean() > 0.01


def test_snow_whitens_the_ground_and_falls_on_it(photo: Image) -> None:
    for level in (1, 3, 5):
        assert (turn("snow", photo, level) >= photo - 1e-6).all()
    assert turn("snow", photo, 5).mean() > turn("snow", photo, 1).mean()


def test_fog_is_the_published_sum_of_picture_and_cloud() -> None:
    """On black but for one white pixel, what is seen is strength / (1 + strength) of a cloud that spans 0..1."""
    image = np.zeros((64, 64, 3), np.float32)
    image[0, 0] = 1
    cloud = turn("fog", image, 2).reshape(-1, 3)[1:]
    assert cloud.max() == pytest.approx(2 / 3, rel=1e-5)
    assert cloud.min() == pytest.approx(0, abs=1e-6)
    np.testing.assert_array_equal(cloud[..., 0], cloud[..., 2])


def test_frost_weighs_picture_and_pane_as_published() -> None:
    black, gray = np.zeros((64, 64, 3), np.float32), np.full((64, 64, 3), 0.25, np.float32)
    for sample in map(str, range(6)):
        for level, seen, frozen in ((1, 1, 0.4), (3, 0.7, 0.7), (5, 0.6, 0.75)):
            pane = turn("frost", black, level, sample) / np.float32(frozen)
            np.testing.assert_allclose(turn("frost", gray, level, sample), np.clip(seen * 0.25 + frozen * pane, 0, 1), atol=1e-6)
        assert 0.4 < pane.mean() < 0.85
        assert 0.02 < pane.std(axis=(0, 1)).mean() < 0.2


def test_spatter_is_turquoise_water_then_brown_mud() -> None:
    gray = np.full((96, 96, 3), 0.3, np.float32)
    water = turn("spatter", gray, 2) - gray
    wet = water[..., 2] > 0.02
    assert 0.02 < wet.mean() < 0.5
    np.testing.assert_allclose(water[wet][:, 0] / water[wet][:, 2], 175 / 238, rtol=0.01)
    mud = turn("spatter", gray, 5)
    thick = mud[..., 2] < 0.1
    assert thick.mean() > 0.05
    np.testing.assert_allclose(mud[thick].min(axis=0), [63 / 255, 42 / 255, 20 / 255], atol=0.01)
