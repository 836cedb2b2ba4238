"""PSNR and SSIM against scikit-image, LPIPS against its formula written out, exposure and clipping by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, maximum_filter
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from sorites.core import Picture
from sorites.errors import SoritesError
from sorites.measures._lpips_weights import alexnet
from sorites.measures.similarity import MEASURES, clipped_share, exposure_error, lpips, psnr, ssim


def scene(seed: int = 0, side: int = 64) -> Picture:
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side] / side
    made = [128 + 90 * np.sin(rng.uniform(4, 40) * x + rng.uniform(4, 40) * y) for _ in range(3)]
    return np.clip(np.stack(made, 2) + rng.normal(0, 8, (side, side, 3)), 0, 255).astype(np.uint8)


def blurred(picture: Picture, sigma: float) -> Picture:
    return np.asarray(gaussian_filter(picture.astype(float), (sigma, sigma, 0)).clip(0, 255), np.uint8)


@pytest.mark.parametrize("sigma", [0.5, 1.5, 4])
def test_psnr_and_ssim_are_scikit_images(sigma: float) -> None:
    one = scene()
    two = blurred(one, sigma)
    assert psnr(one, two) == pytest.approx(peak_signal_noise_ratio(one, two))
    wanted = structural_similarity(one, two, channel_axis=-1, gaussian_weights=True, sigma=1.5, use_sample_covariance=False)
    assert ssim(one, two) == pytest.approx(wanted, abs=1e-9)


def conv(x: NDArray[np.float64], kernel: NDArray[np.float32], stride: int, pad: int) -> NDArray[np.float64]:
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape[2:], (1, 2))[:, ::stride, ::stride]
    return np.tensordot(kernel.astype(np.float64), windows, ((1, 2, 3), (0, 3, 4)))


def by_formula(one: Picture, two: Picture) -> float:
    """Zhang et al. 2018, equation 1."""
    total, pair = 0.0, []
    for picture in (one, two):
        x = np.moveaxis(picture / 127.5 - 1, 2, 0)
        pair.append((x - np.reshape([-0.030, -0.088, -0.188], (3, 1, 1))) / np.reshape([0.458, 0.448, 0.450], (3, 1, 1)))
    for layer, (kernel, bias, head) in enumerate(alexnet()):
        if layer in (1, 2):
            pair = [maximum_filter(x, (1, 3, 3))[:, 1:-1:2, 1:-1:2] for x in pair]
        stride, pad = (4, 2) if layer == 0 else (1, kernel.shape[2] // 2)
        pair = [np.maximum(conv(x, kernel, stride, pad) + bias[:, None, None], 0) for x in pair]
        unit = [x / (np.sqrt((x**2).sum(0, keepdims=True)) + 1e-10) for x in pair]
        total += float((head[:, None, None] * (unit[0] - unit[1]) ** 2).sum(0).mean())
    return total


def test_lpips_is_its_formula() -> None:
    one = scene(1, 39)
    two = blurred(one, 1.2)
    assert lpips(one, two) == pytest.approx(by_formula(one, two), rel=1e-4)


def test_lpips_grows_with_blur_and_is_nought_for_equal_pictures() -> None:
    one = scene(2, 96)
    found = [lpips(one, blurred(one, sigma)) for sigma in (0.7, 1.5, 3)]
    assert lpips(one, one) == 0
    assert 0 < found[0] < found[1] < found[2]
    assert lpips(one, blurred(one, 2)) == pytest.approx(lpips(blurred(one, 2), one), rel=1e-5)


def test_exposure_error_is_in_stops() -> None:
    grey = np.full((8, 8, 3), 188, np.uint8)
    half = np.full((8, 8, 3), 137, np.uint8)
    assert exposure_error(grey, half) == pytest.approx(-1, abs=0.01)
    assert exposure_error(half, grey) == pytest.approx(1, abs=0.01)
    assert math.isfinite(exposure_error(grey, np.zeros_like(grey)))


def test_clipping_counts_what_the_reference_had_not() -> None:
    one = np.full((4, 4, 3), 100, np.uint8)
    one[0] = 255
    two = one.copy()
    two[1] = 255
    two[2, :2] = 0
    assert clipped_share(one, two) == pytest.approx(6 / 16)


@pytest.mark.parametrize("name", MEASURES)
def test_pictures_of_two_sizes_are_refused(name: str) -> None:
    with pytest.raises(SoritesError, match="two 8-bit pictures of one size"):
        MEASURES[name](scene(), scene(0, 32))


@pytest.mark.parametrize(("measure", "side"), [(ssim, 10), (lpips, 31)])
def test_too_small_a_picture_is_refused(measure: object, side: int) -> None:
    with pytest.raises(SoritesError, match=f"{side}x{side}"):
        measure(scene(0, side), scene(1, side))  # type: ignore[operator]
