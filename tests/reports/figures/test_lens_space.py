from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from PIL import Image as Pillow

from sorites.lenses import store as lenses
from sorites.reports.figures.lenses import HIGH, LEFT, PANEL, TOP, aperture_radius, projected, radius, space


def test_the_three_base_vectors_stand_a_third_of_a_turn_apart() -> None:
    up, left, right = (projected(vector) for vector in np.eye(3))
    assert up == (0, 1)
    assert left == (pytest.approx(-math.sqrt(3) / 2), pytest.approx(-0.5))
    assert right == (pytest.approx(math.sqrt(3) / 2), pytest.approx(-0.5))
    assert projected(np.full(3, 3**-0.5)) == pytest.approx((0, 0))


def test_a_dot_grows_by_the_logarithm_and_with_the_aperture() -> None:
    assert radius(10) - radius(1) == pytest.approx(radius(1) - radius(0.1))
    assert radius(0) == radius(0.01) > 0
    assert aperture_radius(1.4) > aperture_radius(2.8) > aperture_radius(8) >= 2


@pytest.mark.slow
def test_chosen_lenses_are_orange_and_the_others_blue() -> None:
    entries = [lenses.load(lenses.builtin(), name) for name in lenses.names(lenses.builtin())]
    plain, some, every = (
        space(entries, chosen) for chosen in ([], ["CookeTriplet"], [entry.name for entry in entries])
    )
    assert plain.size == some.size == every.size

    def warmer(page: Pillow.Image) -> np.ndarray:
        red, _, blue = np.moveaxis(np.asarray(page, np.int32), -1, 0)
        return red - blue

    blue, orange = (
        [int((sign * warmer(page) > 60).sum()) for page in (plain, some, every)] for sign in (-1, 1)
    )
    assert blue[0] > blue[1] > blue[2] == 0
    assert orange[2] > orange[1] > orange[0] == 0


def test_dots_at_the_ends_of_an_axis_stay_off_its_numbers() -> None:
    entry = lenses.load(lenses.builtin(), "CookeTriplet")
    corners = [
        dataclasses.replace(
            entry, about=entry.about.model_copy(update={"efl_mm": efl, "fov_deg": fov, "f_number": 1.4})
        )
        for efl in (1.0, 99.9)
        for fov in (0.0, 60.0)
    ]
    page = np.asarray(space(corners), np.int32)
    left, top = LEFT + 2 * PANEL, TOP + HIGH
    blue = (page[..., 2] - page[..., 0] > 60)[top : top + HIGH, left : left + PANEL]
    rows, columns = np.flatnonzero(blue.any(1)), np.flatnonzero(blue.any(0))
    assert columns[0] >= 58
    assert columns[-1] <= PANEL - 12
    assert rows[0] >= 46
    assert rows[-1] <= HIGH - 50
