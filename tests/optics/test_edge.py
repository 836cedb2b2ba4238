"""The slanted edge against the closed form of a Gaussian, and the kernel that has its MTF."""

from __future__ import annotations

import numpy as np
import pytest

from sorites.core.errors import SoritesError
from sorites.optics.convolve import sweep
from sorites.optics.edge import edge_mtf, round_kernel
from sorites.optics.mtf import FREQUENCIES, mtf, slanted_edge


def gaussian(sigma: float, side: int = 25) -> np.ndarray:
    x = np.arange(side) - side // 2
    taps = np.exp(-(x[:, None] ** 2 + x**2) / (2 * sigma**2))
    return taps / taps.sum()


def photographed(sigma: float, degrees: float = 5.0) -> np.ndarray:
    edge = slanted_edge(120, degrees)[..., None].astype(np.float32)
    return np.asarray(next(sweep(edge, [gaussian(sigma)], "reflect")))[20:100, 20:100, 0].astype(float)


@pytest.mark.parametrize("sigma", [0.7, 1.5])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("degrees", [3.0, -12.0])
def test_a_blurred_edge_has_the_mtf_of_its_blur(sigma: float, turned: bool, degrees: float) -> None:
    """Of the pixels, which the chart mixes by coverage, and of the kernel."""
    light = photographed(sigma, degrees)
    wanted = mtf(gaussian(sigma), 0.0) * np.sinc(FREQUENCIES)
    found = edge_mtf(light.T if turned else light)
    assert np.abs(found - wanted)[FREQUENCIES <= 0.4].max() < 0.03


def test_noise_is_averaged() -> None:
    light = photographed(1.2)
    noisy = light + np.random.default_rng(0).normal(0, 0.005, light.shape)
    assert np.abs(edge_mtf(noisy) - edge_mtf(light))[FREQUENCIES <= 0.3].max() < 0.06


@pytest.mark.parametrize("sigma", [1.3, 2.0])
def test_the_kernel_of_an_mtf_is_the_blur_it_came_from(sigma: float) -> None:
    """Of blurs whose contrast at Nyquist is nearly 0, as beyond it nothing is known."""
    curve = np.exp(-2 * (np.pi * sigma * FREQUENCIES) ** 2)
    assert np.abs(round_kernel(curve, 25) - gaussian(sigma)).sum() < 0.03


@pytest.mark.parametrize(
    "light",
    [
        np.full((40, 40), 0.5),
        slanted_edge(60, 0.0),
        slanted_edge(12, 5.0),
        np.random.default_rng(0).random((50, 50)),
    ],
    ids=["flat", "upright", "small", "noise"],
)
def test_what_is_no_slanted_edge_is_refused(light: np.ndarray) -> None:
    with pytest.raises(SoritesError):
        edge_mtf(light)
