from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image as pil

from sorites.core import ImageF32, shift, to_uint8
from sorites.core.rng import rng_for
from sorites.shifts.digital import quantisation


def jpeg(image: ImageF32, severity: float) -> ImageF32:
    return shift("jpeg")(image, severity, rng_for(0, "a", "jpeg"))


def test_jpeg_is_pillows_at_every_whole_quality(photo: ImageF32) -> None:
    for quality in range(1, 100):
        file = io.BytesIO()
        pil.fromarray(to_uint8(photo)).save(file, "JPEG", quality=quality)
        with pil.open(file) as opened:
            np.testing.assert_array_equal(to_uint8(jpeg(photo, 100 - quality)), np.asarray(opened))


def test_quantisation_grows_as_quality_falls_and_is_libjpegs_at_50() -> None:
    tables = np.array([quantisation(quality) for quality in np.arange(100, 0.5, -0.25)])
    assert (np.diff(tables, axis=0) >= 0).all()
    assert tables.min() == 1
    assert tables.max() == 255
    assert quantisation(50)[0][:8] == [16, 11, 10, 16, 24, 40, 51, 61]


@pytest.mark.parametrize("size", [(1, 1), (8, 8), (9, 23)])
def test_jpeg_takes_any_size(size: tuple[int, int]) -> None:
    assert jpeg(np.full((*size, 3), 0.5, np.float32), 93).shape == (*size, 3)


@pytest.mark.parametrize(("level", "share"), list(enumerate((0.6, 0.5, 0.4, 0.3, 0.25))))
def test_pixelate_is_pillows_box_and_nearest_at_the_levels(photo: ImageF32, level: int, share: float) -> None:
    dial = shift("pixelate")
    height, width = photo.shape[:2]
    small = pil.fromarray(to_uint8(photo)).resize(
        (int(width * share), int(height * share)), pil.Resampling.BOX
    )
    expected = np.asarray(small.resize((width, height), pil.Resampling.NEAREST))
    made = dial(photo, dial.levels[level], rng_for(0, "a", "pixelate"))
    np.testing.assert_array_equal(to_uint8(made), expected)


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (8, 8)])
def test_pixelate_takes_any_size_down_to_one_pixel(photo: ImageF32, size: tuple[int, int]) -> None:
    image = photo[: size[0], : size[1]].copy()
    for severity in (0.01, 0.33, 0.75, 0.9):
        assert shift("pixelate")(image, severity, rng_for(0, "a", "pixelate")).shape == image.shape
    flat = shift("pixelate")(image, 1, rng_for(0, "a", "pixelate"))
    assert np.ptp(flat, axis=(0, 1)).max() == 0
