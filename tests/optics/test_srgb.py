"""The sRGB curve against scikit-image, and its two precisions against each other."""

from __future__ import annotations

import numpy as np
from skimage.color import rgb2xyz

from sorites.optics.develop import light_of_bytes, linear_from_srgb, srgb_from_linear, to_display


def test_srgb_is_undone_as_scikit_image_does() -> None:
    """A grey's Y is its linear value."""
    grey = np.linspace(0, 1, 256, dtype=np.float32)
    luminance = rgb2xyz(np.repeat(grey[:, None, None], 3, 2).astype(np.float64))[:, 0, 1]
    np.testing.assert_allclose(linear_from_srgb(grey), luminance, atol=1e-6)


def test_encoding_undoes_linear_and_clips() -> None:
    values = np.linspace(0, 1, 256, dtype=np.float32)
    np.testing.assert_allclose(
        srgb_from_linear(linear_from_srgb(values).astype(np.float64)), values, atol=1e-6
    )
    np.testing.assert_allclose(to_display(linear_from_srgb(values)), values, atol=1e-6)
    np.testing.assert_allclose(to_display(np.array([-1, 2], np.float32)), [0, 1], atol=1e-6)


def test_the_light_of_bytes_is_the_same_curve() -> None:
    values = np.arange(256) / 255
    np.testing.assert_allclose(light_of_bytes(), linear_from_srgb(values.astype(np.float32)), atol=1e-6)
    np.testing.assert_allclose(srgb_from_linear(light_of_bytes()), values, atol=1e-6)
