"""The Bayer mosaic against SciPy's convolution with the bilinear kernels, and against light it must keep."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import convolve2d

from sorites.optics.camera import EOS_RP
from sorites.optics.sensor import Draw, demosaic, halved, raw, sampled, through_mosaic

GREEN = np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]]) / 4
OTHER = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 4


def test_each_site_sees_its_own_colour() -> None:
    image = np.broadcast_to(np.array([1, 2, 3], np.float32), (4, 6, 3))
    assert sampled(image)[:2, :2].tolist() == [[1, 2], [2, 3]]


def test_red_and_blue_are_filled_in_bilinearly() -> None:
    sites = np.random.default_rng(0).random((20, 24)).astype(np.float32)
    made = demosaic(sites)
    rows, columns = np.indices(sites.shape)
    red, blue = sites * ((rows % 2 == 0) & (columns % 2 == 0)), sites * ((rows % 2 == 1) & (columns % 2 == 1))
    for channel, plane in ((0, red), (2, blue)):
        np.testing.assert_allclose(
            made[1:-1, 1:-1, channel], convolve2d(plane, OTHER, "same")[1:-1, 1:-1], atol=1e-6
        )
    green = sites * ((rows + columns) % 2 == 1)
    np.testing.assert_allclose(made[1:-1, 1:-1, 1], convolve2d(green, GREEN, "same")[1:-1, 1:-1], atol=1e-6)


def test_a_flat_colour_stays_flat_and_halving_keeps_means() -> None:
    image = np.broadcast_to(np.array([0.2, 0.5, 0.9], np.float32), (8, 10, 3))
    np.testing.assert_allclose(halved(demosaic(sampled(image))), image[:4, :5], atol=1e-6)


@pytest.mark.parametrize("area", [1.0, 8.0])
def test_noise_through_the_mosaic_has_the_mean_of_the_light(area: float) -> None:
    light = np.broadcast_to(np.array([300, 600, 400], np.float32), (64, 64, 3))
    draw = Draw.of((128, 128, 3), np.random.default_rng(1))
    numbers = through_mosaic(light, 400, draw, EOS_RP, area) - EOS_RP.black_dn
    np.testing.assert_allclose(numbers.mean((0, 1)), light[0, 0] * EOS_RP.dn_per_e(400), rtol=0.01)
    plain = raw(light, 400, Draw.of(light.shape, np.random.default_rng(2)), EOS_RP, area)
    assert numbers[..., 0].std() > 0.6 * plain[..., 0].std()
