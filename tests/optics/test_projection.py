"""Where a lens puts the points of an image, against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from sorites.core.errors import SoritesError
from sorites.optics.projection import Projection, relative_illumination

ANGLES = np.linspace(0, 30, 21)
EVEN = np.ones((3, 21))


def heights(*rows: np.ndarray) -> np.ndarray:
    return np.stack(rows if len(rows) == 3 else rows * 3)


@pytest.mark.parametrize("rectified", [True, False])
def test_a_lens_without_distortion_leaves_an_image_as_it_is(rectified: bool) -> None:
    places = Projection(ANGLES, heights(50 * np.tan(np.radians(ANGLES))), EVEN).places(30, 0.9, rectified)
    np.testing.assert_allclose(places.seen, places.original, atol=1e-6)
    assert places.distortion == pytest.approx(0, abs=1e-6)
    at_corner = np.interp(1.0, places.seen, places.fields)
    assert at_corner == pytest.approx(0.9, abs=1e-6)


def test_an_equidistant_lens_has_the_distortion_of_its_formula() -> None:
    """h = f A instead of f tan A: barrel distortion of A / tan A - 1."""
    places = Projection(ANGLES, heights(8 * np.radians(ANGLES)), EVEN).places(30, 1.0, False)
    corner = np.radians(30)
    assert places.distortion == pytest.approx(corner / np.tan(corner) - 1, abs=1e-9)
    for part in (0.2, 0.5, 0.9):
        # The point that is seen at this part of the half diagonal was at tan A / A of the corner.
        original = np.interp(part, places.seen, places.original)
        assert original == pytest.approx(np.tan(part * corner) / corner, abs=1e-6)
        assert np.interp(part, places.seen, places.fields) == pytest.approx(part, abs=1e-9)


def test_a_rectified_image_leaves_green_where_it_was() -> None:
    green = 50 * np.tan(np.radians(ANGLES)) * (1 - 0.1 * np.radians(ANGLES) ** 2)
    places = Projection(ANGLES, heights(1.002 * green, green, 0.999 * green), EVEN).places(30, 1.0, True)
    np.testing.assert_allclose(places.seen, places.original, atol=1e-12)
    assert places.distortion == pytest.approx(-0.1 * np.radians(30) ** 2, abs=1e-4)
    at = (
        np.interp(20 / 30, places.fields, places.lateral[0]),
        np.interp(20 / 30, places.fields, places.lateral[2]),
    )
    height = 50 * np.tan(np.radians(20)) * (1 - 0.1 * np.radians(20) ** 2)
    assert at == (pytest.approx(0.002 * height, rel=1e-4), pytest.approx(-0.001 * height, rel=1e-4))


def test_a_distorted_image_goes_on_beyond_the_traced_field() -> None:
    """With pincushion distortion the corners of the original are beyond the field of the lens."""
    green = 50 * np.tan(np.radians(ANGLES)) * (1 + 0.3 * np.radians(ANGLES) ** 2)
    places = Projection(ANGLES, heights(green), EVEN).places(30, 1.0, False)
    assert places.distortion > 0.05
    assert places.original[-1] >= 1
    assert (np.diff(places.seen) > 0).all()


def test_the_light_of_a_flat_image_falls_with_the_fourth_power_of_the_cosine() -> None:
    radians = np.radians(ANGLES)
    light = relative_illumination(ANGLES, 50 * np.tan(radians), np.cos(radians))
    np.testing.assert_allclose(light, np.cos(radians) ** 4, rtol=1e-4)


def test_equal_areas_get_equal_light() -> None:
    """h = 2 f sin(A / 2) gives every solid angle the same area, so only the beam is left."""
    radians = np.radians(ANGLES)
    light = relative_illumination(ANGLES, 2 * 8 * np.sin(radians / 2), np.full(21, 3.0))
    np.testing.assert_allclose(light, 1, rtol=1e-5)


def test_a_corner_with_no_rectilinear_image_is_refused() -> None:
    angles = np.linspace(0, 95, 21)
    with pytest.raises(SoritesError, match="89 degrees"):
        Projection(angles, heights(8 * np.radians(angles)), EVEN).places(95, 1.0, True)
