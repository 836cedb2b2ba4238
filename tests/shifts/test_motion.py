from __future__ import annotations

import math

import numpy as np
import pytest

from sorites.core import shift
from sorites.core.rng import rng_for
from sorites.shifts.blur import _angle


@pytest.mark.parametrize(("level", "sigma"), [(1, 3), (2, 5)])
def test_a_point_of_light_becomes_half_a_gaussian_along_the_samples_own_line(
    level: int, sigma: float
) -> None:
    image = np.zeros((81, 81, 3), np.float32)
    image[40, 40] = 1
    for sample in map(str, range(5)):
        angle = _angle(image, rng_for(0, sample, "motion_blur"))
        made = shift("motion_blur")(image, level, rng_for(0, sample, "motion_blur"))[..., 0].astype(
            np.float64
        )
        y, x = np.mgrid[-40:41, -40:41]
        away = -(y * math.sin(angle) + x * math.cos(angle))
        assert abs(angle) <= math.pi / 4
        assert made.sum() == pytest.approx(1, abs=1e-3)
        steps = np.arange(40)
        law = np.exp(-0.5 * (steps / sigma) ** 2)
        assert (made * away).sum() == pytest.approx((law * steps).sum() / law.sum(), rel=0.1)
        assert (made * (y * math.cos(angle) - x * math.sin(angle)) ** 2).sum() < 0.2


def test_forward_motion_leaves_the_middle_and_drags_the_border() -> None:
    image = np.zeros((96, 128, 3), np.float32)
    image[46:50, 62:66] = image[8:12, 8:12] = 1
    made = shift("zoom_blur")(image, 3, rng_for(0, "a", "zoom_blur"))
    assert made[47:49, 63:65].min() > 0.95
    assert made[8:12, 8:12].max() < 0.7
    assert made[:6, :6].max() > 0.05


@pytest.mark.parametrize("name", ["motion_blur", "zoom_blur"])
@pytest.mark.parametrize("size", [(1, 1), (8, 8), (9, 31)])
def test_a_flat_image_of_any_size_stays_as_it_is(name: str, size: tuple[int, int]) -> None:
    image = np.full((*size, 3), 0.4, np.float32)
    for level in (0.5, 1, 2.5, 5):
        np.testing.assert_allclose(shift(name)(image, level, rng_for(0, "a", name)), image, atol=1e-3)
