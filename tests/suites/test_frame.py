"""The frame of an image is the usual resize and centre crop, and published suites frame as their
code does.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from sorites.core.errors import BadImage
from sorites.suites.suite import Frame, load, parse


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height * 1000 + width).integers(0, 256, (height, width, 3), np.uint8)


def by_hand(image_u8: np.ndarray, resize: int, crop: int | None) -> np.ndarray:
    """Resize(resize, BICUBIC) and CenterCrop(crop) as torchvision documents and computes them, on a
    Pillow image.
    """
    image = Pillow.fromarray(image_u8)
    width, height = image.size
    size = (
        (resize, int(resize * height / width)) if width <= height else (int(resize * width / height), resize)
    )
    image = image.resize(size, Pillow.Resampling.BICUBIC) if size != (width, height) else image
    if crop is not None:
        left, top = round((size[0] - crop) / 2.0), round((size[1] - crop) / 2.0)
        image = image.crop((left, top, left + crop, top + crop))
    return np.asarray(image)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(8, 40), st.integers(0, 7))
def test_the_frame_is_the_usual_resize_and_centre_crop(
    height: int, width: int, resize: int, less: int
) -> None:
    image = noise(height, width)
    before = image.copy()
    for crop in (resize - less, None):
        framed = Frame(resize=resize, crop=crop)(image)
        np.testing.assert_array_equal(framed, by_hand(image, resize, crop))
        assert framed.flags.c_contiguous
    np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize(
    ("shape", "frame", "wanted"),
    [
        ((375, 500), Frame(resize=256, crop=224), (224, 224)),
        ((500, 375), Frame(resize=256), (341, 256)),
        ((1, 1), Frame(resize=256, crop=224), (224, 224)),
        ((224, 300), Frame(resize=224, crop=224), (224, 224)),
    ],
)
def test_the_size_of_a_framed_image(shape: tuple[int, int], frame: Frame, wanted: tuple[int, int]) -> None:
    assert frame(noise(*shape)).shape == (*wanted, 3)


def test_a_image_of_the_right_size_is_not_resampled() -> None:
    image = noise(64, 80)
    np.testing.assert_array_equal(Frame(resize=64)(image), image)
    np.testing.assert_array_equal(Frame(resize=64, crop=64)(image), image[:, 8:72])


def test_a_thread_of_a_image_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(BadImage, match="1 x 100000 px is too long and"):
        Frame(resize=256)(np.zeros((100_000, 1, 3), np.uint8))


# ---- the frames of the published suites


def transformed(image: np.ndarray, resize: int, crop: int, filter: Pillow.Resampling) -> np.ndarray:
    """Resize(resize) and CenterCrop(crop) of torchvision with a filter; its default is bilinear."""
    height, width = image.shape[:2]
    size = (
        (resize, int(resize * height / width)) if width <= height else (int(resize * width / height), resize)
    )
    left, top = round((size[0] - crop) / 2.0), round((size[1] - crop) / 2.0)
    return np.asarray(Pillow.fromarray(image).resize(size, filter).crop((left, top, left + crop, top + crop)))


@pytest.mark.parametrize(
    ("name", "resize", "filter"),
    [
        ("optics_bench", 256, Pillow.Resampling.BILINEAR),
        ("imagenet_es", 256, Pillow.Resampling.BILINEAR),
        ("cns_bench", 256, Pillow.Resampling.BICUBIC),
        ("focus", 224, Pillow.Resampling.BILINEAR),
        ("is_ood", 256, Pillow.Resampling.BILINEAR),
    ],
)
def test_a_published_suite_frames_images_as_its_released_code_does(
    name: str, resize: int, filter: Pillow.Resampling
) -> None:
    """generate_datasets.py, modules/datasets.py, cns_benchmark.py (--interpolation 3),
    evaluate_model.py, datasets.py.
    """
    frame = load(name).frame
    assert frame is not None
    for shape in ((375, 500), (500, 333), (256, 256)):
        np.testing.assert_array_equal(frame(noise(*shape)), transformed(noise(*shape), resize, 224, filter))


def test_lens_corruptions_has_no_released_code_and_stays_bicubic() -> None:
    assert load("lens_corruptions").frame == Frame(resize=256, crop=224, filter="bicubic")


def test_the_suite_of_imagenet_es_cuts_by_lpips_as_released_and_only_when_asked() -> None:
    suite = load("imagenet_es")
    assert (suite.lpips_measure, suite.lpips_below) == ("lpips_linear", None)
    assert parse({"name": "other"}, "other").lpips_measure == "lpips"
