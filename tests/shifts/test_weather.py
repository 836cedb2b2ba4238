from __future__ import annotations

import numpy as np
import pytest

from sorites.core import ImageF32, shift
from sorites.core.rng import rng_for

NAMES = ["snow", "fog", "frost", "spatter"]


def turn(name: str, image: ImageF32, severity: float, sample: str = "a") -> ImageF32:
    return shift(name)(image, severity, rng_for(0, sample, name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(1, 1), (1, 9), (8, 8), (37, 5)])
def test_weather_comes_over_images_of_any_size_and_brightness(name: str, size: tuple[int, int]) -> None:
    for value in (0.0, 0.5, 1.0):
        for severity in (0.01, 1, 3.5, 5):
            made = turn(name, np.full((*size, 3), value, np.float32), severity)
            assert made.shape == (*size, 3)
            assert np.isfinite(made).all()


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_has_weather_of_its_own(photo: ImageF32, name: str) -> None:
    assert np.abs(turn(name, photo, 3, "a") - turn(name, photo, 3, "b")).mean() > 0.01


def test_snow_whitens_the_ground_and_falls_on_it(photo: ImageF32) -> None:
    for level in (1, 3, 5):
        assert (turn("snow", photo, level) >= photo - 1e-6).all()
    assert turn("snow", photo, 5).mean() > turn("snow", photo, 1).mean()


def test_fog_is_the_published_sum_of_image_and_cloud() -> None:
    """On black but for one white pixel, what is seen is strength / (1 + strength) of a cloud that
    spans 0..1.
    """
    image = np.zeros((64, 64, 3), np.float32)
    image[0, 0] = 1
    cloud = turn("fog", image, 2).reshape(-1, 3)[1:]
    assert cloud.max() == pytest.approx(2 / 3, rel=1e-5)
    assert cloud.min() == pytest.approx(0, abs=1e-6)
    np.testing.assert_array_equal(cloud[..., 0], cloud[..., 2])
