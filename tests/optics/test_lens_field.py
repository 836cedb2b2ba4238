from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from sorites.errors import SoritesError
from sorites.optics.lens_field import field_blur, kernel_at


def point(size: int = 9) -> np.ndarray:
    made = np.zeros((3, size, size))
    made[:, size // 2, size // 2] = 1
    return made


def bar(size: int = 9) -> np.ndarray:
    made = np.zeros((3, size, size))
    made[:, :, size // 2] = 1 / size
    return made


def photo(height: int = 150, width: int = 210) -> np.ndarray:
    return np.random.default_rng(0).random((height, width, 3), dtype=np.float32)


def lens(middle: np.ndarray, *edge: np.ndarray) -> np.ndarray:
    """Thirteen kernels: the middle's, then at four fields those of azimuth 0, 45 and 90."""
    return np.stack([middle, *([edge[0], edge[-1], edge[-1]] if len(edge) > 1 else [edge[0]] * 3) * 4])


def test_a_perfect_lens_leaves_the_picture_alone() -> None:
    np.testing.assert_allclose(field_blur(photo(), lens(point(), point()), 64), photo(), atol=1e-5)


def test_one_kernel_everywhere_is_one_convolution() -> None:
    across = np.exp(-((np.arange(9) - 4) ** 2) / 2)
    taps = np.outer(across, across) / across.sum() ** 2
    made = field_blur(photo(), lens(np.stack([taps] * 3), np.stack([taps] * 3)), 64)
    wanted = np.stack([ndimage.convolve(photo()[..., c], taps, mode="reflect") for c in range(3)], -1)
    np.testing.assert_allclose(made, wanted, atol=1e-5)


def test_between_fields_and_azimuths_kernels_are_mixed_and_mirrored() -> None:
    tail = np.zeros((3, 9, 9))
    tail[:, 8, 7] = 1  # down and right of the middle
    held = lens(point(), bar(), tail)
    np.testing.assert_allclose(kernel_at(held, 0.15, 90.0), (point() + tail) / 2, atol=1e-12)
    np.testing.assert_allclose(kernel_at(held, 0.9, 22.5), (bar() + tail) / 2, atol=1e-12)
    np.testing.assert_allclose(kernel_at(held, 1.0, -45.0), tail[:, ::-1], atol=1e-12)
    np.testing.assert_allclose(kernel_at(held, 1.0, 225.0), tail[:, ::-1, ::-1], atol=1e-12)


def test_a_point_of_light_grows_its_tail_outward() -> None:
    """Coma of the right edge points right and that of the left edge left: true convolution, mirrored kernels."""
    tail = np.zeros((3, 9, 9))
    tail[:, 4, 4:] = 0.2
    image = np.zeros((64, 256, 3), np.float32)
    image[32, [10, 245]] = 1
    made = field_blur(image, lens(tail, tail, tail), 16)
    assert made[32, 13].max() < 0.02 < made[32, 7].max()
    assert made[32, 242].max() < 0.02 < made[32, 248].max()


def test_the_middle_stays_sharper_than_the_corner() -> None:
    image = photo(256, 256)
    change = np.abs(field_blur(image, lens(point(15), bar(15)), 64) - image).mean(-1)
    assert change[120:136, 120:136].mean() < 0.7 * change[:24, :24].mean()


def test_a_patch_that_cannot_be_halved_is_an_error() -> None:
    with pytest.raises(SoritesError, match="wanted an even patch"):
        field_blur(photo(), lens(point(), point()), 33)
