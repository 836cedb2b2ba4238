from __future__ import annotations

import colorsys

import numpy as np
import pytest

from sorites.core import ImageF32, shift
from sorites.core.rng import rng_for


def turn(name: str, image: ImageF32, severity: float) -> ImageF32:
    return shift(name)(image, severity, rng_for(0, "a", name))


@pytest.mark.parametrize("severity", [0.1, 0.37, 0.5])
def test_brightness_raises_v_of_hsv(severity: float) -> None:
    image = np.random.default_rng(0).random((12, 12, 3), dtype=np.float32)
    image[0, :3] = [[0, 0, 0], [1, 1, 1], [1, 0, 0]]
    for before, after in zip(
        image.reshape(-1, 3), turn("brightness", image, severity).reshape(-1, 3), strict=True
    ):
        h, s, v = colorsys.rgb_to_hsv(*before.tolist())
        np.testing.assert_allclose(after, colorsys.hsv_to_rgb(h, s, min(v + severity, 1)), atol=1e-6)


@pytest.mark.parametrize("severity", [0.25, 0.6, 0.95, 1.0])
def test_contrast_scales_deviations_and_keeps_channel_means(photo: ImageF32, severity: float) -> None:
    made = turn("contrast", photo, severity).astype(np.float64)
    mean = photo.mean(axis=(0, 1), dtype=np.float64)
    np.testing.assert_allclose(made.mean(axis=(0, 1)), mean, atol=1e-6)
    np.testing.assert_allclose(
        made.std(axis=(0, 1)), (1 - severity) * photo.std(axis=(0, 1), dtype=np.float64), atol=1e-6
    )


@pytest.mark.parametrize(
    ("level", "factor", "offset"), [(1, 0.3, 0), (2, 0.1, 0), (3, 2, 0), (4, 5, 0.1), (5, 20, 0.2)]
)
def test_saturate_scales_s_of_hsv(level: int, factor: float, offset: float) -> None:
    image = np.random.default_rng(0).random((12, 12, 3), dtype=np.float32)
    image[0, :3] = [[0, 0, 0], [0.5, 0.5, 0.5], [1, 0, 0]]
    for before, after in zip(
        image.reshape(-1, 3), turn("saturate", image, level).reshape(-1, 3), strict=True
    ):
        h, s, v = colorsys.rgb_to_hsv(*before.tolist())
        np.testing.assert_allclose(after, colorsys.hsv_to_rgb(h, min(s * factor + offset, 1), v), atol=1e-5)


def test_saturate_never_comes_back_to_the_image(photo: ImageF32) -> None:
    moved = [
        np.square(turn("saturate", photo, severity) - photo).mean() for severity in np.arange(1, 5.1, 0.1)
    ]
    assert min(moved) > 0.2 * moved[0]
