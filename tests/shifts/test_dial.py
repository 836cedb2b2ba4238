from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from sorites import core
from sorites.core import plugins
from sorites.core.errors import SoritesError
from sorites.core.registry import Registry
from sorites.core.rng import rng_for
from sorites.shifts.base import add_continuous_shift, between


def test_a_sweep_prepares_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "SHIFTS", Registry("shift", "sorites.shifts"))
    seen = []

    def prepare(image: core.ImageF32, rng: np.random.Generator) -> float:
        seen.append(1)
        return rng.random()

    @add_continuous_shift(prepare, family="test", unit="none", levels=(1, 2))
    def lift(image: core.ImageF32, severity: float, drawn: float) -> core.ImageF32:
        """Raise all values by a drawn amount."""
        return image + np.float32(severity * drawn)

    image = np.zeros((2, 3, 3), np.float32)
    one, two = lift.sweep(image, [1, 2], rng_for(0, "a", "lift"))
    assert len(seen) == 1
    assert (two == 2 * one).all()
    assert (lift(image, 2, rng_for(0, "a", "lift")) == two).all()
    assert lift.name == "lift"
    assert lift.about == "Raise all values by a drawn amount."
    assert list(lift.sweep(image, [], rng_for(0, "a", "lift"))) == []


NAMES = ("jpeg", "contrast", "defocus_disk", "gaussian_noise")


# Blur and noise have no largest severity.
@pytest.mark.parametrize(
    ("name", "severity"),
    [*product(NAMES, (-0.1, math.nan, math.inf)), ("jpeg", 100.0), ("contrast", 100.0)],
)
def test_a_severity_that_means_nothing_is_refused(name: str, severity: float) -> None:
    with pytest.raises(SoritesError, match=f"{name}: expected a severity from 0"):
        core.shift(name)(np.zeros((8, 8, 3), np.float32), severity, rng_for(0, "a", name))


def test_between_goes_through_the_stops_in_straight_lines() -> None:
    stops = ((0.0, 10.0), (1.0, 20.0), (3.0, 0.0))
    assert between(stops, 0) == [0, 10]
    assert between(stops, 1) == [1, 20]
    assert between(stops, 2) == [3, 0]
    assert between(stops, 1.25) == [1.5, 15]


NINETEEN = [
    *("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    *("defocus_disk", "gaussian_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "spatter"),
    *("brightness", "contrast", "saturate", "elastic_transform", "pixelate", "jpeg"),
]


@pytest.mark.parametrize("name", NINETEEN)
@pytest.mark.parametrize("size", [(1, 1), (1, 7), (8, 2), (31, 8)])
def test_the_common_corruptions_take_any_size(name: str, size: tuple[int, int]) -> None:
    dial = core.shift(name)
    image = np.random.default_rng(0).random((*size, 3), dtype=np.float32)
    for made in dial.sweep(image, [dial.levels[0] / 7, *dial.levels], rng_for(0, "a", name)):
        assert made.shape == image.shape
        assert np.isfinite(made).all()
