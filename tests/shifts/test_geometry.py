from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from sorites.core import ImageF32, shift
from sorites.core.rng import rng_for
from sorites.shifts.digital import _displacement


@pytest.mark.parametrize("gain", [5.0, 30.0, 300.0])
def test_elastic_looks_pixels_up_as_scipy_does(photo: ImageF32, gain: float) -> None:
    down, across = _displacement(photo, rng_for(0, "a", "elastic_transform"))
    y, x = np.mgrid[:96, :128].astype(np.float64)
    places = [y + down.astype(np.float64) * gain, x + across.astype(np.float64) * gain]
    made = shift("elastic_transform")(photo, gain, rng_for(0, "a", "elastic_transform"))
    for channel in range(3):
        expected = ndimage.map_coordinates(
            photo[..., channel].astype(np.float64), places, order=1, mode="reflect"
        )
        np.testing.assert_allclose(made[..., channel], expected, atol=2e-4)


@pytest.mark.parametrize("size", [(1, 1), (2, 8), (8, 8)])
def test_elastic_takes_any_size(size: tuple[int, int]) -> None:
    image = np.full((*size, 3), 0.3, np.float32)
    np.testing.assert_allclose(shift("elastic_transform")(image, 30, rng_for(0, "a", "e")), image, atol=1e-6)
