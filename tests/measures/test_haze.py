import math

import numpy as np
import pytest

from sorites.core.errors import SoritesError
from sorites.measures.images import haze_depth


def scene() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (120, 120, 3), np.uint8)


@pytest.mark.parametrize("depth", [0.0, 0.3, 1.0, 2.0])
def test_even_air_gives_its_own_optical_depth(depth: float) -> None:
    """Koschmieder's law in closed form, in linear light with the standard's transfer curve."""
    values = scene() / 255
    light = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    through = light * math.exp(-depth) + 0.8 * (1 - math.exp(-depth))
    shown = np.where(through <= 0.0031308, 12.92 * through, 1.055 * through ** (1 / 2.4) - 0.055)
    assert haze_depth(scene(), np.round(shown * 255).astype(np.uint8)) == pytest.approx(depth, abs=0.003)


def test_streaks_that_know_nothing_of_the_scene_are_not_contrast() -> None:
    moved = scene()
    moved[np.random.default_rng(1).random((120, 120)) < 0.2] = 255
    assert haze_depth(scene(), moved) == pytest.approx(-math.log(0.8), abs=0.04)


def test_nothing_left_is_infinite_and_nothing_there_is_not_a_number() -> None:
    grey = np.full((120, 120, 3), 100, np.uint8)
    assert haze_depth(scene(), grey) == math.inf
    assert math.isnan(haze_depth(grey, scene()))
    with pytest.raises(SoritesError, match="two 8-bit images of one size"):
        haze_depth(scene(), grey[:5])
