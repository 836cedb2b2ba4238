"""Styles against Pillow, scikit-image and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image as Pillow
from PIL import ImageOps
from skimage.filters import gaussian, sobel_h, sobel_v

from sorites.core import ImageF32, shift, to_float, to_uint8
from sorites.core.errors import SoritesError
from sorites.shifts.style import STYLES

RNG = np.random.default_rng(0)
PHOTO = to_float((gaussian(RNG.random((44, 66, 3)), 2, channel_axis=2) * 600 % 255).astype(np.uint8))


def drawn(name: str, image: ImageF32 = PHOTO) -> ImageF32:
    return shift("style")(image, {"style": name}, np.random.default_rng(1))


def test_gray_and_inverted_are_pillows() -> None:
    image = Pillow.fromarray(to_uint8(PHOTO))
    assert np.abs(to_uint8(drawn("gray"))[..., 0].astype(int) - np.asarray(image.convert("L"))).max() <= 1
    np.testing.assert_array_equal(to_uint8(drawn("inverted")), np.asarray(ImageOps.invert(image)))


def test_blurred_is_scikit_images() -> None:
    np.testing.assert_allclose(
        drawn("blurred"), gaussian(PHOTO, 44 / 28, mode="nearest", channel_axis=2), atol=1e-5
    )


def test_sketch_follows_scikit_images_edges() -> None:
    gray = drawn("gray")[..., 0].astype(np.float64)
    edges = np.hypot(sobel_h(gray), sobel_v(gray))[2:-2, 2:-2]
    lines = 1 - drawn("sketch")[2:-2, 2:-2, 0]
    faint = lines < 1
    np.testing.assert_allclose(lines[faint] / edges[faint], np.median(lines[faint] / edges[faint]), rtol=1e-3)


def test_pixelated_blocks_are_means_that_keep_the_mean() -> None:
    made = drawn("pixelated")
    np.testing.assert_allclose(
        made[4:8, 8:12].reshape(-1, 3), np.tile(PHOTO[4:8, 8:12].mean((0, 1)), (16, 1)), atol=1e-6
    )
    assert made.mean() == pytest.approx(PHOTO.mean(), abs=1e-5)


def test_posterised_has_four_values_a_channel() -> None:
    np.testing.assert_allclose(np.unique(drawn("posterised")), [0, 1 / 3, 2 / 3, 1], atol=1e-6)


def test_noise_has_the_deviation_it_says() -> None:
    assert (drawn("noisy", np.full((200, 200, 3), 0.5, np.float32)) - 0.5).std() == pytest.approx(
        0.1, abs=0.002
    )


def test_flat_images_have_no_edges() -> None:
    flat = np.full((32, 32, 3), 0.3, np.float32)
    np.testing.assert_allclose(drawn("sketch", flat), 1)
    np.testing.assert_allclose(drawn("embossed", flat), 0.5)


def test_every_style_is_another_image() -> None:
    made = [to_uint8(drawn(name)).tobytes() for name in STYLES]
    assert len({*made, to_uint8(PHOTO).tobytes()}) == len(STYLES) + 1


def test_an_unknown_style_is_reported() -> None:
    with pytest.raises(SoritesError, match="'skech'. Did you"):
        shift("style")(PHOTO, {"style": "skech"}, RNG)
