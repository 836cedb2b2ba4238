"""Parts of resized images, against Pillow's resize and crop of the whole image."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from sorites.io import resizing
from sorites.io.resizing import resized_part

FILTERS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height * 1000 + width).integers(0, 256, (height, width, 3), np.uint8)


def by_pillow(
    image: np.ndarray, size: tuple[int, int], part: tuple[int, int, int, int], filter: str
) -> np.ndarray:
    return np.asarray(Pillow.fromarray(image).resize(size, Pillow.Resampling[filter.upper()]).crop(part))


@pytest.mark.slow
@settings(deadline=None, max_examples=250)
@given(st.data())
def test_every_part_equals_pillows_to_the_bit(data: st.DataObject) -> None:
    height, width = (data.draw(st.integers(1, 160)) for _ in range(2))
    size = data.draw(st.integers(1, 120)), data.draw(st.integers(1, 120))
    left, top = (data.draw(st.integers(0, side - 1)) for side in size)
    right, bottom = data.draw(st.integers(left + 1, size[0])), data.draw(st.integers(top + 1, size[1]))
    filter, image = data.draw(st.sampled_from(FILTERS)), noise(height, width)
    part = (left, top, right, bottom)
    made = resized_part(image, size, part, filter)  # type: ignore[arg-type]
    np.testing.assert_array_equal(made, by_pillow(image, size, part, filter))
    assert made.flags.c_contiguous


@pytest.mark.parametrize(
    "shape", [(375, 500), (500, 375), (480, 640), (333, 333), (600, 400), (2, 3), (90, 400)]
)
def test_usual_photographs_equal_pillows_and_fewer_pixels_are_computed(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = min(shape)
    size, image = (256 * shape[1] // short, 256 * shape[0] // short), noise(*shape)
    left, top = round((size[0] - 224) / 2), round((size[1] - 224) / 2)
    part, computed = (left, top, left + 224, top + 224), []
    whole = by_pillow(image, size, part, "bicubic")
    resize = Pillow.Image.resize

    def counted(one: Pillow.Image, *args: object) -> Pillow.Image:
        made = resize(one, *args)  # type: ignore[arg-type]
        computed.append(math.prod(made.size))
        return made

    monkeypatch.setattr(Pillow.Image, "resize", counted)
    np.testing.assert_array_equal(resized_part(image, size, part, "bicubic"), whole)
    assert len(computed) == 2
    assert sum(computed) < shape[0] * size[0] + size[0] * size[1]


@pytest.mark.parametrize("part", [(-3, 0, 5, 5), (0, 0, 60, 60), (5, 5, 45, 45)])
def test_parts_that_save_nothing_are_left_to_pillow(
    part: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = noise(100, 100)
    monkeypatch.setattr(resizing, "MAX_SHARE", 0.5)
    made = resized_part(image, (50, 50), part, "bicubic")
    np.testing.assert_array_equal(made, by_pillow(image, (50, 50), part, "bicubic"))
