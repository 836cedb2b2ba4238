from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import ndimage

from sorites.core import ImageF32
from sorites.scenes.fields import (
    across,
    front_mask,
    half_gaussian,
    mean_3x3,
    plasma,
    plasma_noise,
    smooth,
    streak,
    stretch,
)


@pytest.mark.parametrize("sigma", [0.0, 0.3, 1.1, 4.0])
@pytest.mark.parametrize(("ours", "scipys"), [("edge", "nearest"), ("symmetric", "reflect")])
def test_smooth_is_scipys_gaussian(photo: ImageF32, sigma: float, ours: str, scipys: str) -> None:
    expected = ndimage.gaussian_filter(photo.astype(np.float64), (sigma, sigma, 0), mode=scipys)
    np.testing.assert_allclose(smooth(photo, sigma, mode=ours), expected, atol=1e-6)  # type: ignore[arg-type]


def test_smooth_takes_one_sigma_a_side_and_images_smaller_than_its_reach() -> None:
    field = np.random.default_rng(0).random((3, 2), dtype=np.float32)
    expected = ndimage.gaussian_filter(field.astype(np.float64), (2, 0.5), mode="nearest")
    np.testing.assert_allclose(smooth(field, (2, 0.5)), expected, atol=1e-6)
    assert smooth(field[:1, :1], 3).shape == (1, 1)


def test_even_is_scipys_mean_over_three(photo: ImageF32) -> None:
    np.testing.assert_allclose(
        mean_3x3(photo[..., 0]), ndimage.uniform_filter(photo[..., 0], 3, mode="nearest"), atol=1e-6
    )


def test_streak_is_a_correlation_along_a_line(photo: ImageF32) -> None:
    weights = [0.5, 0.3, 0.2]
    kernel = np.zeros((5, 5))
    kernel[2, 2:] = weights
    expected = ndimage.correlate(photo[..., 0].astype(np.float64), kernel, mode="nearest")
    np.testing.assert_allclose(streak(photo[..., 0], weights, 0.0), expected, atol=1e-6)
    upwards = ndimage.correlate(photo[..., 0].astype(np.float64), kernel.T[::-1], mode="nearest")
    np.testing.assert_allclose(streak(photo[..., 0], weights, -math.pi / 2), upwards, atol=1e-6)


def test_half_gaussian_sums_to_one_and_begins_with_a_point() -> None:
    assert half_gaussian(0, 0) == [1]
    for reach in (0.2, 3, 10.5):
        assert sum(half_gaussian(reach, 3)) == pytest.approx(1, abs=1e-3)
    np.testing.assert_allclose(np.divide(*half_gaussian(10, 3)[1:3]), math.exp(3 / 18))


@pytest.mark.parametrize("zoom", [1.0, 2.0, 3.7])
def test_stretch_is_linear_between_values(zoom: float) -> None:
    ramp = np.tile(np.arange(40, dtype=np.float32), (30, 1))
    kept = 40 / zoom
    expected = (40 - kept) / 2 + np.arange(40) * (kept - 1) / 39
    np.testing.assert_allclose(stretch(ramp, zoom)[5], expected, atol=1e-3)
    assert stretch(ramp[:1, :1], zoom).shape == (1, 1)


@pytest.mark.parametrize("side", [1, 2, 3, 8, 33])
def test_plasma_fills_any_side_and_keeps_its_shape_along_the_decay(side: int) -> None:
    noise = plasma_noise(side, np.random.default_rng(3))
    one, near = plasma(noise, 2.0), plasma(noise, 1.99)
    assert len(one) >= side
    assert (one.min(), one.max()) == (0, 1)
    assert np.abs(one - near).max() < 0.02


def test_plasma_without_noise_after_the_first_octave_is_the_bilinear_mean_on_its_grid() -> None:
    noise = plasma_noise(4, np.random.default_rng(0))
    heights = plasma(noise, 1e6).astype(np.float64)
    corners = heights[::2, ::2]
    middles = (corners + np.roll(corners, -1, 0) + np.roll(corners, -1, 1) + np.roll(corners, -1, (0, 1))) / 4
    np.testing.assert_allclose(heights[1::2, 1::2], middles, atol=1e-5)


def test_a_front_passes_from_nothing_to_everything() -> None:
    way = across(20, 30, 0.7)
    assert (way.min(), way.max()) == (0, 1)
    assert front_mask(way, 0).max() == 0
    assert front_mask(way, 1).min() > 0.999
    shares = [front_mask(way, part).mean() for part in np.linspace(0, 1, 21)]
    assert (np.diff(shares) > 0).all()
