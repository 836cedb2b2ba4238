"""Resampling, compared with torch and Pillow."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image as pil

from sorites.core import ImageF32
from sorites.scenes import point_maps
from sorites.scenes.resample import halved, interpolated, resized, warped


def photo(height: int = 60, width: int = 84, seed: int = 0) -> ImageF32:
    return np.random.default_rng(seed).random((height, width, 3), np.float32)


def test_interpolation_is_that_of_torch() -> None:
    """Kornia's warps use the same function, with a cubic kernel of a = -0.75."""
    torch = pytest.importorskip("torch")
    image = photo()
    map_ = point_maps.rotation(17, (60, 84))
    y, x = np.mgrid[:60, :84] + 0.5
    places = map_.inverse(np.stack([x, y], -1))
    # Grey outside: torch fills with 0, so the image is moved by a half before and after.
    tensor = torch.from_numpy(image.transpose(2, 0, 1)[None].astype(np.float64) - 0.5)
    grid = torch.from_numpy(places / (84, 60) * 2 - 1)[None]
    expected = torch.nn.functional.grid_sample(tensor, grid, "bicubic", "zeros", align_corners=False)
    ours = interpolated(image, places[..., 0], places[..., 1])
    np.testing.assert_allclose(ours, expected[0].numpy().transpose(1, 2, 0) + 0.5, atol=1e-5)


def test_a_warp_without_reduction_is_kornias() -> None:
    torch = pytest.importorskip("torch")
    kornia = pytest.importorskip("kornia")
    image = photo()
    map_ = point_maps.shearing(20, (60, 84))
    # Kornia counts from the centre of the first pixel.
    half = np.array([[1, 0, -0.5], [0, 1, -0.5], [0, 0, 1]])
    matrix = half @ map_.matrix @ np.linalg.inv(half)
    tensor = torch.from_numpy(image.transpose(2, 0, 1)[None].astype(np.float64) - 0.5)
    expected = kornia.geometry.warp_perspective(
        tensor, torch.from_numpy(matrix)[None], (60, 84), mode="bicubic", align_corners=True
    )
    ours = warped(image, map_)
    # With aligned corners, torch reaches half a pixel less far at the border.
    difference = np.abs(ours - np.clip(expected[0].numpy().transpose(1, 2, 0) + 0.5, 0, 1))
    assert np.quantile(difference, 0.99) < 1e-4


def test_reducing_inside_the_image_is_pillows() -> None:
    image = photo()
    ours = resized(image, (20, 28), (2.5, 2.5), (5.0, 7.0), border=False)
    for channel in range(3):
        plane = pil.fromarray(image[..., channel])
        peer = plane.resize((28, 20), pil.Resampling.BICUBIC, box=(7, 5, 77, 55))
        # Pillow cuts the kernel at the window, and ours reads beyond it.
        np.testing.assert_allclose(ours[2:-2, 2:-2, channel], np.asarray(peer)[2:-2, 2:-2], atol=1e-5)


def test_reduced_texture_does_not_alias() -> None:
    """A checkerboard of single pixels becomes flat grey; reading every fourth pixel would be black or white."""
    y, x = np.mgrid[:64, :64]
    board = np.repeat(((x + y) % 2)[..., None], 3, axis=2).astype(np.float32)
    for small in (warped(board, point_maps.scaling(0.25, (64, 64))), halved(board)):
        inner = small[
            small.shape[0] // 2 - 4 : small.shape[0] // 2 + 4,
            small.shape[1] // 2 - 4 : small.shape[1] // 2 + 4,
        ]
        assert np.abs(inner - 0.5).max() < 0.02


def test_turning_there_and_back_restores_a_smooth_image() -> None:
    y, x = np.mgrid[:80, :80] / 80
    smooth = np.stack([np.sin(3 * x) / 2 + 0.5, np.cos(4 * y) / 2 + 0.5, x * y], -1).astype(np.float32)
    there = warped(smooth, point_maps.rotation(25, (80, 80)))
    back = warped(there, point_maps.rotation(-25, (80, 80)))
    np.testing.assert_allclose(back[25:55, 25:55], smooth[25:55, 25:55], atol=2e-3)


def test_quarter_turns_are_exact() -> None:
    image = photo(50, 50)
    np.testing.assert_allclose(
        warped(image, point_maps.rotation(90, (50, 50))), np.rot90(image, -1), atol=1e-5
    )


def test_whole_pixels_move_exactly_and_the_border_is_grey() -> None:
    image = photo()
    moved = warped(image, point_maps.translation(5, -3))
    np.testing.assert_allclose(moved[:-3, 5:], image[3:, :-5], atol=1e-6)
    np.testing.assert_allclose(moved[-3:], 0.5, atol=1e-6)
    np.testing.assert_allclose(moved[:, :5], 0.5, atol=1e-6)
