"""The light of a screen: curves and flicker that are known are found again."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from sorites.core.errors import SoritesError
from sorites.optics.display import fit_flicker, fit_ramp, flicker_level

VALUES = (0, 16, 32, 64, 96, 128, 192, 255)


def ramp(gamma: float, white: tuple[float, ...], veil: tuple[float, ...], noise: float = 0.0) -> np.ndarray:
    light = np.array(white) * (np.array(VALUES)[:, None] / 255) ** gamma + np.array(veil)
    return light * (1 + noise * np.random.default_rng(0).standard_normal(light.shape))


@pytest.mark.parametrize("gamma", [1.8, 2.2, 2.4])
def test_gamma_white_and_veil_are_found(gamma: float) -> None:
    found = fit_ramp(VALUES, ramp(gamma, (280, 300, 330), (0.5, 0.4, 0.3), 0.002))
    assert found.gamma == pytest.approx(gamma, abs=0.01)
    assert found.white == pytest.approx((280, 300, 330), rel=0.01)
    assert found.veil == pytest.approx((0.5, 0.4, 0.3), rel=0.03)
    assert found.error < 0.02


def test_a_screen_that_is_no_power_law_is_off_the_curve() -> None:
    light = ramp(2.2, (300, 300, 300), (0.3, 0.3, 0.3))
    light[5:] *= 0.8
    assert fit_ramp(VALUES, light).error > 0.05


@pytest.mark.parametrize(
    ("values", "light"),
    [((0, 255), np.ones((2, 3))), ((1, 2, 3, 4), np.ones((4, 3))), (VALUES, np.ones((len(VALUES), 3)))],
)
def test_ramps_that_say_nothing_are_refused(values: tuple[int, ...], light: np.ndarray) -> None:
    with pytest.raises(SoritesError):
        fit_ramp(values, light)


def test_an_exposure_averages_the_flicker() -> None:
    """Against the integral of the light over the time that the shutter is open."""
    depth, hz = 0.3, 90.0
    for shutter, start in ((1 / 500, 0.001), (1 / 60, 0.004), (1 / 90, 0.0)):
        light = quad(lambda t: 1 + depth * np.sin(2 * np.pi * hz * t), start, start + shutter)[0] / shutter
        middle = 2 * np.pi * hz * (start + shutter / 2)
        assert flicker_level(depth, hz, shutter, middle) == pytest.approx(light, abs=1e-9)


def shots(depth: float, hz: float, seed: int, each: int = 8) -> dict[float, list[float]]:
    rng = np.random.default_rng(seed)
    times = (1 / 4000, 1 / 2000, 1 / 1000, 1 / 500, 1 / 250, 1 / 160, 1 / 125, 1 / 60)
    levels = {}
    for time in times:
        start = rng.uniform(0, 1, each)
        moments = start[:, None] + (np.arange(4000) + 0.5) / 4000 * time
        light = (1 + depth * np.sin(2 * np.pi * hz * moments)).mean(1)
        levels[time] = [value * (1 + 5e-4 * rng.standard_normal()) for value in light]
    return levels


@pytest.mark.parametrize(("depth", "hz"), [(0.2, 120.0), (0.05, 240.0)])
def test_depth_and_frequency_of_flicker_are_found(depth: float, hz: float) -> None:
    found = fit_flicker(shots(depth, hz, 1))
    assert found.depth == pytest.approx(depth, rel=0.2)
    assert found.hz == pytest.approx(hz, rel=0.2)
    assert found.level(1e-9, np.pi / 2) == pytest.approx(1 + found.depth)


def test_a_steady_screen_has_no_flicker() -> None:
    found = fit_flicker(shots(0.0, 120.0, 2))
    assert (found.depth, found.hz) == (0.0, None)
    assert found.level(0.01, 1.0) == 1
