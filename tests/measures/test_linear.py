"""Bilinear resizing against OpenCV and torch, and LPIPS as in the released code of ImageNet-ES."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image as Pillow
from tests.measures.images import scene
from tests.measures.test_lpips import by_formula

from sorites import core
from sorites.core import ImageU8
from sorites.measures.lpips import lpips, lpips_linear, resized

SIZES = [
    ((30, 40), (37, 50)),
    ((103, 150), (37, 50)),
    ((96, 64), (48, 32)),
    ((70, 70), (33, 90)),
    ((9, 1), (4, 3)),
]


def noise(height: int, width: int) -> ImageU8:
    return np.random.default_rng(height * 1000 + width).integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize(("size", "expected"), SIZES)
def test_the_resizing_is_opencvs_default(size: tuple[int, int], expected: tuple[int, int]) -> None:
    cv2 = pytest.importorskip("cv2")
    image = noise(*size)
    theirs = cv2.resize(image, expected[::-1]).astype(int)
    assert np.abs(theirs - resized(image, *expected)).max() <= 1, "OpenCV computes in fixed point"


@pytest.mark.parametrize(("size", "expected"), SIZES)
def test_the_resizing_is_torchs_without_antialiasing(
    size: tuple[int, int], expected: tuple[int, int]
) -> None:
    torch = pytest.importorskip("torch")
    image = noise(*size)
    planes = torch.from_numpy(image).permute(2, 0, 1)[None].double()
    theirs = torch.nn.functional.interpolate(
        planes, expected, mode="bilinear", align_corners=False, antialias=False
    )
    assert np.abs(theirs[0].permute(1, 2, 0).numpy() - resized(image, *expected)).max() <= 0.5 + 1e-3


def test_images_of_the_target_size_are_unchanged() -> None:
    image = noise(20, 30)
    assert resized(image, 20, 30) is image


def released(original: ImageU8, captured: ImageU8) -> float:
    """ImageNet-ES, ``img_compare.py``: ``cv2.resize(img_es, (w, h))``, then LPIPS of AlexNet; the
    formula once more in NumPy.
    """
    cv2 = pytest.importorskip("cv2")
    height, width, _ = original.shape
    return by_formula(cv2.resize(captured, (width, height)), original)


def test_figure_9_lpips_is_the_released_computation_of_imagenet_es() -> None:
    original, captured = scene(5, 41), noise(131, 131)
    captured[20:90] = scene(6, 131)[20:90]
    expected = released(original, captured)
    assert lpips_linear(original, captured) == pytest.approx(expected, rel=5e-3)
    smooth = np.asarray(Pillow.fromarray(captured).resize((41, 41), Pillow.Resampling.BICUBIC))
    assert abs(lpips(original, smooth) - expected) > 0.01, "a filter that smooths gives another number"


def test_equal_sizes_give_lpips() -> None:
    assert lpips_linear(scene(1, 64), scene(2, 64)) == lpips(scene(1, 64), scene(2, 64))
    assert core.measure("lpips_linear").whole
    assert not core.measure("lpips").whole
