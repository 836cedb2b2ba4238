"""LPIPS against its formula in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter
from tests.measures.images import blurred, scene

from sorites.core import ImageU8
from sorites.core.errors import BadImage
from sorites.measures.lpips import alexnet, lpips


def conv(x: NDArray[np.float64], kernel: NDArray[np.float32], stride: int, pad: int) -> NDArray[np.float64]:
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape[2:], (1, 2))[
        :, ::stride, ::stride
    ]
    return np.tensordot(kernel.astype(np.float64), windows, ((1, 2, 3), (0, 3, 4)))


def by_formula(one: ImageU8, two: ImageU8) -> float:
    """Zhang et al. 2018, equation 1."""
    total, pair = 0.0, []
    for image in (one, two):
        x = np.moveaxis(image / 127.5 - 1, 2, 0)
        pair.append(
            (x - np.reshape([-0.030, -0.088, -0.188], (3, 1, 1)))
            / np.reshape([0.458, 0.448, 0.450], (3, 1, 1))
        )
    for layer, (kernel, bias, head) in enumerate(alexnet()):
        if layer in (1, 2):
            pair = [maximum_filter(x, (1, 3, 3))[:, 1:-1:2, 1:-1:2] for x in pair]
        stride, pad = (4, 2) if layer == 0 else (1, kernel.shape[2] // 2)
        pair = [np.maximum(conv(x, kernel, stride, pad) + bias[:, None, None], 0) for x in pair]
        unit = [x / (np.sqrt((x**2).sum(0, keepdims=True)) + 1e-10) for x in pair]
        total += float((head[:, None, None] * (unit[0] - unit[1]) ** 2).sum(0).mean())
    return total


def test_lpips_matches_its_formula() -> None:
    one = scene(1, 39)
    two = blurred(one, 1.2)
    assert lpips(one, two) == pytest.approx(by_formula(one, two), rel=1e-4)


def test_lpips_grows_with_blur_and_is_nought_for_equal_images() -> None:
    one = scene(2, 96)
    found = [lpips(one, blurred(one, sigma)) for sigma in (0.7, 1.5, 3)]
    assert lpips(one, one) == 0
    assert 0 < found[0] < found[1] < found[2]
    assert lpips(one, blurred(one, 2)) == pytest.approx(lpips(blurred(one, 2), one), rel=1e-5)


def test_too_small_images_raise() -> None:
    with pytest.raises(BadImage, match="got 31x31"):
        lpips(scene(0, 31), scene(1, 31))
