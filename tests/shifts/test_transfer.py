"""Turbulence, jitter and drift: contrasts of gratings against the closed forms, and scipy's Gaussian."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import ndimage

from sorites.core import ImageF32, shift
from sorites.core.rng import rng_for
from sorites.optics.develop import linear_from_srgb, srgb_from_linear
from sorites.shifts.transfer import _spectrum


def grating(period: float, angle: float, side: int = 200) -> ImageF32:
    """A sine in linear light with a contrast of 0.5, across ``angle``."""
    y, x = np.mgrid[:side, :side].astype(np.float64)
    light = 0.4 + 0.2 * np.sin(2 * math.pi * (x * math.cos(angle) + y * math.sin(angle)) / period)
    return np.repeat(srgb_from_linear(light.astype(np.float32))[..., None], 3, axis=2)


def contrast(image: ImageF32, period: float, angle: float) -> float:
    """The amplitude of the sine in the middle of the image, by least squares."""
    light = linear_from_srgb(image)[70:130, 70:130, 0].astype(np.float64).ravel()
    y, x = np.mgrid[70:130, 70:130].astype(np.float64)
    phase = (2 * math.pi * (x * math.cos(angle) + y * math.sin(angle)) / period).ravel()
    terms = np.column_stack([np.sin(phase), np.cos(phase), np.ones_like(phase)])
    fitted = np.linalg.lstsq(terms, light, rcond=None)[0]
    return float(np.hypot(fitted[0], fitted[1]))


@pytest.mark.parametrize("period", [6.0, 12.0, 20.0])
@pytest.mark.parametrize(
    ("name", "severity"), [("turbulence", 2.0), ("camera_jitter", 1.5), ("camera_drift", 5.0)]
)
def test_contrast_falls_by_the_closed_form(name: str, severity: float, period: float) -> None:
    angle = _spectrum(np.zeros((4, 4, 3), np.float32), rng_for(0, "a", name)).angle
    made = shift(name)(grating(period, angle), severity, rng_for(0, "a", name))
    expected = {
        "turbulence": math.exp(-3.44 * (severity / period) ** (5 / 3)),
        "camera_jitter": math.exp(-2 * (math.pi * severity / period) ** 2),
        "camera_drift": math.sin(math.pi * severity / period) / (math.pi * severity / period),
    }[name]
    assert contrast(made, period, angle) / 0.2 == pytest.approx(abs(expected), abs=4e-3)


def test_drift_leaves_what_varies_across_its_direction() -> None:
    angle = _spectrum(np.zeros((4, 4, 3), np.float32), rng_for(0, "a", "camera_drift")).angle
    image = grating(10.0, angle + math.pi / 2)
    made = shift("camera_drift")(image, 8.0, rng_for(0, "a", "camera_drift"))
    np.testing.assert_allclose(made[70:130, 70:130], image[70:130, 70:130], atol=3e-3)


def test_jitter_is_scipys_gaussian_in_linear_light(photo: ImageF32) -> None:
    made = shift("camera_jitter")(photo, 2.0, rng_for(0, "a", "camera_jitter"))
    light = linear_from_srgb(photo).astype(np.float64)
    expected = np.stack(
        [ndimage.gaussian_filter(light[..., i], 2.0, mode="mirror", truncate=8) for i in range(3)], axis=-1
    )
    np.testing.assert_allclose(linear_from_srgb(made), expected, atol=1e-3)
